"""The masks that pairs of agents share: their sources, and which agent adds and which subtracts each."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from tacit.privacy.noise import End
from tacit.privacy.noise_kinds import Masks
from tacit.privacy.randomness import MaskSource


class SharedMasks(NamedTuple):
    """The masks of the agents hosted here: a source for each, the pair that shares it, and every agent's ends of them."""

    sources: Sequence[MaskSource]
    pairs: Sequence[tuple[int, int]]
    ends: Sequence[Sequence[End]]

    def without(self, agents: Collection[int]) -> list[list[End]]:
        """Return every agent's ends of the masks that it does not share with these agents. These themselves keep all of theirs.

        An agent that left is still asked in a simulation, and charged as one with masks; what it answers is recorded.
        """

        def keeps(end: End) -> bool:
            low, high = self.pairs[end.mask]
            own, other = (low, high) if end.sign > 0 else (high, low)
            return own in agents or other not in agents

        return [[end for end in ends if keeps(end)] for ends in self.ends]


def share_masks(
    masks: Masks | None,
    agents: Sequence[int],
    sources: Callable[[Sequence[tuple[int, int]], int], Sequence[MaskSource]],
    trials: int,
) -> SharedMasks:
    """Return the masks of these agents in each trial. `sources` makes the sources of a list of pairs in one trial."""
    if masks is None:
        return SharedMasks((), (), [()] * (len(agents) * trials))
    pairs = sorted({pair for agent in agents for pair in masks.keys.by_agent[agent]})
    number = {pair: place for place, pair in enumerate(pairs)}
    made: list[MaskSource] = []
    ends = []
    for trial in range(trials):
        first = len(made)
        made += sources(pairs, trial)
        for agent in agents:
            own = masks.keys.by_agent[agent]
            ends.append([End(first + number[pair], 1 if pair[0] == agent else -1) for pair in own])
    return SharedMasks(made, pairs * trials, ends)
