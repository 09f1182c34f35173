"""Which of the paper's errata concern a run, in a sentence each. `docs/errata.md` lists them all under the same numbers."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tacit.report.recorded import RecordedRun

_PAPER = {
    1: "DiNNO’s inner step as printed ascends, drops its last iterate and counts an agent as its own neighbour.",
    2: "The code calibrates noise for one query per round, whatever the number of inner steps.",
    3: "On CIFAR-100 the code adds one draw of noise to five lots and accounts for one.",
    4: "The paper defines privacy by replacing a record and accounts for adding or removing one: about a factor of two in ε.",
    5: "The code mixes agents in place, one after another, so later ones read values that are already mixed.",
    6: "The paper’s weights are normalised by row only, which moves the agents’ average on irregular graphs.",
    8: "The code draws lots and noise from a published seed; whoever knows it can subtract the noise.",
    9: "The code sends losses on private records to a third party.",
    10: "The code samples at 1/⌈n/L⌉ and still divides by L.",
    11: "The code tunes and reports on the same records.",
    13: "The text gives 20,000 iterations on CIFAR-100, the settings 25,000.",
    15: "A caption calls 0.38 and 0.62 normalised connectivities; they are not normalised.",
    16: "The code divides a sum of batch means by the number of records.",
}
_ADAM = "The code restarts Adam in every round; with one inner step that is sign descent."
_MOMENTUM = "The code makes a new optimiser for DSGD at each step, so its momentum does nothing."


@dataclass(frozen=True)
class Erratum:
    """One row of `docs/errata.md`: what the paper or its code does, and what this run did."""

    number: int
    paper: str
    here: str


def list_errata(run: RecordedRun) -> tuple[Erratum, ...]:
    """Return the errata that concern this run, by number."""
    found = [*_of_privacy(run), *_of_setup(run), *_of_algorithm(run)]
    rows = [row if isinstance(row, Erratum) else Erratum(row[0], _PAPER[row[0]], row[1]) for row in found]
    return tuple(sorted(rows, key=lambda erratum: erratum.number))


def _of_algorithm(run: RecordedRun) -> Iterator[tuple[int, str] | Erratum]:
    name, plan = run.plan.algorithm.lower().removeprefix("dp-"), run.plan
    if name == "dinno":
        yield 1, "It descends, keeps the last iterate, and sums over true neighbours."
        if plan.private:
            yield 2, f"Every inner step is charged: {plan.queries:,} queries in {plan.rounds:,} rounds."
        yield Erratum(7, _ADAM, "It is restarted by default, as published, and keeps its state only on request.")
    if name in ("dsgd", "dsgt"):
        yield 5, "Every agent reads the values of the previous round."
    if name == "dsgd" and _has_momentum(run):
        yield Erratum(7, _MOMENTUM, "Momentum is carried from round to round.")


def _has_momentum(run: RecordedRun) -> bool:
    """Say whether the rule takes steps with momentum. The setting `momentum` does not show it: it always has a value."""
    rule = run.config.get("parts", {}).get("algorithm", {})  # of a run from Python
    return run.config.get("step") == "momentum" or "Momentum(" in str(rule)


def _of_privacy(run: RecordedRun) -> Iterator[tuple[int, str]]:
    if not run.plan.private:
        return
    if _is_cifar100(run):
        yield 3, "One lot, one draw of noise, one charge."
    yield 4, "Every ε on this page names its adjacency, and the ledger’s summary gives both."
    if not run.plan.release:
        diagnosed = bool(run.config.get("private_diagnostics"))
        if diagnosed:
            yield 9, "This run collected private diagnostics, so it is marked as not a release."
        if not diagnosed or run.config.get("source", "secret") != "secret":
            yield 8, "The lots and noise of this run can be reproduced, too, so it is marked as not a release."


def _of_setup(run: RecordedRun) -> Iterator[tuple[int, str]]:
    plan = run.plan
    if run.config.get("mixing") == "uniform" and plan.edges:
        drifts = "This run uses these weights on an irregular graph: its average drifts."
        regular = len({degree for _, degree in run.graph.degree}) == 1
        yield 6, "This graph is regular, so these weights do no harm." if regular else drifts
    uneven = [(size, lot) for size, lot in zip(plan.sizes, plan.lot_sizes, strict=True) if size and lot and size % lot]
    if uneven:
        size, lot = uneven[0]
        theirs, ours = f"{1 / math.ceil(size / lot):.4g}", f"{min(lot / size, 1):.4g}"
        yield 10, f"q is L/n, here {ours} and not {theirs}, for {size:,} records and lots of {lot:g}."
    if run.scores is not None:
        yield 11, "Scores on this page are on the validation half; the test half is kept separate."
        if run.scores.measure == "loss":
            yield 16, "Losses are means over records."
    if _is_cifar100(run):
        yield 13, f"This run was planned for {plan.rounds:,} rounds."
    if plan.edges:
        yield 15, "Both are given with the graph, under different names."


def _is_cifar100(run: RecordedRun) -> bool:
    return run.plan.dataset.lower().replace("-", "") == "cifar100"
