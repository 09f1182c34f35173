"""Poisson lots: every record is in the lot independently with the same fixed, public probability."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from tacit.data import AgentData
from tacit.data.inputs import mapped
from tacit.data.prepare import isolate
from tacit.errors import PrivacyError
from tacit.privacy.gradients.clipping import Lot
from tacit.privacy.groups import group_records, group_units
from tacit.privacy.plans import Plan
from tacit.privacy.randomness import Source, Stream
from tacit.privacy.units import AgentUnits, require_units

Rows = npt.NDArray[np.int64]
"""Records of a table: [records], or [units, most] where units are protected."""


def draw_lot(stream: Stream, records: int, rate: float) -> Rows:
    """Return the positions of the records in the lot: possibly none, possibly all.

    A record is in the lot when its 64-bit word is below ⌊q·2⁶⁴⌋, so its probability is q or up to 2⁻⁶⁴ less, never more.
    """
    if rate >= 1:
        return np.arange(records, dtype=np.int64)
    return np.flatnonzero(stream.words(records) < np.uint64(int(rate * 2.0**64)))


@dataclass(frozen=True)
class LotPiece:
    """Part of one drawn lot: the agents first to last (exclusive), and their records in it."""

    first: int
    last: int
    lot: Lot


class LotDrawer:
    """Draws the lots of stacked agents and hands them out in pieces that fit in memory.

    With several trials side by side, every trial's agents hold the same records. `held` is the number of records, or of units, per
    agent.

    With noise that has bands, records belong to groups, by `key`, which take turns: `draw` then needs the query's number.
    """

    def __init__(
        self, data: AgentData, plan: Plan, sources: Sequence[Source], device: torch.device, key: bytes = b""
    ) -> None:
        if plan.agents % data.agents or len(sources) != plan.agents:
            raise PrivacyError(
                f"{data.agents} agents' data does not fit a plan for {plan.agents} agents and {len(sources)} sources"
            )
        self._inputs = mapped(lambda table: table.to(device), data.dataset.train.inputs)
        self._targets = data.dataset.train.targets.to(device)
        self._prepare = isolate(data.dataset.prepare, self._inputs)
        self._indices = [part.numpy() for part in data.indices]
        self._unit = None if plan.privacy is None else plan.privacy.unit
        if self._unit is not None:
            numbers = require_units(data.dataset.train.units, self._unit, data.dataset.name)
            self._units = [AgentUnits(numbers, rows) for rows in self._indices]
        self.held = [len(each) for each in (self._indices if self._unit is None else self._units)]
        self._rates, self._sources, self._device = plan.turn_rates, sources, device
        self._groups = self._divide(len(plan.bands), key) if plan.bands else None
        self._turns = max(1, len(plan.bands))

    def _divide(self, groups: int, key: bytes) -> list[Rows]:
        """Return the group of every record, or unit, of each agent."""
        if self._unit is None:
            return [group_records(self._inputs, self._targets, rows, groups, key) for rows in self._indices]
        return [group_units(each.numbers, groups, key) for each in self._units]

    def skip(self, queries: int) -> None:
        """Continue after this many queries. A secret source has a new key after a restart, so any position will do."""
        for source in self._sources:
            source.position = queries

    def draw(self, query: int = 0) -> tuple[list[Stream], list[Rows]]:
        """Return every agent's stream for this query and the records in its lot.

        `query` is the number of queries charged before: it says which group's turn it is.
        """
        streams = [source.next() for source in self._sources]
        lots = []
        for agent, (stream, rate) in enumerate(zip(streams, self._rates, strict=True)):
            holder = agent % len(self._indices)
            chosen = draw_lot(stream, self.held[holder], rate)
            if self._groups is not None:
                chosen = chosen[self._groups[holder][chosen] == query % self._turns]
            if self._unit is None:
                lots.append(self._indices[holder][chosen])
            else:
                lots.append(self._units[holder].members(stream, chosen, self._unit.most))
        return streams, lots

    def pieces(self, lots: list[Rows], most: int, agent: int = 0) -> Iterator[LotPiece]:
        """Yield all records of the lots in pieces of at most `most`, cut between agents where possible.

        The size of a piece counts padding to the longest lot in it, since the engine computes on padded lots. `agent` is the number of
        the first lot's agent.
        """
        first = 0
        while first < len(lots):
            if len(lots[first]) > most:
                for start in range(0, len(lots[first]), most):
                    yield self._piece(agent + first, [lots[first][start : start + most]])
                first += 1
                continue
            last, longest = first, 0
            while last < len(lots) and (last + 1 - first) * max(longest, len(lots[last])) <= most:
                longest = max(longest, len(lots[last]))
                last += 1
            if longest:
                yield self._piece(agent + first, lots[first:last])
            first = last

    def _piece(self, first: int, parts: list[Rows]) -> LotPiece:
        rows = torch.from_numpy(np.concatenate(parts)).to(self._device)
        offsets = np.cumsum([0, *map(len, parts)])
        lot = Lot(self._inputs, self._targets, torch.from_numpy(offsets).to(self._device), rows, self._prepare)
        return LotPiece(first, first + len(parts), lot)
