"""Audits that are played in one go: nothing is kept of them before they are whole."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.audit.shared import BROKEN, PLAYING
from tacit.cli.terminal.output import check_output, messages, print_json, working
from tacit.errors import InvalidInput
from tacit.io.stopping import Stopping

Document = dict[str, Any]

NewFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", rich_help_panel=PLAYING, help="Where to keep it; a new one in audits/ unless given."
    ),
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Single:
    """What plays such an audit and returns what was found, its settings, and what to say of it."""

    play: Callable[[], Document]
    settings: Document
    told: Document


def see_once(
    make: Callable[[], Single], show: Callable[[], Callable[[Document, Path], None]], *, folder: Path | None, json: bool
) -> None:
    """Make the audit, play it, keep and print what came out, and end with the exit code for that.

    show: returns what prints it; that is imported when it is needed.
    """
    _refuse_used(folder)
    with Stopping(messages().print) as stopping:
        try:
            with working("preparing"):
                from tacit import __version__
                from tacit.cli.audit.playing import make_folder, write

                case = make()
            with working("playing"):
                found = case.play()
        except KeyboardInterrupt:
            messages().print("stopped; nothing is kept of an audit that is not whole")
            raise typer.Exit(stopping.exit_code) from None
    made = make_folder(folder, f"{case.told['kind']}-{case.told['algorithm']}")
    settings = {**case.settings, "tacit": __version__}
    document = write(made, {"attack": case.told, **found, "settings": settings})
    if json:
        print_json(document)
    else:
        show()(document, made)
    if document["verdict"] in ("broken", "not as stated", "fault found"):
        raise typer.Exit(BROKEN)


def _refuse_used(folder: Path | None) -> None:
    """Refuse a folder that another audit has, before anything is computed."""
    if folder is None:
        return
    check_output(folder / "audit.json")
    if any((folder / name).exists() for name in ("audit.json", "scores.jsonl")):
        raise InvalidInput(f"{folder} holds another audit; choose another folder")
