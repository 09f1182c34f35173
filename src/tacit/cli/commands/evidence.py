"""`tacit export`, `tacit verify`, `tacit sign` and `tacit key`: what an auditor receives, and what is made of it."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.commands.ledger import BROKEN
from tacit.cli.terminal.failing import Commands
from tacit.cli.terminal.output import Json, RunsFolder, check_output, console, plain_table, print_json, working
from tacit.errors import InvalidInput
from tacit.runs import RunFolder, find_run

_SHOWN = {"holds": "holds", "fails": "FAILS", "not checked": "not checked"}

key = typer.Typer(cls=Commands, rich_markup_mode="rich", no_args_is_help=True)


@key.callback()
def _key() -> None:
    """Make keys that sign heads.

    Example: tacit key new owner.key
    """


@key.command("new")
def new_key(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where the private key goes; FILE.pub is the public one.")
    ],
) -> None:
    """Make a key of Ed25519. Only its owner can read the private one; no file is ever overwritten.

    Example: tacit key new owner.key
    """
    from tacit.evidence.signatures import new_key, public_file

    public = new_key(file)
    console().print(f"{file}: keep this to yourself", soft_wrap=True)
    console().print(f"{public_file(file)}: give this to whoever should verify; it is {public}", soft_wrap=True)


def sign(
    what: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN|SIGNATURE]", help="A run, or a signature to countersign; else the ledger alone."),
    ] = None,
    key_file: Annotated[Path, typer.Option("--key", metavar="FILE", help="The private key.")] = ...,  # type: ignore[assignment]
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The signature to write; never overwritten.")
    ] = None,
    runs: RunsFolder = Path("runs"),
    json: Json = False,
) -> None:
    """Sign the heads of the ledger and of a run's events, as they are now, into a small JSON file.

    Given a signature in the place of a run, sign the same statement with another key: whoever countersigns should have seen the
    archive that it is of.

    Example: tacit sign dsgt-digits-1 --key owner.key -o dsgt-digits-1.signature.json
    """
    from dataclasses import asdict

    from tacit.evidence.heads import make_statement
    from tacit.evidence.signatures import read_signature, save, sign

    if what is not None and what.is_file():
        statement, name = read_signature(what).statement, what.name.removesuffix(".json")
    else:
        folder = None if what is None else RunFolder.find(find_run(what, runs))
        statement, name = make_statement(runs, folder), f"{'ledger' if folder is None else folder.name}.signature"
    file = output or Path(f"{name}.{key_file.stem}.json")
    check_output(file)
    made = sign(statement, key_file)
    save(made, file)
    if json:
        print_json({"file": str(file), **asdict(made)})
        return
    console().print(f"ledger head {statement.ledger}, after {statement.ledger_rows} rows", soft_wrap=True)
    if statement.events is not None:
        console().print(f"events head {statement.events}, after {statement.events_lines} lines", soft_wrap=True)
    console().print(f"signed in {file}", soft_wrap=True)


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder, or its name.")],
    for_audit: Annotated[
        bool, typer.Option("--for-audit", metavar="", help="Pack what an auditor needs; there is no other kind yet.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The archive; RUN.audit.zip unless given.")
    ] = None,
    whole_ledger: Annotated[
        bool, typer.Option("--whole-ledger", metavar="", help="Show all rows of the ledger, on other records too.")
    ] = False,
    runs: RunsFolder = Path("runs"),
) -> None:
    """Pack a run's settings, events, models, its part of the ledger and hashes of the code into one archive.

    No record and no private diagnostic is in it. The same run gives the same bytes.

    Example: tacit export dsgt-digits-1 --for-audit -o dsgt-digits-1.audit.zip
    """
    from tacit.evidence.archive import pack
    from tacit.io.files import write_atomically

    if not for_audit:
        raise InvalidInput("say what the archive is for: tacit export RUN --for-audit")
    folder = RunFolder.find(find_run(run, runs))
    file = output or Path(f"{folder.name}.audit.zip")
    check_output(file)
    archive = pack(folder, whole_ledger=whole_ledger)
    write_atomically(file, archive.to_bytes())
    console().print(f"{file}: {', '.join(sorted(archive.parts))}", soft_wrap=True)


def verify(
    archive: Annotated[
        Path, typer.Argument(metavar="ARCHIVE", help="What `tacit export` wrote; or a run's folder or name.")
    ],
    head: Annotated[
        str | None, typer.Option("--head", metavar="HASH", help="A head of the ledger or the events, noted earlier.")
    ] = None,
    signature: Annotated[
        Path | None, typer.Option("--signature", metavar="FILE", help="A head that was signed earlier.")
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option("--key", metavar="PUB", help="The public key that must have signed it.")
    ] = None,
    replay: Annotated[
        bool,
        typer.Option("--replay/--no-replay", metavar="", help="Play a seeded run again; takes as long as the run."),
    ] = True,
    run_code: Annotated[
        bool,
        typer.Option(
            "--run-code",
            metavar="",
            help="Run the owner's code that the settings name, from files here with the same hashes. Read it first.",
        ),
    ] = False,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="FOLDER", help="Folder with the data; TACIT_DATA unless given.")
    ] = None,
    runs: RunsFolder = Path("runs"),
    json: Json = False,
) -> None:
    """Check all that an archive states: hashes, agreement, every ε, the plan, scores and, of a seeded run, every look and the models.

    Exit code 0: all that could be checked holds. 1: something fails. 2: this is no archive. Without a head that was noted or
    signed earlier, edits of all files together may not be found. Nothing of the owner's code is run without --run-code.

    Example: tacit verify dsgt-digits-1.audit.zip --signature head.json --key owner.key.pub
    """
    from tacit.evidence.archive import Archive, pack
    from tacit.evidence.signatures import read_public_key, read_signature
    from tacit.evidence.verification import verify
    from tacit.io import chains

    if head is not None and not chains.is_hash(head):
        raise InvalidInput(f"--head {head[:80]!r} is not a hash: 64 digits from 0 to f")
    if head is not None and signature is not None:
        raise InvalidInput("give either --head or --signature, and not both")
    if (signature is None) != (key_file is None):
        raise InvalidInput("--signature and --key go together: a signature is worth what its key is")
    signed = None
    if signature is not None and key_file is not None:
        signed = read_signature(signature)
        if signed.public_key != read_public_key(key_file):
            raise InvalidInput(f"{signature} was not signed by the key in {key_file}, but by {signed.public_key}")
    if archive.is_file():
        given = Archive.read(archive)
    else:
        given = pack(RunFolder.find(find_run(archive, runs)), whole_ledger=True)
    with working("verifying"):
        findings = verify(given, head=head, signature=signed, data_dir=data_dir, replay=replay, run_code=run_code)
    failed = [each.what for each in findings if each.outcome == "fails"]
    open_ = [each.what for each in findings if each.outcome == "not checked"]
    if json:
        rows = [{"what": each.what, "outcome": each.outcome, "words": each.words} for each in findings]
        print_json({"run": given.run, "holds": not failed, "failed": failed, "not_checked": open_, "findings": rows})
    else:
        table = plain_table(given.run)
        for column in ("checked", "found", ""):
            table.add_column(column, overflow="fold")
        for each in findings:
            table.add_row(each.what, _SHOWN[each.outcome], each.words)
        console().print(table)
        console().print(_verdict(failed, open_), soft_wrap=True)
    if failed:
        raise typer.Exit(BROKEN)


def _verdict(failed: list[str], open_: list[str]) -> str:
    rest = f"; not checked: {', '.join(open_)}" if open_ else ""
    return f"DOES NOT HOLD: {', '.join(failed)}{rest}" if failed else f"all that was checked holds{rest}"
