"""The privacy settings of a run (`Privacy`), and how a plan for every agent follows from them. All of it is public.

q = L/n for a declared n, L, C and σ are fixed before the first query and never recomputed from the data, so
that neighbouring data sets get the same mechanism.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tacit.errors import PrivacyError, refuse_misspelt
from tacit.privacy import accounting, calibration
from tacit.privacy.accounting import Accountant, Adjacency
from tacit.privacy.bands import best_bands, check_rate, check_rounding, coefficients, compare_bands
from tacit.privacy.cancelling import Cancelling, Response, best_ratio, masks_for, usual_ratio
from tacit.privacy.mechanisms import RECORD
from tacit.privacy.noise_kinds import Masks
from tacit.privacy.observers import EVERYBODY, Observer
from tacit.privacy.plans import Plan
from tacit.privacy.rounding import Discrete
from tacit.privacy.turns import MOST_BANDS, turns_of
from tacit.privacy.units import Unit
from tacit.privacy.votes import Ballot

PerAgent = float | Sequence[float]
# Far outside this range, float32 arithmetic no longer guarantees the clipping bound.
_RANGES = {"clip": (1e-9, 1e9)}


@refuse_misspelt
@dataclass(frozen=True, kw_only=True)
class Privacy:
    """The privacy settings: (ε, δ) for every record of every agent, by noisy sums of clipped per-sample vectors.

    Give either `epsilon` (then σ follows from the number of queries) or `noise_multiplier` (then ε does).
    ε, σ, `clip` and `lot_size` may be one value for all agents or one for each; δ and adjacency are one for all.

    `noise=Cancelling(curious=1)` lets pairs of agents share masks that cancel, so that the agents learn with nearly the noise of central
    training. ε, or σ, then holds against any one curious agent, and a larger ε against everybody else together.

    `noise=Discrete(bits=10)` rounds every record's clipped vector to a grid before the sum, and adds discrete Gaussian noise; it is
    accounted by Rényi divergences, `accountant="rdp"`.

    With `bands=8` noise is correlated over 8 queries, so that it partly cancels in sums of answers, and records belong to 8 groups that take
    turns; `bands="auto"` chooses the number with the least noise in such sums: 1, which is independent noise, if no other number is better.

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
    noise: Cancelling | Discrete | None = None
    bands: int | Literal["auto"] = 1

    def __post_init__(self) -> None:
        self._check_bands()
        if self.noise is not None and not isinstance(self.noise, Cancelling | Discrete):
            raise PrivacyError(
                f"noise is {self.noise!r}; give noise=tacit.Cancelling(curious=1) or tacit.Discrete(), or leave it out for independent noise"
            )
        if isinstance(self.noise, Discrete) and self.accountant != "rdp":
            raise PrivacyError(
                f"accountant is {self.accountant!r}; discrete noise is accounted by Rényi divergences only, so use 'rdp'"
            )
        if self.unit is not None and not isinstance(self.unit, Unit):
            raise PrivacyError(f"unit is {self.unit!r}; give Unit(name, most=...), such as Unit('patient', most=8)")
        if np.ndim(self.delta):
            raise PrivacyError(f"delta is {self.delta!r}; it is one number for all agents")
        _check_positive("delta", self.delta)
        accounting.check(self.accountant, self.adjacency, self.delta)
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise PrivacyError("give exactly one of epsilon and noise_multiplier")
        for name in ("clip", "lot_size", "epsilon", "noise_multiplier"):
            if (value := getattr(self, name)) is not None:
                _check_positive(name, value)

    def _check_bands(self) -> None:
        if self.bands != "auto" and (type(self.bands) is not int or not 1 <= self.bands <= MOST_BANDS):
            raise PrivacyError(f"bands is {self.bands!r}; it must be a whole number from 1 to {MOST_BANDS}, or 'auto'")
        if self.bands == 1:
            return
        if self.adjacency == "replace_one":
            raise PrivacyError(
                "bands divide records into groups, and a record that replaces another may be in another group; use adjacency='add_remove'"
            )
        if self.bands == "auto" and self.epsilon is None:
            raise PrivacyError(
                "bands='auto' compares noise at one ε; give epsilon instead of noise_multiplier, or a number of bands"
            )
        if isinstance(self.noise, Discrete):
            raise PrivacyError("noise with bands is not on one grid, so it cannot be discrete; leave out one of them")
        if self.noise is not None and self.noise.lost:
            raise PrivacyError(
                "with bands, later answers contain masks of earlier queries, even those of agents that have left since; leave out lost, or bands"
            )

    @property
    def observer(self) -> Observer:
        """Against whom ε holds."""
        return self.noise.observer if isinstance(self.noise, Cancelling) else EVERYBODY

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
        width: int | None = None,
    ) -> Plan:
        """Fix every agent's mechanism for its declared number of records and this many queries.

        `pairs` are the neighbours, and `response` is how the rule responds to noise; masks need them. `width` is the number of parameters;
        rounding needs it.
        """
        if queries < 1:
            raise PrivacyError("the run makes no query, so there is nothing to protect; use NoPrivacy")
        agents = len(sizes)
        lots = _spread("lot_size", self.lot_size, agents)
        rates = _sample_rates(lots, sizes, RECORD if self.unit is None else self.unit.name)
        bands = self._choose_bands(rates, queries)
        if bands > 1:
            check_rate(bands, max(rates))
            check_rounding(bands, max(sizes))
        sigmas = self._sigmas([bands * rate for rate in rates], turns_of(queries, bands))
        clips = _spread("clip", self.clip, agents)
        masks = None
        if isinstance(self.noise, Cancelling):
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
            bands=coefficients(bands, queries) if bands > 1 else (),
            rounding=self.noise.settle(width, clips) if isinstance(self.noise, Discrete) else None,
        )

    def plan_votes(self, agents: int, queries: int, ballot: Ballot) -> Plan:
        """Fix every agent's mechanism for queries of teachers' votes, in which all records take part. Clip and lot mean nothing to them."""
        for name, given in (
            ("noise", self.noise is not None),
            ("bands", self.bands != 1),
            ("unit", self.unit is not None),
        ):
            if given:
                raise PrivacyError(
                    f"{name} is for noisy sums over lots, but votes of teachers are counted; leave it out"
                )
        one = (1.0,) * agents
        return Plan(
            sample_rates=one,
            lot_sizes=one,
            clips=one,
            noise_multipliers=self._sigmas(one, queries),
            queries=queries,
            privacy=self,
            ballot=ballot,
        )

    def _sigmas(self, rates: Sequence[float], queries: int) -> tuple[float, ...]:
        """Return the σ of every agent, given or calibrated for this many queries at these rates."""
        if self.noise_multiplier is not None:
            return _spread("noise_multiplier", self.noise_multiplier, len(rates))
        assert self.epsilon is not None
        sigmas = calibration.noise_multipliers(
            epsilons=_spread("epsilon", self.epsilon, len(rates)),
            delta=self.delta,
            sample_rates=rates,
            queries=queries,
            accountant=self.accountant,
            adjacency=self.adjacency,
            discrete=isinstance(self.noise, Discrete),
        )
        return tuple(sigmas)

    def _choose_bands(self, rates: Sequence[float], queries: int) -> int:
        """Return the number of bands, the best for the agent with the highest rate where calibration chooses it."""
        if self.bands != "auto":
            return self.bands
        highest = max(range(len(rates)), key=lambda agent: rates[agent])
        target = _spread("epsilon", self.epsilon, len(rates))[highest]

        def calibrate(rate: float, count: int) -> float:
            return calibration.noise_multiplier(
                epsilon=target, delta=self.delta, sample_rate=rate, queries=count, accountant=self.accountant
            )

        return best_bands(compare_bands(calibrate, rates[highest], queries))


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

    def plan(self, sizes: Sequence[int], queries: int) -> Plan:
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
                f"lots of {lot:g} are larger than agent {agent}'s {size} {who}s; use smaller lots, or a lot size for each agent"
            )
    return tuple(lot / size for lot, size in zip(lots, sizes, strict=True))
