"""`tacit export`: pack what an auditor needs of a run."""

from pathlib import Path
from typing import Annotated

from tacit.cli.terminal.command import NamedRun, RunsFolder, option
from tacit.cli.terminal.output import check_output, console
from tacit.errors import InvalidInput
from tacit.io.files import write_atomically
from tacit.runs import RunFolder, find_run


def command(
    run: NamedRun,
    for_audit: Annotated[bool, option("", "Pack what an auditor needs; the only kind so far.", "--for-audit")] = False,
    output: Annotated[Path | None, option("FILE", "The archive; default: RUN.audit.zip.", "--output", "-o")] = None,
    whole_ledger: Annotated[
        bool, option("", "Include all rows of the ledger, also those about other records.", "--whole-ledger")
    ] = False,
    runs: RunsFolder = Path("runs"),
) -> None:
    """Pack a run's settings, events and models, its part of the ledger and hashes of the code into one archive.

    It contains no records and no private diagnostics. The same run gives the same bytes.

    Example: tacit export dsgt-digits-1 --for-audit -o dsgt-digits-1.audit.zip
    """
    from tacit.evidence.archive import pack

    if not for_audit:
        raise InvalidInput("say what the archive is for: tacit export RUN --for-audit")
    folder = RunFolder.find(find_run(run, runs))
    file = output or Path(f"{folder.name}.audit.zip")
    check_output(file)
    archive = pack(folder, whole_ledger=whole_ledger)
    write_atomically(file, archive.to_bytes())
    console().print(f"{file}: {', '.join(sorted(archive.parts))}")
