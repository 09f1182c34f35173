"""Attacks that are played many times, with and without a record, in batches that are kept as they finish."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from tacit.cli.audit import options as of
from tacit.cli.audit.folder import make_folder
from tacit.cli.terminal.command import NOT_RECORDED, Options
from tacit.cli.terminal.output import FOUND_FAULT, messages, print_json, working
from tacit.errors import InvalidInput
from tacit.io.stopping import Stopping

if TYPE_CHECKING:
    from tacit.audit.attacks.collection import Attack
    from tacit.audit.bounds.findings import Claim

_BATCH = 250  # runs side by side, unless a batch is given


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackCase:
    """An attack, the claim that it tries to refute, and a description.

    settings: those that decide the scores and follow from the options, beside the options themselves.
    most: how many runs fit into memory side by side, where that matters.
    """

    attack: "Attack"
    claim: "Claim"
    settings: dict[str, Any]
    description: dict[str, Any]
    most: int | None = None


@dataclass(frozen=True, kw_only=True)
class BatchedAudit(Options):
    """An attack that is played in batches. A subclass makes its cases."""

    kind: ClassVar[str]
    epsilon: of.Epsilon = 1.0
    delta: of.Delta = 1e-2
    lot_size: of.LotSize = 10.0
    rounds: of.Rounds = 100
    runs: of.Runs = 1000
    batch: of.Batch = None
    workers: of.Workers = None
    confidence: of.Confidence = 0.95
    folder: Annotated[
        Path | None,
        of.execution("FOLDER", "Where to keep it, or to resume; default: a new one in audits/."),
        NOT_RECORDED,
    ] = None
    json: of.AsJson = False
    quiet: of.Silent = False

    def cases(self) -> list[AttackCase]:
        """Return the attacks to play. Every mistake in the options is found here."""
        raise NotImplementedError

    @property
    def shown(self) -> bool:
        """Whether progress is shown."""
        return not (self.json or self.quiet)

    @property
    def processes(self) -> int:
        """How many processes play."""
        return self.workers or os.cpu_count() or 1

    @property
    def runs_each(self) -> float:
        """How many runs a process plays."""
        return 2 * self.runs / self.processes

    def run(self) -> None:
        """Play the cases, print the result, and end with the exit code for it."""
        with Stopping(messages().print) as stopping:
            try:
                with working("preparing"):
                    from tacit.cli.audit.batches import play_batches
                    from tacit.cli.audit.printing import print_audit, print_audits

                    self._check()
                    settings = {"audit": self.kind, **self.recorded()}
                    cases = [replace(case, settings=settings | case.settings) for case in self.cases()]
            except KeyboardInterrupt:
                messages().print("stopped before the first run")
                raise typer.Exit(stopping.exit_code) from None
        several = len(cases) > 1
        rules = [case.description["algorithm"] for case in cases]
        folder = make_folder(self.folder, f"{self.kind}-{'all' if several else rules[0]}")
        fits = _BATCH if cases[0].most is None else min(_BATCH, cases[0].most)
        batch = min(self.batch or fits, self.runs)
        confidence = 1 - (1 - self.confidence) / len(cases) if several else self.confidence  # all hold at once
        resume = replace(self, folder=folder).command_line("tacit", "audit", self.kind)
        found = []
        for case, rule in zip(cases, rules, strict=True):
            own = folder / rule if several else folder
            found.append(play_batches(self, case, own, batch=batch, confidence=confidence, resume=resume))
        if self.json:
            print_json({"audits": dict(zip(rules, found, strict=True))} if several else found[0])
        elif several:
            print_audits(found, folder, self.confidence)
        else:
            print_audit(found[0], folder)
        if any(each["verdict"] == "broken" for each in found):
            raise typer.Exit(FOUND_FAULT)

    def _check(self) -> None:
        from tacit.audit.bounds.findings import LEAST_RUNS
        from tacit.audit.bounds.rates import check_terms

        check_terms(self.delta, self.confidence, positive=True)
        if self.runs < LEAST_RUNS:
            raise InvalidInput(f"runs is {self.runs}; fewer than {LEAST_RUNS} on a side prove nothing")
