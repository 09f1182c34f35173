"""How far one record moves the noise-free sums: its own agent's by C at most, every other's by nothing.

Lots of made-up records go through the engine that a session of these settings chose, with and without one record more: hostile
ones, and such as were searched for. Whatever the record and its place, no other record's norm may change by a bit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tacit.algorithms import Local
from tacit.audit.detectors.made_up import hostile_records, ordinary_inputs, ordinary_targets
from tacit.audit.detectors.report import Finding, Outcome
from tacit.audit.detectors.search import SCALES, ascend
from tacit.data import AgentData, DataSet, Records
from tacit.data.inputs import Inputs, kinds, mapped, parts
from tacit.data.prepare import isolate
from tacit.errors import TacitError
from tacit.privacy import Lot, Privacy
from tacit.training.session import Session

_MOST_AGENTS, _MOST_RECORDS = 3, 80
_CLIMBERS = 3
_BOUND = 1.0


@dataclass(frozen=True, eq=False)
class _Candidate:
    words: str
    input: Inputs
    target: Tensor


@dataclass
class _Seen:
    """The worst of all trials so far."""

    trials: int = 0
    moved: float = 0.0
    record: str = "none"
    others: float = 0.0
    others_by: str = ""
    bits: int = 0
    bits_by: str = ""
    refused: list[_Candidate] = field(default_factory=list)
    errors: set[str] = field(default_factory=set)


def influence_findings(session: Session, seed: int = 0) -> list[Finding]:
    """Measure on the engine and model of a session that has made-up records."""
    generator = torch.Generator().manual_seed(seed)
    data, seen = session.training.data.dataset, _Seen()
    hostile = [_Candidate(*each) for each in hostile_records(data, generator)]
    raw = _lots(session, data.train, hostile, prepared=False)
    for thetas in _places(session, generator):
        _try_all(raw, thetas, hostile, seen)
        found = list(_searched(session, thetas[0], generator))
        if found:
            inputs = data.prepare(ordinary_inputs(data, _MOST_RECORDS * 2, generator))
            table = Records(inputs, ordinary_targets(data, _MOST_RECORDS * 2, generator))
            _try_all(_lots(session, table, found, prepared=True), thetas, found, seen)
    return [*_findings(seen, raw.protected), _odd_finding(session, seen)]


def _lots(session: Session, table: Records, hostile: list[_Candidate], *, prepared: bool) -> "_Lots":
    """Return lots with hostile records among the others, or without where the model cannot compute them."""
    lots = _Lots(session, table, hostile, prepared=prepared)
    try:
        with torch.no_grad():
            lots.engine.clipped_sums(session.state.theta[: lots.agents], lots.without(), lots.clips)
    except Exception:  # whatever a user's model raises on such a record
        return _Lots(session, table, [], prepared=prepared)
    return lots


class _Lots:
    """The lots of some agents, with and without one record more. Every fourth record in them is hostile."""

    def __init__(self, session: Session, table: Records, hostile: list[_Candidate], *, prepared: bool) -> None:
        plan, device = session.plan, torch.device(session.training.device)
        self.engine = session.chosen.engine
        self.agents = min(plan.agents, _MOST_AGENTS)
        counts = [max(2, min(round(lot), _MOST_RECORDS)) for lot in plan.lot_sizes[: self.agents]]
        counts[-1] += 5 * (self.agents > 1)  # one lot is longer than the others
        ordinary = min(len(table), sum(counts))
        computed = [each for each in hostile if _is_finite(each)] or hostile
        first = table.take(torch.arange(ordinary)).inputs
        self._inputs: Inputs = mapped(_below, first, *(each.input for each in computed))
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
        promise = session.plan.privacy
        self._unit = None if promise is None else promise.unit
        self.protected = "record" if self._unit is None else self._unit.name

    def without(self) -> Lot:
        return Lot(self._inputs, self._targets, self._offsets, self._in_units(self._rows), self._prepare)

    def _in_units(self, rows: Tensor) -> Tensor:
        """Return the rows or, where units are protected, units that begin with these rows and are of every size."""
        if self._unit is None:
            return rows
        members = torch.stack([rows.roll(number) for number in range(self._unit.most)], dim=1)
        taken = 1 + torch.arange(len(rows), device=rows.device) % self._unit.most
        return torch.where(torch.arange(self._unit.most, device=rows.device) < taken[:, None], members, -1)

    def place(self, agent: int, number: int) -> int:
        """Return the front, the middle or the end of an agent's part of the lot."""
        first = int(self._offsets[agent])
        return first + (0, self.counts[agent] // 2, self.counts[agent])[number % 3]

    def with_one(self, each: _Candidate, agent: int, place: int) -> Lot:
        inputs = mapped(lambda column, odd: torch.cat([column, odd.to(column)]), self._inputs, each.input)
        targets = torch.cat([self._targets, each.target.to(self._targets)])
        before, added = self._in_units(self._rows), self._rows.new_tensor([len(self._targets)])
        if self._unit is not None:
            added = added.expand(1, self._unit.most)  # as many of them as a unit can have
        rows = torch.cat([before[:place], added, before[place:]])
        offsets = self._offsets + (torch.arange(self.agents + 1, device=rows.device) > agent)
        return Lot(inputs, targets, offsets, rows, self._prepare)


def _try_all(lots: _Lots, thetas: Float[Tensor, "agents params"], candidates: list[_Candidate], seen: _Seen) -> None:
    with torch.no_grad():
        before = lots.engine.clipped_sums(thetas, lots.without(), lots.clips)
        for number, each in enumerate(candidates):
            agent = number // 3 % lots.agents
            place = lots.place(agent, number)
            try:
                after = lots.engine.clipped_sums(thetas, lots.with_one(each, agent, place), lots.clips)
            except Exception as error:  # whatever a user's model raises on such a record
                seen.refused.append(each)
                seen.errors.add(type(error).__name__)
                continue
            where = f"{each.words}, {('front', 'middle', 'end')[number % 3]} of agent {agent}'s lot"
            _note(seen, before.sums, after.sums, lots.clips, agent, where)
            rest = torch.cat([after.norms[:place], after.norms[place + 1 :]])
            changed = int((_bits(rest) != _bits(before.norms)).sum())
            if changed > seen.bits:
                seen.bits, seen.bits_by = changed, where


def _note(seen: _Seen, before: Tensor, after: Tensor, clips: Tensor, agent: int, where: str) -> None:
    moved = torch.nan_to_num((after - before).norm(dim=1) / clips, nan=torch.inf)
    seen.trials += 1
    if float(moved[agent]) > seen.moved:
        seen.moved, seen.record = float(moved[agent]), where
    moved[agent] = 0.0
    if float(moved.max()) > seen.others:
        seen.others, seen.others_by = float(moved.max()), where


def _searched(session: Session, theta: Float[Tensor, " params"], generator: torch.Generator) -> Iterator[_Candidate]:
    """Yield what gradient ascent finds, in several lengths; nothing where inputs are several, or whole numbers to the model."""
    data = session.training.data.dataset
    inputs = data.prepare(ordinary_inputs(data, _CLIMBERS, generator))
    targets = ordinary_targets(data, _CLIMBERS, generator).to(theta.device)
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        return
    inputs = inputs.to(theta.device)
    try:
        found = ascend(session.model, theta, inputs, targets)
    except Exception:  # a model whose gradient has no gradient
        found = inputs
    for number in range(_CLIMBERS):
        for scale in SCALES:
            words = f"searched for, times {scale:g}"
            yield _Candidate(words, scale * found[number : number + 1].to(inputs.dtype), targets[number : number + 1])


def _places(session: Session, generator: torch.Generator) -> Iterator[Float[Tensor, "agents params"]]:
    """Yield where agents start, and somewhere else, for each another place."""
    agents = min(session.plan.agents, _MOST_AGENTS)
    theta = session.state.theta[:agents]
    width = max(float(theta.abs().mean()), 0.02)
    yield theta
    yield theta + width * torch.randn(theta.shape, generator=generator).to(theta)


def _findings(seen: _Seen, protected: str) -> list[Finding]:
    return [
        Finding(
            part="influence",
            name="own sum",
            outcome="pass" if seen.trials and seen.moved <= _BOUND else "fail" if seen.trials else "inconclusive",
            measured=f"one {protected} moves it by {seen.moved:.6g} C at most ({seen.record}; {seen.trials} trials)",
            bound="1 C",
        ),
        Finding(
            part="influence",
            name="other agents",
            outcome=_exactly(seen, seen.others),
            measured=f"their sums move by {seen.others:.3g} C" + (f" ({seen.others_by})" if seen.others else ""),
            bound="exactly 0",
        ),
        Finding(
            part="bits",
            name="norms",
            outcome=_exactly(seen, seen.bits),
            measured=f"{seen.bits} norms of other {protected}s change" + (f" ({seen.bits_by})" if seen.bits else ""),
            bound="none changes by a bit",
        ),
    ]


def _exactly(seen: _Seen, value: float) -> Outcome:
    return "inconclusive" if not seen.trials else "fail" if value else "pass"


def _odd_finding(session: Session, seen: _Seen) -> Finding:
    """Say whether a record that the engine cannot compute can be noticed by whoever asks the oracle."""
    raised = [each.words for each in seen.refused if _raises(session, each)]
    bound = "counts as zero, or is refused when data is loaded"
    if raised:
        words = f"an error leaves the oracle ({', '.join(sorted(seen.errors))}): {raised[0]}"
        return Finding(part="influence", name="odd records", outcome="fail", measured=words, bound=bound)
    words = f"{len(seen.refused)} could not be computed, and none was noticed" if seen.refused else "all are computed"
    return Finding(part="influence", name="odd records", outcome="pass", measured=words, bound=bound)


def _raises(session: Session, each: _Candidate) -> bool:
    """Ask the real oracle about a lot with this record in it."""
    training = session.training
    data = training.data.dataset
    if kinds(each.input) != kinds(data.train.inputs):
        return False  # made after `prepare`, so no record that could be loaded
    few = data.train.take(torch.arange(3))
    train = Records(mapped(_below, each.input, few.inputs), torch.cat([each.target, few.targets]))
    table: DataSet = replace(data, train=train)
    held = AgentData(dataset=table, indices=(torch.arange(4),), owners=("odd",), partition="odd records")
    privacy = Privacy(noise_multiplier=1.0, delta=1e-5, clip=session.plan.clips[0], lot_size=4)
    try:
        one = Session(
            replace(training, algorithm=Local(), graph=None, data=held, privacy=privacy, rounds=1, lr=0.1, sizes=None)
        )
    except TacitError:
        return False  # refused when it is loaded, before anything is asked
    try:
        one.real_oracle.gradient(one.state.theta)
    except Exception:
        return True
    finally:
        one.close()
    return False


def _bits(norms: Float[Tensor, " records"]) -> Int[Tensor, " records"]:
    return norms.double().view(torch.int64)


def _is_finite(each: _Candidate) -> bool:
    return all(not column.is_floating_point() or bool(column.isfinite().all()) for column in parts(each.input))


def _below(*columns: Tensor) -> Tensor:
    return torch.cat(columns)
