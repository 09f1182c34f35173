"""The privacy settings of a run (`Privacy`) and what follows from them for every agent (`Plan`). All of it is public.

q = L/n for a declared n, L, C and σ are fixed before the first query and never recomputed from the data, so
that neighbouring data sets get the same mechanism.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from tacit.errors import PrivacyError
from tacit.privacy import accounting
from tacit.privacy.accounting import Accountant, Adjacency, Event
from tacit.privacy.cancelling import Cancelling, Response, best_ratio, masks_for, usual_ratio
from tacit.privacy.mechanisms import EVERYBODY, RECORD, Gaussian, Masked, Masks, Mechanism, Observer, Poisson
from tacit.privacy.units import Unit

PerAgent = float | Sequence[float]
# Far outside this range, float32 arithmetic no longer guarantees the clipping bound.
_RANGES = {"clip": (1e-9, 1e9)}


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """The privacy settings: (ε, δ) for every record of every agent, by noisy sums of clipped per-sample vectors.

    Give either `epsilon` (then σ follows from the number of queries) or `noise_multiplier` (then ε does).
    ε, σ, `clip` and `lot_size` may be one value for all agents or one for each; δ and adjacency are one for all.

    `noise=Cancelling(curious=1)` lets pairs of agents share masks that cancel, so that the agents learn with nearly the noise of central
    training. ε, or σ, then holds against any one curious agent, and a larger ε against everybody else together.

    With `unit=Unit("patient", most=8)` each patient is protected with all of its records: lot and declared sizes are then numbers of
    patients, and ε is per patient.
    """

    delta: float
    clip: PerAgent
    lot_size: PerAgent
    epsilon: PerAgent | None = None
    noise_multiplier: PerAgent | None = None
    adjacency: Adjacency = "add_remove"
    accountant: Accountant = "pld"
    unit: Unit | None = None
    noise: Cancelling | None = None

    def __post_init__(self) -> None:
        if self.noise is not None and not isinstance(self.noise, Cancelling):
            raise PrivacyError(
                f"noise is {self.noise!r}; give Cancelling(curious=...), or leave it out for independent noise"
            )
        if self.unit is not None and not isinstance(self.unit, Unit):
            raise PrivacyError(f"unit is {self.unit!r}; give Unit(name, most=...), such as Unit('patient', most=8)")
        if np.ndim(self.delta):
            raise PrivacyError(f"delta is {self.delta!r}; it is one number for all agents")
        _check_positive("delta", self.delta)
        accounting.check(self.accountant, self.adjacency, self.delta)
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise PrivacyError("give either epsilon or noise_multiplier, not both and not neither")
        for name in ("clip", "lot_size", "epsilon", "noise_multiplier"):
            if (value := getattr(self, name)) is not None:
                _check_positive(name, value)

    @property
    def observer(self) -> Observer:
        """Against whom ε holds."""
        return EVERYBODY if self.noise is None else self.noise.observer

    def targets(self, agents: int) -> tuple[float, ...] | None:
        """Return each agent's target ε; None if σ was given instead."""
        return None if self.epsilon is None else _spread("epsilon", self.epsilon, agents)

    def plan(
        self,
        sizes: Sequence[int],
        queries: int,
        *,
        pairs: Sequence[tuple[int, int]] = (),
        response: Response | None = None,
    ) -> "Plan":
        """Fix every agent's mechanism for its declared number of records and this many queries.

        `pairs` are the neighbours, and `response` is how the rule responds to noise; masks need them.
        """
        if queries < 1:
            raise PrivacyError("the run makes no query, so there is nothing to protect; use NoPrivacy")
        agents = len(sizes)
        lots = _spread("lot_size", self.lot_size, agents)
        rates = _sample_rates(lots, sizes, RECORD if self.unit is None else self.unit.name)
        if self.noise_multiplier is not None:
            sigmas = _spread("noise_multiplier", self.noise_multiplier, agents)
        else:
            assert self.epsilon is not None
            sigmas = tuple(
                accounting.noise_multipliers(
                    epsilons=_spread("epsilon", self.epsilon, agents),
                    delta=self.delta,
                    sample_rates=rates,
                    queries=queries,
                    accountant=self.accountant,
                    adjacency=self.adjacency,
                )
            )
        clips = _spread("clip", self.clip, agents)
        masks = None
        if self.noise is not None:
            needed = [sigma * clip / lot for sigma, clip, lot in zip(sigmas, clips, lots, strict=True)]
            masks = _masks(self.noise, needed, pairs, response)
        if masks is not None:
            sigmas = tuple(own * lot / clip for own, lot, clip in zip(masks.own, lots, clips, strict=True))
        return Plan(
            sample_rates=rates,
            lot_sizes=lots,
            clips=clips,
            noise_multipliers=sigmas,
            queries=queries,
            privacy=self,
            masks=masks,
        )


def _masks(
    noise: Cancelling, needed: Sequence[float], pairs: Sequence[tuple[int, int]], response: Response | None
) -> Masks | None:
    """Return masks that protect agents as well as the needed noise; None if the rule works better without."""
    keys, removed = noise.keys_of(len(needed), pairs), noise.curious + noise.lost
    ratio = noise.ratio
    if isinstance(ratio, str):
        ratio = usual_ratio(needed, keys, removed) if response is None else best_ratio(needed, keys, removed, response)
    return None if ratio == 0 else masks_for(needed, keys, removed, ratio=ratio, lost=noise.lost)


