"""`tacit verify`: check everything that an archive, or a run, states."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.terminal.command import DataFolder, Json, RunsFolder, option
from tacit.cli.terminal.output import FOUND_FAULT, console, plain_table, print_json, working
from tacit.errors import InvalidInput
from tacit.io import chains
from tacit.runs import RunFolder, find_run

if TYPE_CHECKING:
    from tacit.evidence.signatures import Signature

_SHOWN = {"holds": "holds", "fails": "FAILS", "not checked": "not checked", "shown": "shown"}


def command(
    archive: Annotated[
        Path, typer.Argument(metavar="ARCHIVE", help="An archive from `tacit export`, or the folder or name of a run.")
    ],
    head: Annotated[str | None, option("HASH", "A head of the ledger or the events, noted earlier.")] = None,
    signature: Annotated[Path | None, option("FILE", "A head that was signed earlier.")] = None,
    key_file: Annotated[Path | None, option("PUB", "The public key that must have signed it.", "--key")] = None,
    replay: Annotated[
        bool, option("", "Play a seeded run again, which takes as long as the run.", "--replay/--no-replay")
    ] = True,
    run_code: Annotated[
        bool,
        option(
            "",
            "Run the owner's code that the settings name, from files here with the same hashes. Read it first.",
            "--run-code",
        ),
    ] = False,
    data_dir: DataFolder = None,
    runs: RunsFolder = Path("runs"),
    json: Json = False,
) -> None:
    """Check everything that an archive states: hashes, agreement, every ε, the plan, scores and, for a seeded run, every snapshot and the models.

    Exit code 0: everything that could be checked holds. 1: something fails. 2: this is not an archive. Without a head that was noted
    or signed earlier, consistent edits of all files may not be found. The owner's code is never run without --run-code.

    Example: tacit verify dsgt-digits-1.audit.zip --signature head.json --key owner.key.pub
    """
    from tacit.evidence.archive import Archive, pack
    from tacit.evidence.verification import verify

    if head is not None and not chains.is_hash(head):
        raise InvalidInput(f"--head {head[:80]!r} is not a hash: 64 digits from 0 to f")
    if head is not None and signature is not None:
        raise InvalidInput("give either --head or --signature, not both")
    signed = _read_signature(signature, key_file)
    if archive.is_file():
        given = Archive.read(archive)
    elif archive.suffix == ".zip" and not archive.exists():
        raise InvalidInput(f"there is no archive {archive}; tacit export RUN writes one")
    else:
        given = pack(RunFolder.find(find_run(archive, runs)), whole_ledger=True)
    with working("verifying"):
        findings = verify(given, head=head, signature=signed, data_dir=data_dir, replay=replay, run_code=run_code)
    failed = [each.what for each in findings if each.outcome == "fails"]
    unchecked = [each.what for each in findings if each.outcome == "not checked"]
    if json:
        rows = [{"what": each.what, "outcome": each.outcome, "words": each.words} for each in findings]
        print_json(
            {"run": given.run, "holds": not failed, "failed": failed, "not_checked": unchecked, "findings": rows}
        )
    else:
        shown = [(each.what, _SHOWN[each.outcome], each.words) for each in findings]
        console().print(plain_table(given.run, "checked", "found", "", rows=shown))
        verdict = f"DOES NOT HOLD: {', '.join(failed)}" if failed else "everything that was checked holds"
        rest = f"; not checked: {', '.join(unchecked)}" if unchecked else ""
        console().print(f"{verdict}{rest}")
    if failed:
        raise typer.Exit(FOUND_FAULT)


def _read_signature(file: Path | None, key_file: Path | None) -> "Signature | None":
    """Return the signature in a file, which must be by the given key."""
    from tacit.evidence.signatures import read_public_key, read_signature

    if file is None and key_file is None:
        return None
    if file is None or key_file is None:
        raise InvalidInput("--signature and --key go together: a signature is worth as much as its key")
    signed = read_signature(file)
    if signed.public_key != read_public_key(key_file):
        raise InvalidInput(f"{file} was not signed by the key in {key_file}, but by {signed.public_key}")
    return signed
