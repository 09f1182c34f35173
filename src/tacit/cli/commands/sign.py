"""`tacit sign`: sign the heads of the ledger and of a run's events."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.terminal.command import Json, RunsFolder, option
from tacit.cli.terminal.output import check_output, console, print_json
from tacit.runs import RunFolder, find_run


def command(
    key_file: Annotated[Path, option("FILE", "The private key.", "--key")],
    what: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN|SIGNATURE", help="A run, or a signature to countersign; default: the ledger alone."
        ),
    ] = None,
    output: Annotated[
        Path | None, option("FILE", "The signature to write; never overwritten.", "--output", "-o")
    ] = None,
    runs: RunsFolder = Path("runs"),
    json: Json = False,
) -> None:
    """Sign the present heads of the ledger and of a run's events, in a small JSON file.

    Given a signature instead of a run, sign the same statement with another key. Check the archive that it is about before you
    countersign.

    Example: tacit sign dsgt-digits-1 --key owner.key -o dsgt-digits-1.signature.json
    """
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
    console().print(f"ledger head {statement.ledger}, after {statement.ledger_rows} rows")
    if statement.events is not None:
        console().print(f"events head {statement.events}, after {statement.events_lines} lines")
    console().print(f"signed in {file}")
