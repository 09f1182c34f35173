"""The plan of a run: every agent's mechanism and the number of queries it was planned for, fixed before the first query. All of it is public."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from tacit.errors import PrivacyError
from tacit.io.chains import canonical, digest
from tacit.privacy import accounting
from tacit.privacy.event import Event
from tacit.privacy.mechanisms import RECORD, Cyclic, Mechanism, Poisson, vote_mechanism
from tacit.privacy.noise_kinds import DiscreteGaussian, Gaussian, Masked, Masks
from tacit.privacy.observers import EVERYBODY, Observer
from tacit.privacy.rounding import Discrete
from tacit.privacy.votes import Ballot

if TYPE_CHECKING:
    from tacit.privacy.settings import Privacy


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Every agent's mechanism, one value per agent, and the number of queries it was planned for."""

    sample_rates: tuple[float, ...]
    lot_sizes: tuple[float, ...]
    clips: tuple[float, ...]
    noise_multipliers: tuple[float, ...]
    queries: int
    privacy: "Privacy | None"
    masks: Masks | None = None
    """The masks that pairs of agents share; `noise_multipliers` are then the agents' own noise."""
    numbers: tuple[int, ...] | None = None
    """The agents' numbers, if the plan is for some of the agents only."""
    bands: tuple[float, ...] = ()
    """How noise is correlated over queries: the first column of C, see `tacit.privacy.bands`. Empty where it is independent."""
    rounding: Discrete | None = None
    """How records' vectors are rounded before they are added up, under discrete noise."""
    ballot: Ballot | None = None
    """What teachers are asked in each query; rates, lots and clips are then 1."""

    @property
    def agents(self) -> int:
        """The number of agents."""
        return len(self.sample_rates)

    @property
    def turn_rates(self) -> tuple[float, ...]:
        """The probability that a record is in a lot when it is its group's turn; q where there are no groups."""
        return tuple(max(1, len(self.bands)) * rate for rate in self.sample_rates)

    @property
    def full_lots(self) -> tuple[float, ...]:
        """Each agent's expected lot if all of its records were in the group whose turn it is; L where there are no groups.

        Groups follow from the records, so a large lot must not be ruled out because groups usually have about the same size.
        """
        return tuple(max(1, len(self.bands)) * lot for lot in self.lot_sizes)

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
        if self.ballot is not None:
            return vote_mechanism(self.ballot.votes(sigma))
        noise: Gaussian | Masked | DiscreteGaussian = Gaussian(multiplier=sigma)
        if self.rounding is not None:
            noise = DiscreteGaussian(multiplier=sigma, bits=self.rounding.bits, room=self.rounding.bound(1.0))
        if self.masks is not None:
            number = agent if self.numbers is None else self.numbers[agent]
            noise = Masked(multiplier=sigma, agent=number, masks=self.masks)
        whose: dict[str, Any] = {"unit": RECORD, "most": 1} if unit is None else {"unit": unit.name, "most": unit.most}
        sampler = Cyclic(rate=rate, **whose, groups=len(self.bands)) if self.bands else Poisson(rate=rate, **whose)
        return Mechanism(sampler=sampler, clip=self.clips[agent], lot=lot, noise=noise, bands=self.bands)

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
        return side_by_side([self] * trials)

    @property
    def sha256(self) -> str:
        """A hash of all that is planned to be asked of the agents: parties who share masks, or one ledger, need the same."""
        masks = None if self.masks is None else self.masks.to_json()
        planned = {"queries": self.queries, "masks": masks, "mechanisms": [each.to_json() for each in self.mechanisms]}
        return digest(canonical(planned))

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


def side_by_side(plans: Sequence[Plan]) -> Plan:
    """Return one plan for the agents of several independent trials, whose lots, clipping norms and noise may differ."""
    first = plans[0]
    if any(plan is not first and _shared(plan) != _shared(first) for plan in plans):
        raise PrivacyError(
            "trials side by side protect the same units and make the same number of queries, with the same masks, bands and rounding; "
            "play these one after another"
        )
    return replace(
        first,
        sample_rates=tuple(chain.from_iterable(plan.sample_rates for plan in plans)),
        lot_sizes=tuple(chain.from_iterable(plan.lot_sizes for plan in plans)),
        clips=tuple(chain.from_iterable(plan.clips for plan in plans)),
        noise_multipliers=tuple(chain.from_iterable(plan.noise_multipliers for plan in plans)),
        numbers=tuple(
            chain.from_iterable(range(plan.agents) if plan.numbers is None else plan.numbers for plan in plans)
        ),
    )


def _shared(plan: Plan) -> tuple[Any, ...]:
    """Return what all trials of one stack have in common."""
    unit = None if plan.privacy is None else plan.privacy.unit
    return plan.queries, plan.privacy is None, unit, plan.masks, plan.bands, plan.rounding, plan.ballot
