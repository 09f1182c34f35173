"""How far one more record moves the noise-free sums: its own agent's by C at most, every other agent's not at all.

Lots of made-up records go through the engine that a session of these settings chose, with and without one more record: hostile ones,
and ones found by gradient ascent. Whatever the record and its position, no other record's norm may change by a single bit.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tacit.algorithms import Local
from tacit.audit.detectors.made_up import SCALES, ascend, hostile_records, ordinary_inputs, ordinary_targets
from tacit.audit.detectors.report import CheckFinding, CheckOutcome
from tacit.data import AgentData, Records
from tacit.data.inputs import Inputs, kinds, mapped, parts
from tacit.data.prepare import isolate
from tacit.errors import TacitError
from tacit.privacy import Lot, Privacy
from tacit.privacy.gradients.clipping import Clipped
from tacit.privacy.oracle import PrivateOracle, gradient_of
from tacit.ties import first_largest
from tacit.training.session import Session

_MOST_AGENTS, _MOST_RECORDS = 3, 80
_FOUND = 3  # records found by ascent
_POSITIONS = ("front", "middle", "end")
_EQUAL = 1e-5  # to gradients in float32


@dataclass(frozen=True, eq=False)
class _OddRecord:
    about: str
    input: Inputs
    target: Tensor


@dataclass
class _Effects:
    """The effects of all trials so far, each with the record that had it."""

    trials: int = 0
    own: list[tuple[float, str]] = field(default_factory=list)
    others: list[tuple[float, str]] = field(default_factory=list)
    bits: list[tuple[float, str]] = field(default_factory=list)
    refused: list[_OddRecord] = field(default_factory=list)
    errors: set[str] = field(default_factory=set)


def check_influence(session: Session) -> list[CheckFinding]:
    """Measure on the engine and model of a session that has made-up records."""
    generator = torch.Generator().manual_seed(0)
    data, effects = session.training.data.dataset, _Effects()
    hostile = [_OddRecord(*each) for each in hostile_records(data, generator)]
    raw = _make_lots(session, data.train, hostile, prepared=False)
    for thetas in _points(session, generator):
        _try_all(raw, thetas, hostile, effects)
        found = list(_search(session, thetas[0], generator))
        if found:
            inputs = data.prepare(ordinary_inputs(data, _MOST_RECORDS * 2, generator))
            table = Records(inputs, ordinary_targets(data, _MOST_RECORDS * 2, generator))
            _try_all(_make_lots(session, table, found, prepared=True), thetas, found, effects)
    return [*_findings(effects, raw.protected, raw.room), _check_odd_records(session, effects)]


class _LotPair:
    """The lots of some agents, with and without one more record. Every fourth record in them is hostile."""

    def __init__(self, session: Session, table: Records, hostile: list[_OddRecord], *, prepared: bool) -> None:
        plan, device = session.plan, torch.device(session.training.device)
        self._engine, self._oracle = session.chosen.engine, session.real_oracle
        self._rounded = plan.rounding is not None
        self.room = 1.0 if plan.rounding is None else plan.rounding.bound(1.0)
        self.agents = min(plan.agents, _MOST_AGENTS)
        counts = [max(2, min(round(lot), _MOST_RECORDS)) for lot in plan.lot_sizes[: self.agents]]
        counts[-1] += 5 * (self.agents > 1)  # one lot is longer than the others
        ordinary = min(len(table), sum(counts))
        computed = [each for each in hostile if _is_finite(each)] or hostile
        first = table.take(torch.arange(ordinary)).inputs
        self._inputs: Inputs = mapped(_concatenate, first, *(each.input for each in computed))
        self._inputs = mapped(lambda column: column.to(device), self._inputs)
        self._targets = torch.cat([table.targets[:ordinary], *(each.target for each in computed)]).to(device)
        rows = torch.arange(sum(counts)) % ordinary
        if computed:
            odd = torch.arange(0, len(rows), 4)
            rows[odd] = ordinary + odd // 4 % len(computed)
        self._rows, self._offsets = rows.to(device), torch.tensor([0, *counts]).cumsum(0).to(device)
        self._prepare = None if prepared else isolate(session.training.data.dataset.prepare, self._inputs)
        self.clips = torch.tensor(plan.clips[: self.agents], dtype=torch.float64, device=device)
        self.counts = counts
        self._unit = None if plan.privacy is None else plan.privacy.unit
        self.protected = "record" if self._unit is None else self._unit.name

    def sums(self, thetas: Float[Tensor, "agents params"], lot: Lot) -> Clipped:
        """Return the noise-free sums of a lot, as the session's oracle computes them."""
        if not self._rounded:
            return self._engine.clipped_sums(thetas, lot, self.clips)
        assert isinstance(self._oracle, PrivateOracle)
        number = torch.zeros(len(thetas), 1, dtype=torch.int64, device=thetas.device)  # of the query
        public, width = (thetas, number), thetas.shape[1]
        # Every record is rounded by itself, which an engine does not do.
        return self._oracle._queries.runner(gradient_of, public, width).clipped(public, lot, self.clips, width)

    def without(self) -> Lot:
        """Return the lots as they are."""
        return Lot(self._inputs, self._targets, self._offsets, self._in_units(self._rows), self._prepare)

    def with_one(self, each: _OddRecord, agent: int, index: int) -> Lot:
        """Return the lots with one more record of an agent, at this index."""
        inputs = mapped(lambda column, odd: torch.cat([column, odd.to(column)]), self._inputs, each.input)
        targets = torch.cat([self._targets, each.target.to(self._targets)])
        before, added = self._in_units(self._rows), self._rows.new_tensor([len(self._targets)])
        if self._unit is not None:
            added = added.expand(1, self._unit.most)  # as many records as a unit can have
        rows = torch.cat([before[:index], added, before[index:]])
        offsets = self._offsets + (torch.arange(self.agents + 1, device=rows.device) > agent)
        return Lot(inputs, targets, offsets, rows, self._prepare)

    def index(self, agent: int, position: int) -> int:
        """Return the index of the front, the middle or the end of an agent's part of the lot."""
        return int(self._offsets[agent]) + (0, self.counts[agent] // 2, self.counts[agent])[position]

    def _in_units(self, rows: Tensor) -> Tensor:
        """Return the rows or, where units are protected, units of every size that begin with these rows."""
        if self._unit is None:
            return rows
        members = torch.stack([rows.roll(number) for number in range(self._unit.most)], dim=1)
        taken = 1 + torch.arange(len(rows), device=rows.device) % self._unit.most
        return torch.where(torch.arange(self._unit.most, device=rows.device) < taken[:, None], members, -1)


def _make_lots(session: Session, table: Records, hostile: list[_OddRecord], *, prepared: bool) -> _LotPair:
    """Return lots with hostile records among the others, or without where the model cannot compute them."""
    lots = _LotPair(session, table, hostile, prepared=prepared)
    try:
        with torch.no_grad():
            lots.sums(session.state.theta[: lots.agents], lots.without())
    except Exception:  # whatever a user's model raises on such a record
        return _LotPair(session, table, [], prepared=prepared)
    return lots


def _try_all(
    lots: _LotPair, thetas: Float[Tensor, "agents params"], records: list[_OddRecord], effects: _Effects
) -> None:
    with torch.no_grad():
        before = lots.sums(thetas, lots.without())
        for number, each in enumerate(records):
            agent, position = number // 3 % lots.agents, number % 3
            index = lots.index(agent, position)
            try:
                after = lots.sums(thetas, lots.with_one(each, agent, index))
            except Exception as error:  # whatever a user's model raises on such a record
                effects.refused.append(each)
                effects.errors.add(type(error).__name__)
                continue
            effects.trials += 1
            where = f"{each.about}, {_POSITIONS[position]} of agent {agent}'s lot"
            moved = torch.nan_to_num((after.sums - before.sums).norm(dim=1) / lots.clips, nan=torch.inf)
            effects.own.append((float(moved[agent]), where))
            moved[agent] = 0.0
            effects.others.append((float(moved.max()), where))
            rest = torch.cat([after.norms[:index], after.norms[index + 1 :]])
            effects.bits.append((int((_bits(rest) != _bits(before.norms)).sum()), where))


def _search(session: Session, theta: Float[Tensor, " params"], generator: torch.Generator) -> Iterator[_OddRecord]:
    """Yield records found by gradient ascent, in several lengths; none where inputs are several, or whole numbers."""
    data = session.training.data.dataset
    inputs = data.prepare(ordinary_inputs(data, _FOUND, generator))
    targets = ordinary_targets(data, _FOUND, generator).to(theta.device)
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        return
    inputs = inputs.to(theta.device)
    try:
        found = ascend(session.model, theta, inputs, targets)
    except Exception:  # a model whose gradient has no gradient
        found = inputs
    for number in range(_FOUND):
        one = slice(number, number + 1)
        for scale in SCALES:
            yield _OddRecord(f"found by ascent, times {scale:g}", scale * found[one].to(inputs.dtype), targets[one])


def _points(session: Session, generator: torch.Generator) -> Iterator[Float[Tensor, "agents params"]]:
    """Yield the points where agents start, and another point for each."""
    theta = session.state.theta[: min(session.plan.agents, _MOST_AGENTS)]
    width = max(float(theta.abs().mean()), 0.02)
    yield theta
    yield theta + width * torch.randn(theta.shape, generator=generator).to(theta)


def _largest(effects: list[tuple[float, str]]) -> tuple[float, str]:
    """Return the largest effect, and the first record that had it, but for rounding. A sum that is not a number has the largest effect of all."""
    sizes = [math.inf if math.isnan(size) else size for size, _ in effects]
    where = effects[first_largest(sizes, relative=_EQUAL)][1] if any(sizes) else "none"
    return max(sizes, default=0.0), where


def _findings(effects: _Effects, protected: str, room: float) -> list[CheckFinding]:
    def outcome(bad: bool) -> CheckOutcome:
        return "inconclusive" if not effects.trials else "fail" if bad else "pass"

    def by(effect: tuple[float, str]) -> str:
        return f" ({effect[1]})" if effect[0] else ""

    largest, others, bits = _largest(effects.own), _largest(effects.others), _largest(effects.bits)
    own = f"one {protected} moves it by at most {largest[0]:.6g} C ({largest[1]}; {effects.trials} trials)"
    moved = f"their sums move by {others[0]:.3g} C{by(others)}"
    changed = f"{bits[0]:.0f} norms of other {protected}s change{by(bits)}"
    return [
        CheckFinding("influence", "own sum", outcome(not largest[0] <= room), own, f"{room:g} C"),
        CheckFinding("influence", "other agents", outcome(others[0] > 0), moved, "exactly 0"),
        CheckFinding("bits", "norms", outcome(bits[0] > 0), changed, "no bit changes"),
    ]


def _check_odd_records(session: Session, effects: _Effects) -> CheckFinding:
    """Find out whether whoever asks the oracle can notice a record that the engine cannot compute."""
    raised = [each.about for each in effects.refused if _raises(session, each)]
    measured = (
        f"{len(effects.refused)} could not be computed; none can be noticed" if effects.refused else "all are computed"
    )
    if raised:
        measured = f"the oracle raises an error ({', '.join(sorted(effects.errors))}): {raised[0]}"
    outcome: CheckOutcome = "fail" if raised else "pass"
    return CheckFinding("influence", "odd records", outcome, measured, "counts as zero, or is refused on loading")


def _raises(session: Session, each: _OddRecord) -> bool:
    """Ask the real oracle about a lot with this record in it."""
    training, data = session.training, session.training.data.dataset
    if kinds(each.input) != kinds(data.train.inputs):
        return False  # made after `prepare`, so it could not be loaded
    few = data.train.take(torch.arange(3))
    train = Records(mapped(_concatenate, each.input, few.inputs), torch.cat([each.target, few.targets]))
    held = AgentData(
        dataset=replace(data, train=train), indices=(torch.arange(4),), owners=("odd",), partition="odd records"
    )
    privacy = Privacy(noise_multiplier=1.0, delta=1e-5, clip=session.plan.clips[0], lot_size=4)
    if session.plan.rounding is not None:
        privacy = replace(privacy, noise=session.plan.rounding, accountant="rdp")
    alone: dict[str, Any] = {"algorithm": Local(), "graph": None, "rounds": 1, "lr": 0.1, "sizes": None}
    try:
        one = Session(replace(training, data=held, privacy=privacy, **alone))
    except TacitError:
        return False  # refused on loading, before anything is asked
    with one:
        try:
            one.real_oracle.gradient(one.state.theta)
        except Exception:
            return True
    return False


def _bits(norms: Float[Tensor, " records"]) -> Int[Tensor, " records"]:
    return norms.double().view(torch.int64)


def _is_finite(each: _OddRecord) -> bool:
    return all(not column.is_floating_point() or bool(column.isfinite().all()) for column in parts(each.input))


def _concatenate(*columns: Tensor) -> Tensor:
    return torch.cat(columns)
