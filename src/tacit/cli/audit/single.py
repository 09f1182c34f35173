"""Audits that run in one go: nothing of them is kept until they are complete."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import typer

from tacit.cli.audit.folder import RESULT, SCORES, Document, make_folder, refuse_used, write_result
from tacit.cli.audit.options import AsJson, NewFolder
from tacit.cli.terminal.command import Options
from tacit.cli.terminal.output import FOUND_FAULT, messages, print_json, working
from tacit.io.stopping import Stopping


@dataclass(frozen=True, kw_only=True, eq=False)
class SingleCase:
    """A function that runs such an audit and returns what was found, the settings, and a description."""

    play: Callable[[], Document]
    settings: Document
    description: Document


@dataclass(frozen=True, kw_only=True)
class SingleAudit(Options):
    """An audit that runs in one go. A subclass makes the case and prints what was found."""

    kind: ClassVar[str]
    folder: NewFolder = None
    json: AsJson = False

    def case(self) -> SingleCase:
        """Return what to run. Every mistake in the options is found here."""
        raise NotImplementedError

    def show(self, document: Document, folder: Path) -> None:
        """Print what was found."""
        raise NotImplementedError

    def run(self) -> None:
        """Run the audit, keep and print the result, and end with the exit code for it."""
        refuse_used(self.folder, RESULT, SCORES)
        with Stopping(messages().print) as stopping:
            try:
                with working("preparing"):
                    from tacit import __version__

                    case = self.case()
                with working("running"):
                    found = case.play()
            except KeyboardInterrupt:
                messages().print("stopped; nothing is kept of an incomplete audit")
                raise typer.Exit(stopping.exit_code) from None
        folder = make_folder(self.folder, f"{self.kind}-{case.description['algorithm']}")
        settings = {"audit": self.kind, **self.recorded(), **case.settings, "tacit": __version__}
        attack = {"kind": self.kind, **case.description}
        document = write_result(folder, {"attack": attack, **found, "settings": settings})
        if self.json:
            print_json(document)
        else:
            self.show(document, folder)
        if document["verdict"] in ("broken", "not as stated", "fault found"):
            raise typer.Exit(FOUND_FAULT)
