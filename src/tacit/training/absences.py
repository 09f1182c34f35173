"""Agents that are away for some rounds, or leave for good: who is away when, and what the others do in the meantime.

An agent that is away sends nothing, hears nothing, and keeps its state. Its neighbours take its weight themselves, so that every round
still preserves the average of all. Which agents are away in which round is public and fixed beforehand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from tacit.errors import GraphError, InvalidInput
from tacit.networks.topology import Links, Topology


@dataclass(frozen=True)
class Absence:
    """One agent that is away from round `first` on, until round `until` or for good.

    rekey: of one that is gone for good, the round from which the others share masks without it. Until then the masks that they share
        with it stay in their average. The noise must be planned for it: `Cancelling(lost=...)`.
    """

    agent: int
    first: int
    until: int | None = None
    rekey: int | None = None

    def __post_init__(self) -> None:
        for name in ("agent", "first", "until", "rekey"):
            value = getattr(self, name)
            optional = name in ("until", "rekey")
            if not (optional and value is None) and (type(value) is not int or value < 0):
                raise InvalidInput(f"{name} of an absence is {value!r}; it must be a whole number, at least 0")
        if self.until is not None and self.until <= self.first:
            raise InvalidInput(
                f"agent {self.agent} is away from round {self.first} until {self.until}; until must be later than first"
            )
        if self.rekey is not None and (self.until is not None or self.rekey < self.first):
            raise InvalidInput(
                f"keys are shared without agent {self.agent} from round {self.rekey} on, but it is away from round {self.first} "
                f"{'for good' if self.until is None else f'until {self.until}'}; only one that has left for good can be left out"
            )

    def covers(self, round: int) -> bool:
        """Whether the agent is away in a round."""
        return self.first <= round and (self.until is None or round < self.until)


class Absences:
    """All absences of a run."""

    def __init__(self, each: Sequence[Absence], agents: int) -> None:
        self._each = tuple(each)
        for absence in self._each:
            if not isinstance(absence, Absence):
                raise InvalidInput(f"absences holds {absence!r}; give Absence(agent, first, until)")
            if absence.agent >= agents:
                raise InvalidInput(
                    f"agent {absence.agent} is to be away, but agents are numbered from 0 to {agents - 1}"
                )

    def __bool__(self) -> bool:
        return bool(self._each)

    def away(self, round: int) -> frozenset[int]:
        """Return who is away in a round."""
        return frozenset(absence.agent for absence in self._each if absence.covers(round))

    def left_out(self, round: int) -> frozenset[int]:
        """Return the agents without whom masks are shared in a round."""
        return frozenset(each.agent for each in self._each if each.rekey is not None and each.rekey <= round)

    @property
    def lost(self) -> int:
        """How many agents masks are ever shared without."""
        return len({absence.agent for absence in self._each if absence.rekey is not None})


class WithAbsences:
    """A topology in which agents that are away neither speak nor hear."""

    period = None

    def __init__(self, inner: Topology, absences: Absences) -> None:
        self._inner, self._absences = inner, absences
        self.agents, self.window = inner.agents, inner.window
        self._made: dict[tuple[int, frozenset[int]], tuple[Links, Links]] = {}

    def at(self, round: int) -> tuple[Links, ...]:
        """Return the links of a round among the agents that are present."""
        away = self._absences.away(round)
        return tuple(self._among(links, away) for links in self._inner.at(round))

    def _among(self, links: Links, away: frozenset[int]) -> Links:
        if not away:
            return links
        if not links.symmetric:
            raise GraphError(
                "an agent is away on links whose weights differ between the two directions; what it would have given back is missing, so "
                "the average would drift. Give symmetric weights"
            )
        key = id(links), away
        if key not in self._made:
            there = np.ones(self.agents)
            there[list(away)] = 0
            keep = sparse.diags_array(there)
            weights = sparse.csr_array(keep @ links.weights @ keep)
            own = 1 - np.asarray(weights.sum(axis=1)).ravel()
            among = Links.of(
                sparse.csr_array(weights + sparse.diags_array(own)), sparse.csr_array(keep @ links.heard @ keep)
            )
            self._made[key] = links, among  # keeping the links keeps their id from being used again
        return self._made[key][1]


def keep_rows(before: Any, after: Any, kept: Tensor) -> Any:
    """Return a rule's state with the rows that are `kept` as they were before."""
    if isinstance(after, Tensor):
        if not isinstance(before, Tensor) or before.shape != after.shape or after.ndim == 0 or len(after) != len(kept):
            return after
        return torch.where(kept.reshape(-1, *[1] * (after.ndim - 1)), before, after)
    if isinstance(after, tuple):
        parts = [keep_rows(old, new, kept) for old, new in zip(before, after, strict=True)]
        return type(after)(*parts) if hasattr(after, "_fields") else tuple(parts)
    return after
