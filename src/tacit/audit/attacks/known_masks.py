"""The masks that a coalition knows, since it shares them, recorded as a run draws them."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.privacy import Sources
from tacit.privacy.noise import MASK_BLOCK
from tacit.privacy.noise_kinds import Masks
from tacit.privacy.normals import box_muller
from tacit.privacy.randomness import ChaChaStream, MaskSource, Opener, Source, Stream

Pair = tuple[int, int]


def known_pairs(masks: Masks, observers: Collection[int]) -> frozenset[Pair]:
    """Return the pairs whose masks the observers know: those with an observer among them."""
    return frozenset(pair for pair in masks.keys.all_pairs if set(pair) & set(observers))


def hidden_covariance(masks: Masks, known: Collection[Pair]) -> Float[Tensor, "agents agents"]:
    """Return the covariance of the agents' noise without the known masks, diag(a²) + b²·Lap, for each coordinate of an answer."""
    total = torch.diag(torch.tensor(masks.own, dtype=torch.float64).square())
    for low, high in set(masks.keys.all_pairs) - set(known):
        ends = torch.zeros(masks.keys.agents, dtype=torch.float64)
        ends[low], ends[high] = masks.size, -masks.size
        total += torch.outer(ends, ends)
    return total


@dataclass(frozen=True, eq=False)
class MaskRecorder:
    """Sources that record the masks of some pairs, and change nothing."""

    sources: Sources
    pairs: frozenset[Pair]
    openers: dict[tuple[int, Pair], list[Opener]] = field(default_factory=lambda: defaultdict(list))

    @property
    def secret(self) -> bool:
        """Whether the sources are secret."""
        return self.sources.secret

    def make(self, agents: int, trial: int = 0) -> Sequence[Source]:
        """Return the sources of lots and own noise."""
        return self.sources.make(agents, trial)

    def make_masks(self, pairs: Sequence[Pair], run: str, trial: int = 0) -> Sequence[MaskSource]:
        """Return the sources of masks; those of known pairs are recorded."""
        made = self.sources.make_masks(pairs, run, trial)
        return [
            _Recorded(source, self.openers[trial, pair]) if pair in self.pairs else source
            for source, pair in zip(made, pairs, strict=True)
        ]

    def known(
        self, masks: Masks, trials: range, direction: Float[Tensor, " params"]
    ) -> Float[Tensor, "trials agents queries"]:
        """Return what the recorded masks added to every answer along a direction."""
        found: Tensor = torch.zeros(len(trials), masks.keys.agents, 1, dtype=torch.float64)
        for low, high in sorted(self.pairs):
            streams = [opener() for trial in trials for opener in self.openers[trial, (low, high)]]
            mask = masks.size * (_read(streams, len(direction)) @ direction).unflatten(0, (len(trials), -1))
            sign = torch.zeros(masks.keys.agents, 1, dtype=torch.float64)
            sign[low], sign[high] = 1, -1
            found = found + sign * mask[:, None, :]
        return found

    def recorded(self, masks: Masks, width: int, trial: int = 0) -> Float[Tensor, "agents queries params"]:
        """Return what the recorded masks of one trial added to every number of every answer."""
        queries = max((len(openers) for (run, _), openers in self.openers.items() if run == trial), default=0)
        found = torch.zeros(masks.keys.agents, queries, width, dtype=torch.float64)
        for low, high in sorted(self.pairs):
            mask = masks.size * _read([opener() for opener in self.openers[trial, (low, high)]], width)
            found[low] += mask
            found[high] -= mask
        return found


class _Recorded:
    """A source of masks that records what it gives."""

    def __init__(self, source: MaskSource, kept: list[Opener]) -> None:
        self._source, self._kept = source, kept

    @property
    def position(self) -> int:
        return self._source.position

    @position.setter
    def position(self, position: int) -> None:
        self._source.position = position

    def next(self) -> Opener:
        opener = self._source.next()
        self._kept.append(opener)
        return opener


def _read(streams: Sequence[Stream], width: int) -> Float[Tensor, "streams params"]:
    """Return the normals of masks as the oracle draws them: block by block."""
    blocks = [min(MASK_BLOCK, width - at) for at in range(0, width, MASK_BLOCK)]
    keyed = [stream for stream in streams if isinstance(stream, ChaChaStream)]
    if len(keyed) < len(streams):
        return torch.from_numpy(np.stack([np.concatenate([each.normals(n) for n in blocks]) for each in streams]))
    # all at once, which is ten times as fast as one by one
    parts = [box_muller(np.stack([each.pairs((n + 1) // 2)[1] for each in keyed])).values[:, :n] for n in blocks]
    return torch.cat(parts, dim=1)
