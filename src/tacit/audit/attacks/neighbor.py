"""The curious neighbour: it sees the messages that reach it, and asks whether a record is present.

It reconstructs the target's noisy gradients as well as its messages allow (`linear.views`), projects them on the direction of the
record's gradient, and scores each run: a high score means that the record seems present. Several statistics look for several faults;
on a sound system only the likelihood should show anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import norm
from torch import Tensor

from tacit.algorithms import Adam, DiNNO
from tacit.algorithms.averaged import rule_of
from tacit.audit.attacks.banded import banded_scores
from tacit.audit.attacks.collection import Scores
from tacit.audit.attacks.curious import CuriousAgents
from tacit.audit.attacks.guessing import Guess
from tacit.audit.linear.views import log_ratio
from tacit.errors import InvalidInput


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbor(CuriousAgents):
    """Observers in a `dirac` world, alone or as a coalition.

    guesses: keys of lots or of noise that the attacker tries.
    """

    guesses: Sequence[Guess] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_target()
        if self.shows_signs_only and self.world.direction.count_nonzero() > 1:
            raise InvalidInput(
                "Adam's steps show a sign along each axis; use a canary along one axis, with dense=False"
            )
        if self.shows_signs_only and (self.plan.masks is not None or self.plan.bands):
            raise InvalidInput(
                "Adam's steps show little but signs, from which masks cannot be removed, nor bands undone; use plain steps"
            )

    @property
    def shows_signs_only(self) -> bool:
        """Whether the rule is Adam from rest, whose steps show little more than signs."""
        rule = rule_of(self.world.algorithm)
        return isinstance(rule, DiNNO) and isinstance(rule.step, Adam) and not rule.carry and rule.inner_steps == 1

    def scores(self, trials: int, *, present: bool, seed: int) -> Scores:
        """Play this many runs and score each by every statistic."""
        if self.shows_signs_only:
            return self._sign_scores(trials, present=present, seed=seed)
        seen = self.watch(trials, present=present, seed=seed, direction=self.world.direction)
        return self._score(seen, seed)

    def _score(self, seen: Float[Tensor, "trials seen"], seed: int) -> Scores:
        world, plan, target = self.world, self.plan, self.world.target
        rate, noise = plan.sample_rates[target], plan.noise_multipliers[target]
        answers = self._scale * (seen @ self.weights.T)
        # Most lots are without the record: their median shows what the other records add.
        middle = answers.median(dim=1, keepdim=True).values
        scores = {"likelihood": log_ratio(self._information, answers, rate=rate, noise=noise).numpy()}
        if answers.shape[1] > 1:
            scores["centred"] = log_ratio(self._information, answers - middle, rate=rate, noise=noise).numpy()
            scores["variation"] = torch.log(answers.std(dim=1) + 1e-12).numpy()  # very low where noise is used again
        if plan.bands:
            # How much is seen of each answer: all of it where own noise alone hides it, and less behind masks.
            seen_share = float(self._information.diagonal().mean())
            scores["bands"] = banded_scores(
                answers / seen_share, plan, target, world.canary, seed, noise=noise / seen_share**0.5
            )
        for guess in self.guesses:
            scores[guess.name] = guess.scores(answers, world, plan, first=seed)
        return scores

    def _sign_scores(self, trials: int, *, present: bool, seed: int) -> Scores:
        """Return the log-likelihood ratio of the signs of the target's steps along the record's direction.

        Each step of Adam from rest shows the sign of a sum and hardly anything of its size. An observer of the target's whole
        neighbourhood knows everything that is added to g̃ there. What it learns in a round is whether g̃ was above or below minus that.
        """
        world, plan, target = self.world, self.plan, self.world.target
        runs: dict[str, Any] = {"present": present, "seed": seed, "sources": self.sources}
        _, sent, models = self.play_along(world.direction, trials, **runs)
        rate, noise = plan.sample_rates[target], plan.noise_multipliers[target]
        rule, graph = world.algorithm, world.graph
        assert isinstance(rule, DiNNO)
        assert graph is not None
        near = sorted(graph[target])
        seen = {each for observer in self.observers for each in (observer, *graph[observer])}
        if not {target, *near} <= seen:
            raise InvalidInput(
                f"to read the signs of agent {target}'s steps, observers must see all of its neighbours {near}; they see "
                f"{sorted(seen)}. Let all of its neighbours observe"
            )
        states = torch.stack([tensors[0][:, 0] for tensors in sent] + [models[:, 0]]).unflatten(1, (-1, len(graph)))
        mine, others = states[:, :, target], states[:, :, near].sum(dim=2)
        dual, total = torch.zeros_like(mine[0]), torch.zeros_like(mine[0])
        for number in range(world.rounds):
            rho = rule.rho * rule.rho_growth**number
            gap = len(near) * mine[number] - others[number]
            dual = dual + rho * gap
            known = self._scale * (dual + rho * gap)  # with ψ = θ, 2ρ(dθ − (dθ + S)/2) = ρ(dθ − S)
            up = (mine[number + 1] < mine[number]).numpy()  # descending along a positive sum
            without = norm.cdf(known.numpy() / noise)
            drawn = norm.cdf((known.numpy() + 1) / noise)
            chance = (1 - rate) * without + rate * drawn
            total += torch.from_numpy(np.where(up, _log(chance) - _log(without), _log(1 - chance) - _log(1 - without)))
        return {"likelihood": total.numpy()}

    @property
    def _scale(self) -> float:
        """L/C of the target: its answers times this are in clipping norms."""
        return self.plan.lot_sizes[self.world.target] / self.plan.clips[self.world.target]

    @cached_property
    def _information(self) -> Tensor:
        return self.view.information(self.world.target)


def _log(chance: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(chance, 1e-300))
