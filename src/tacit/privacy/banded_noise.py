"""Noise with bands: answers y = S + C⁻¹Z, made from Gaussian answers to the queries CS and from nothing else that is secret.

`GridNoise` answers Σ c_k S_{t-k} with fresh noise, rounded as it rounds any sum. The rest is arithmetic on its answers a:
y_t = (a_t - Σ_{k≥1} c_k y_{t-k})/c_0. So what leaves is as private as what `GridNoise` gives, and its grid hides the low bits of both.

The sums of the last b - 1 queries are as secret as records. They are in memory only and never written: with the answers, which are
public, they would reveal noise. A process that lost them starts its bands again, with Σ c_k S_{t-k} over the queries that it remembers;
see `bands` for why the same event covers that.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from tacit.privacy.noise import GridNoise
from tacit.privacy.randomness import Opener, Stream


class _Past(NamedTuple):
    """The sums and answers of some agents in an earlier query."""

    sums: Float64[Tensor, "rows width"]
    answers: Float64[Tensor, "rows width"]


_Part = tuple[int, int, int]
"""The first agent, the last (exclusive), and the width of a query."""


class BandedNoise:
    """Adds noise that is correlated over queries. `column` is the first column of C."""

    def __init__(self, noise: GridNoise, column: Sequence[float]) -> None:
        self._noise, self._column = noise, tuple(column)
        # By the query's number: what was computed in a query that failed, or in a query of another width, is never taken for another.
        self._past: dict[int, dict[_Part, _Past]] = {}
        self._query = 0

    def begin(self, query: int) -> None:
        """Start a query, and erase what is too old to be needed."""
        self._query = query
        for number in [each for each in self._past if not 0 < query - each < len(self._column)]:
            _erase(self._past.pop(number))
        self._past[query] = {}

    @torch.no_grad()
    def release(
        self,
        sums: Float64[Tensor, "rows width"],
        streams: Sequence[Stream],
        masks: Sequence[Opener],
        agents: slice,
        out: Float[Tensor, "rows width"],
    ) -> None:
        """Write the answers of these agents to `out`. `sums` is overwritten."""
        part = (agents.start, agents.stop, sums.shape[1])
        before = [
            (weight, parts[part])
            for lag, weight in enumerate(self._column[1:], 1)
            if part in (parts := self._past.get(self._query - lag, {}))
        ]
        own = sums.clone()
        sums.mul_(self._column[0])
        for weight, past in before:
            sums.add_(past.sums, alpha=weight)
        answers = torch.empty_like(sums)
        self._noise.release(sums, streams, masks, agents, answers)
        for weight, past in before:
            answers.sub_(past.answers, alpha=weight)
        answers.div_(self._column[0])
        self._past[self._query][part] = _Past(own, answers)
        out.copy_(answers)
        out.add_(0.0)  # -0 becomes 0

    def forget(self) -> None:
        """Erase the sums of earlier queries: the next query starts the bands again."""
        for parts in self._past.values():
            _erase(parts)
        self._past.clear()


def _erase(parts: dict[_Part, _Past]) -> None:
    for past in parts.values():
        past.sums.zero_()
        past.answers.zero_()
