"""The coalition: curious agents who hear everything, pool the masks that they share with others, and ask whether a record is present.

They subtract their own masks from the messages. What is left is Gaussian with the covariance that the accounting assumes, so the
likelihood ratio is as strong as the stated ε against that many agents. Three more statistics show no more than is stated on a sound system,
and more on a faulty one: differences between rounds, in which masks that are drawn once cancel; all rounds together, where masks repeat
after some rounds (`repeats`); and the sum over the agents that are not curious, in which only their own noise is left.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.audit.attacks.collection import Scores
from tacit.audit.attacks.known_masks import hidden_covariance, known_pairs
from tacit.audit.attacks.neighbor import Neighbor
from tacit.audit.attacks.repeats import repeat_scores
from tacit.audit.linear.responses import Hears
from tacit.audit.linear.views import log_ratio
from tacit.errors import InvalidInput
from tacit.privacy.noise_kinds import Masks
from tacit.ties import first_largest

_MOST_COALITIONS = 20_000
_EQUAL = 1e-6  # with the largest masks, linear algebra keeps nine digits


@dataclass(frozen=True, kw_only=True, eq=False)
class Coalition(Neighbor):
    """Curious agents in a `dirac` world whose agents share masks. By default they hear everybody, as the accounting assumes."""

    hears: Hears = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shows_signs_only:
            raise InvalidInput("Adam's steps show little but signs, from which masks cannot be removed")

    def _score(self, seen: Float[Tensor, "trials seen"], seed: int) -> Scores:
        scores = super()._score(seen, seed)
        if self.plan.masks is None or self.hears != "all":
            return scores
        plan, target = self.plan, self.world.target
        rate, queries, alone = plan.sample_rates[target], self.view.queries, torch.eye(self.view.queries).double()
        answers = self._scale * (seen @ self._all_weights.T).unflatten(1, (self.view.agents, queries))
        if queries > 1:
            differences = alone - 1 / queries  # takes out whatever all rounds have in common
            own = plan.noise_multipliers[target]
            scores["differences"] = log_ratio(
                differences, answers[:, target] @ differences, rate=rate, noise=own
            ).numpy()
        honest = [agent for agent in range(self.view.agents) if agent not in self.observers]
        total = self._scale * float(np.linalg.norm([self.own_noise[agent] for agent in honest]))
        scores["sum"] = log_ratio(alone, answers[:, honest].sum(dim=1), rate=rate, noise=total).numpy()
        variances = torch.tensor(self.own_noise, dtype=torch.float64)[honest].square()
        masks = hidden_covariance(self.plan.masks, self.known)[honest][:, honest] - torch.diag(variances)
        several = repeat_scores(
            answers[:, honest],
            self._scale**2 * variances,
            self._scale**2 * masks,
            target=honest.index(target),
            rate=rate,
        )
        return scores if several is None else scores | {"repeats": several}

    @cached_property
    def _all_weights(self) -> Tensor:
        """Weights with which messages show the answers of all agents."""
        return self.view.rebuild(torch.eye(self.view.matrix.shape[1], dtype=torch.float64))


def worst_coalition(masks: Masks, target: int, curious: int) -> list[int]:
    """Return the coalition of `curious` agents from whom masks protect the target least; of equal ones, that with the lowest numbers."""
    others = [agent for agent in range(masks.keys.agents) if agent != target]
    if not 1 <= curious <= len(others):
        raise InvalidInput(f"curious is {curious}; there are {len(others)} other agents")
    if comb(len(others), curious) > _MOST_COALITIONS:
        raise InvalidInput(
            f"there are too many coalitions of {curious} agents to find the worst one; name the observers"
        )

    def precision(coalition: tuple[int, ...]) -> float:
        covariance = hidden_covariance(masks, known_pairs(masks, coalition))
        return float(torch.linalg.inv(covariance)[target, target])

    coalitions = list(combinations(others, curious))
    return list(coalitions[first_largest(map(precision, coalitions), relative=_EQUAL)])
