"""What all audits share. An audit is a dataclass of options: it makes the cases to play, then saves and prints what was found."""

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from tacit.cli.audit import options as of
from tacit.cli.audit.folder import RESULT, SCORES, Document, make_folder, refuse_used, write_result
from tacit.cli.terminal.command import Options
from tacit.cli.terminal.output import FOUND_FAULT, messages, print_json, working
from tacit.errors import InvalidInput
from tacit.io.stopping import Stopping

if TYPE_CHECKING:
    from tacit.audit.attacks.collection import Attack
    from tacit.audit.bounds.findings import Claim

_BATCH = 250  # runs side by side, unless a batch is given


@dataclass(frozen=True, kw_only=True, eq=False)
class SingleCase:
    """A system to audit that `play` runs in one go, returning what was found.

    settings: those that follow from the options, beside the options themselves.
    """

    play: Callable[[], Document]
    settings: dict[str, Any]
    description: dict[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackCase:
    """An attack, the claim that it tries to refute, and how many runs fit into memory side by side, where that matters."""

    attack: "Attack"
    claim: "Claim"
    settings: dict[str, Any]
    description: dict[str, Any]
    most: int | None = None


@dataclass(frozen=True, kw_only=True)
class Audit(Options):
    """An audit; a subclass says how it is run and how the result is printed."""

    kind: ClassVar[str]
    hidden: ClassVar[bool] = False
    json: of.AsJson = False

    @abstractmethod
    def find(self) -> tuple[Document, Path | None]:
        """Run the audit; return what it found, and the folder with the result. If it is interrupted, it prints what is kept."""

    def show(self, document: Document, folder: Path | None) -> None:
        """Print what was found, as its page says it."""
        from tacit.cli.audit.printing import print_audit

        print_audit(document, folder)

    def run(self) -> None:
        """Run the audit, print the result, and end with the exit code for it."""
        with Stopping(messages().print) as stopping:
            try:
                document, folder = self.find()
            except KeyboardInterrupt:
                raise typer.Exit(stopping.exit_code) from None
        if self.json:
            print_json(document)
        else:
            self.show(document, folder)
        found = document.get("audits", {"": document}).values()
        if any(each.get("verdict") in ("broken", "not as stated", "fault found") for each in found):
            raise typer.Exit(FOUND_FAULT)


@contextmanager
def saying(words: str) -> Iterator[None]:
    """Print these words if the work is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        messages().print(words)
        raise


def check_bound(runs: int, delta: float, confidence: float) -> None:
    """Refuse numbers from which no lower bound on ε can follow."""
    from tacit.audit.bounds.findings import LEAST_RUNS
    from tacit.audit.bounds.rates import check_terms

    check_terms(delta, confidence, positive=True)
    if runs < LEAST_RUNS:
        raise InvalidInput(f"runs is {runs}; fewer than {LEAST_RUNS} on a side prove nothing")


@dataclass(frozen=True, kw_only=True)
class SingleAudit(Audit):
    """An audit that runs in one go: nothing is kept until it is complete."""

    folder: of.NewFolder = None

    @abstractmethod
    def case(self) -> SingleCase:
        """Return what to run. Every mistake in the options is found here."""

    def find(self) -> tuple[Document, Path]:
        """Run the audit and keep the result."""
        refuse_used(self.folder, RESULT, SCORES)
        with saying("stopped; nothing is kept of an incomplete audit"):
            with working("preparing"):
                from tacit import __version__

                case = self.case()
            with working("running"):
                found = case.play()
        folder = make_folder(self.folder, f"{self.kind}-{case.description['algorithm']}")
        settings = {"audit": self.kind, **self.recorded(), **case.settings, "tacit": __version__}
        attack = {"kind": self.kind, **case.description}
        return write_result(folder, {"attack": attack, **found, "settings": settings}), folder


@dataclass(frozen=True, kw_only=True)
class BatchedAudit(Audit):
    """An attack that is played many times, with and without a record, in batches that are kept as they finish."""

    epsilon: of.Epsilon = 1.0
    delta: of.Delta = 1e-2
    lot_size: of.LotSize = 10.0
    rounds: of.Rounds = 100
    runs: of.Runs = 1000
    batch: of.Batch = None
    workers: of.Workers = None
    confidence: of.Confidence = 0.95
    folder: of.KeptFolder = None
    quiet: of.Silent = False

    @abstractmethod
    def cases(self) -> list[AttackCase]:
        """Return the attacks to play, one for each algorithm. Every mistake in the options is found here."""

    @property
    def processes(self) -> int:
        """How many processes play."""
        return self.workers or os.cpu_count() or 1

    @property
    def runs_each(self) -> float:
        """How many runs a process plays."""
        return 2 * self.runs / self.processes

    def find(self) -> tuple[Document, Path]:
        """Play the cases. Batches that are finished in the given folder are not played again."""
        with saying("stopped before the first run"), working("preparing"):
            from tacit.cli.audit.batches import play_batches

            check_bound(self.runs, self.delta, self.confidence)
            options = {"audit": self.kind, **self.recorded()}
            cases = {case.description["algorithm"]: case for case in self.cases()}
        several = len(cases) > 1
        folder = make_folder(self.folder, f"{self.kind}-{'all' if several else next(iter(cases))}")
        resume = replace(self, folder=folder).command_line("tacit", "audit", self.kind)
        confidence = 1 - (1 - self.confidence) / len(cases) if several else self.confidence  # all hold at once
        found = {}
        for rule, case in cases.items():
            batch = min(self.batch or min(_BATCH, case.most or _BATCH), self.runs)
            case = replace(case, settings={**options, **case.settings, "runs": self.runs, "batch": batch})
            own = folder / rule if several else folder
            found[rule] = play_batches(self, case, own, confidence=confidence, resume=resume)
        return {"audits": found} if several else next(iter(found.values())), folder