@dataclass(frozen=True, kw_only=True)
class NoPrivacy:
    """No privacy: the same Poisson lots and divisor, without clipping and noise."""

    lot_size: PerAgent

    def __post_init__(self) -> None:
        _check_positive("lot_size", self.lot_size)

    def plan(self, sizes: Sequence[int], queries: int) -> "Plan":
        """Fix every agent's lots."""
        lots = _spread("lot_size", self.lot_size, len(sizes))
        return Plan(
            sample_rates=_sample_rates(lots, sizes),
            lot_sizes=lots,
            clips=(math.inf,) * len(sizes),
            noise_multipliers=(0.0,) * len(sizes),
            queries=queries,
            privacy=None,
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Every agent's mechanism, one value per agent, and the number of queries it was planned for."""

    sample_rates: tuple[float, ...]
    lot_sizes: tuple[float, ...]
    clips: tuple[float, ...]
    noise_multipliers: tuple[float, ...]
    queries: int
    privacy: Privacy | None
    masks: Masks | None = None
    """The masks that pairs of agents share; `noise_multipliers` are then the agents' own noise."""
    numbers: tuple[int, ...] | None = None
    """The agents' numbers, if the plan is for some of the agents only."""

    @property
    def agents(self) -> int:
        """The number of agents."""
        return len(self.sample_rates)

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What one query of each agent does."""
        return tuple(map(self.mechanism, range(self.agents)))

    def mechanism(self, agent: int) -> Mechanism:
        """Return what one query of an agent does."""
        rate, lot = self.sample_rates[agent], self.lot_sizes[agent]
        if self.privacy is None:
            return Mechanism.plain(sample_rate=rate, lot=lot)
        unit, sigma = self.privacy.unit, self.noise_multipliers[agent]
        noise: Gaussian | Masked = Gaussian(multiplier=sigma)
        if self.masks is not None:
            number = agent if self.numbers is None else self.numbers[agent]
            noise = Masked(multiplier=sigma, agent=number, masks=self.masks)
        sampler = Poisson(rate=rate, unit=RECORD if unit is None else unit.name, most=1 if unit is None else unit.most)
        return Mechanism(sampler=sampler, clip=self.clips[agent], lot=lot, noise=noise)

    def of(self, agents: Sequence[int]) -> "Plan":
        """Return the plan for some of the agents."""
        return replace(
            self,
            sample_rates=tuple(self.sample_rates[agent] for agent in agents),
            lot_sizes=tuple(self.lot_sizes[agent] for agent in agents),
            clips=tuple(self.clips[agent] for agent in agents),
            noise_multipliers=tuple(self.noise_multipliers[agent] for agent in agents),
            numbers=tuple(agents if self.numbers is None else (self.numbers[agent] for agent in agents)),
        )

    @property
    def observer(self) -> Observer:
        """Against whom ε holds."""
        return EVERYBODY if self.masks is None or self.privacy is None else self.privacy.observer

    def event(self, agent: int) -> Event:
        """Return all of an agent's queries as an event for an accountant, against the plan's observer."""
        return self.mechanism(agent).event(self.queries, self.observer)

    def repeated(self, trials: int) -> "Plan":
        """Return the plan for several independent trials side by side."""
        return replace(
            self,
            sample_rates=self.sample_rates * trials,
            lot_sizes=self.lot_sizes * trials,
            clips=self.clips * trials,
            noise_multipliers=self.noise_multipliers * trials,
            numbers=(tuple(range(self.agents)) if self.numbers is None else self.numbers) * trials,
        )

    def epsilons(self, queries: Sequence[int]) -> Float[np.ndarray, "points agents"]:
        """Return every agent's ε after each of these numbers of queries of this plan alone, against the plan's observer."""
        if self.privacy is None:
            return np.array([[math.inf if count else 0.0] * self.agents for count in queries])
        histories = [[mechanism.event(count, self.observer)] for count in queries for mechanism in self.mechanisms]
        values = accounting.epsilons(
            histories,
            delta=self.privacy.delta,
            accountant=self.privacy.accountant,
            adjacency=self.privacy.adjacency,
        )
        return np.array(values).reshape(len(queries), self.agents)


def _check_positive(name: str, value: Any) -> None:
    low, high = _RANGES.get(name, (0.0, math.inf))
    for number in _numbers(name, value):
        if not 0 < number < math.inf:
            raise PrivacyError(f"{name} is {number}; it must be positive and finite")
        if not low <= number <= high:
            raise PrivacyError(f"{name} is {number}; it must lie between {low:g} and {high:g}")


def _numbers(name: str, value: Any) -> list[float]:
    """Return a list of numbers, of length one for a single number; numpy's and torch's numbers are accepted."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf" or array.ndim > 1:
            raise TypeError
        return [float(number) for number in np.atleast_1d(array)]
    except (TypeError, ValueError):
        raise PrivacyError(f"{name} is {value!r}; it must be a number, or one for each agent") from None


def _spread(name: str, value: Any, agents: int) -> tuple[float, ...]:
    numbers = _numbers(name, value)
    if np.ndim(value) == 0:
        return tuple(numbers) * agents
    if len(numbers) != agents:
        raise PrivacyError(f"{name} has {len(numbers)} values for {agents} agents; give one for each, or one for all")
    return tuple(numbers)


def _sample_rates(lots: Sequence[float], sizes: Sequence[int], who: str = RECORD) -> tuple[float, ...]:
    for agent, (lot, size) in enumerate(zip(lots, sizes, strict=True)):
        if lot > size:
            raise PrivacyError(
                f"lot_size {lot:g} is larger than agent {agent}'s {size} {who}s; lower it, or give lot_size per agent"
            )
    return tuple(lot / size for lot, size in zip(lots, sizes, strict=True))
