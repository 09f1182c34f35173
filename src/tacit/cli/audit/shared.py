"""What the attacks of `tacit audit` share: options, and the way from a case to an exit code.

An attack is a command that makes one `Case` or several and has them seen through. What plays and prints them loads much,
and so is imported when an audit begins.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tacit.cli.terminal.output import messages, print_json, working
from tacit.errors import InvalidInput
from tacit.io.stopping import Stopping

if TYPE_CHECKING:
    from tacit.audit.attacks.collection import Attack
    from tacit.audit.bounds.findings import Claim

BROKEN = 1
_BATCH = 250  # runs side by side unless given

SYSTEM, PLAYING = "System", "Playing"

Epsilon = Annotated[float, typer.Option(metavar="ε", rich_help_panel=SYSTEM, help="The ε that is claimed.")]
Delta = Annotated[float, typer.Option(metavar="δ", rich_help_panel=SYSTEM, help="δ of the claim.")]
LotSize = Annotated[
    float, typer.Option(metavar="RECORDS", rich_help_panel=SYSTEM, help="Expected records in a lot of an agent.")
]
Rule = Annotated[
    Literal["dsgd", "dsgt", "dinno"],
    typer.Option(metavar="NAME", rich_help_panel=SYSTEM, help="dsgd, dsgt or dinno."),
]
Agents = Annotated[
    int | None,
    typer.Option(metavar="N", rich_help_panel=SYSTEM, help="How many, 3 if unsaid; a file knows its own."),
]
Graph = Annotated[str, typer.Option(metavar="KIND", rich_help_panel=SYSTEM, help="A kind such as ring, or a file.")]
Records = Annotated[int, typer.Option(metavar="N", rich_help_panel=SYSTEM, help="Records of every agent.")]
StepSize = Annotated[float, typer.Option(metavar="NUMBER", rich_help_panel=SYSTEM, help="Step size.")]
SampleRate = Annotated[
    float, typer.Option(metavar="SHARE", rich_help_panel=SYSTEM, help="Share of the records in a lot.")
]
DataFolder = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", rich_help_panel=SYSTEM, help="Where data sets lie; TACIT_DATA unless given."),
]
Rounds = Annotated[int, typer.Option(metavar="N", rich_help_panel=SYSTEM, help="Rounds of every run.")]
Runs = Annotated[
    int,
    typer.Option(metavar="N", rich_help_panel=PLAYING, help="Runs with the record, and as many without."),
]
Batch = Annotated[
    int, typer.Option(metavar="N", rich_help_panel=PLAYING, help="Runs side by side; each batch is kept once done.")
]
Workers = Annotated[
    int | None,
    typer.Option(metavar="N", rich_help_panel=PLAYING, help="Processes; as many as there are cores unless given."),
]
Confidence = Annotated[
    float, typer.Option(metavar="SHARE", rich_help_panel=PLAYING, help="That all bounds hold at once.")
]
Folder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", rich_help_panel=PLAYING, help="Where to keep it, or to go on; a new one in audits/ if unsaid."
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", metavar="", rich_help_panel=PLAYING, help="Print one JSON document only.")
]
Silent = Annotated[bool, typer.Option("--quiet", "-q", metavar="", rich_help_panel=PLAYING, help="Show no progress.")]
Compiled = Literal["auto", "true", "false"]


@dataclass(frozen=True, kw_only=True)
class How:
    """How an audit is played and shown.

    batch_given: whether somebody chose the batch; otherwise a case may make it smaller.
    """

    runs: int
    batch: int
    batch_given: bool
    workers: int
    confidence: float
    folder: Path | None
    json: bool
    shown: bool

    @staticmethod
    def of(options: Mapping[str, Any]) -> "How":
        """Check what was asked for, before anything is computed."""
        from tacit.audit.bounds.findings import LEAST_RUNS
        from tacit.audit.bounds.rates import check_terms

        runs, workers = options["runs"], options["workers"]
        check_terms(options["delta"], options["confidence"], positive=True)
        if runs < LEAST_RUNS:
            raise InvalidInput(f"runs is {runs}; fewer than {LEAST_RUNS} on a side prove nothing")
        for name in ("batch", "workers", "rounds"):
            if options[name] is not None and options[name] < 1:
                raise InvalidInput(f"{name} is {options[name]}; it must be at least 1")
        return How(
            runs=runs,
            batch=min(options["batch"] or _BATCH, runs),
            batch_given=options["batch"] is not None,
            workers=workers or os.cpu_count() or 1,
            confidence=options["confidence"],
            folder=options["folder"],
            json=options["json"],
            shown=not (options["json"] or options["quiet"]),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """An attack, the claim that it is to refute, the settings that decide its scores, and what to say of it.

    most: how many runs fit into memory side by side, where that is a question.
    """

    attack: "Attack"
    claim: "Claim"
    settings: dict[str, Any]
    told: dict[str, Any]
    most: int | None = None

    @property
    def name(self) -> str:
        """What a folder of it is called."""
        return f"{self.told['kind']}-{self.told['algorithm']}"


def see_through(ctx: typer.Context, make: Callable[[], list[Case]], how: How, *, several: bool = False) -> None:
    """Make the cases, play them, print what came out, and end with the exit code for that."""
    with Stopping(messages().print) as stopping:
        try:
            with working("preparing"):
                from tacit.cli.audit.output import print_audit, print_audits
                from tacit.cli.audit.playing import command, make_folder, play

                cases = make()
        except KeyboardInterrupt:
            messages().print("stopped before the first run")
            raise typer.Exit(stopping.exit_code) from None
    first = cases[0]
    if first.most is not None and not how.batch_given:
        how = replace(how, batch=min(how.batch, first.most))
    folder = make_folder(how.folder, f"{first.told['kind']}-all" if several else first.name)
    again = command(ctx, folder)
    if several:  # all of them hold at once
        each = replace(how, confidence=1 - (1 - how.confidence) / len(cases))
        documents = [play(case, each, folder / case.told["algorithm"], again) for case in cases]
        printed = {"audits": {each["attack"]["algorithm"]: each for each in documents}}
    else:
        documents = [play(first, how, folder, again)]
        printed = documents[0]
    if how.json:
        print_json(printed)
    elif several:
        print_audits(documents, folder, how.confidence)
    else:
        print_audit(documents[0], folder)
    if any(each["verdict"] == "broken" for each in documents):
        raise typer.Exit(BROKEN)
