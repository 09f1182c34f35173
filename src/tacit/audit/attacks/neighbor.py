"""The curious neighbour: it sees the messages that its place in the graph shows it, and asks whether a record is there.

From what is seen it reconstructs the target's noisy gradients as well as can be (`views`), looks along the direction in
which the record would pull, and scores each run. A score is high where the record seems to be present. Several
statistics look for several faults; against a sound system only the likelihood should tell anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.algorithms import Adam, DiNNO
from tacit.algorithms.averaged import rule_of
from tacit.audit.attacks.collecting import Scores
from tacit.audit.attacks.guessing import Guess
from tacit.audit.attacks.signs import sign_scores
from tacit.audit.attacks.worlds import World, plan_of
from tacit.audit.linear.responses import Responses
from tacit.audit.linear.views import View, log_ratio
from tacit.errors import InvalidInput
from tacit.privacy import Plan, Sources
from tacit.privacy.accounting import Event


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbor:
    """Observers in a `dirac` world, alone or in league.

    sources: where lots and noise come from in the runs; secret unless given.
    guesses: keys that the attacker tries, of lots or of noise.
    """

    world: World
    observers: Sequence[int]
    sources: Sources | None = None
    guesses: Sequence[Guess] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        strangers = [agent for agent in self.observers if agent not in range(self.world.data.agents)]
        if strangers or not self.observers:
            raise InvalidInput(
                f"observers is {list(self.observers)}; name at least one agent, from 0 to {self.world.data.agents - 1}"
            )
        if self.world.target in self.observers:
            raise InvalidInput(f"agent {self.world.target} is the target and cannot be an observer of itself")
        if self.world.graph is None:
            raise InvalidInput("a curious neighbour needs a graph to sit in")
        if self.shows_signs_only and self.world.direction.count_nonzero() > 1:
            raise InvalidInput("Adam's steps have a sign along each axis; give a canary along one, with dense=False")

    @property
    def shows_signs_only(self) -> bool:
        """Whether the rule is Adam from rest, whose steps show little more than signs."""
        rule = rule_of(self.world.algorithm)
        return isinstance(rule, DiNNO) and isinstance(rule.step, Adam) and not rule.carry and rule.inner_steps == 1

    @cached_property
    def view(self) -> View:
        """What the observers see."""
        world = self.world
        assert world.graph is not None
        responses = Responses.of(world.algorithm, world.graph, rounds=world.rounds, lr=world.lr)
        plan = plan_of(world, responses.queries)
        sizes = zip(plan.noise_multipliers, plan.clips, plan.lot_sizes, strict=True)
        return responses.view(self.observers, noise=[sigma * clip / lot for sigma, clip, lot in sizes])

    @cached_property
    def plan(self) -> Plan:
        """What the agents promise."""
        return plan_of(self.world, self.world.rounds if self.shows_signs_only else self.view.queries)

    @property
    def event(self) -> Event:
        """The target's mechanism, as it is stated."""
        return self.plan.event(self.world.target)

    def scores(self, trials: int, *, present: bool, seed: int) -> Scores:
        """Play so many runs and score each by every statistic."""
        world, plan, target = self.world, self.plan, self.world.target
        sent: list[tuple[Tensor, ...]] = []
        direction = world.direction[:, None]
        results = world.play(
            trials,
            present=present,
            seed=seed,
            sources=self.sources,
            taps=[lambda tensors: sent.append(tuple(tensor.double() @ direction for tensor in tensors))],
        )
        models = torch.cat([result.theta for result in results]).double() @ direction
        scale = plan.lot_sizes[target] / plan.clips[target]
        rate, noise = plan.sample_rates[target], plan.noise_multipliers[target]
        if self.shows_signs_only:
            return {"likelihood": sign_scores(world, self.observers, sent, models, scale, rate, noise)}
        starts = world.starts(results[0].model, trials, seed).double() @ direction
        seen = self.view.arrange(sent, starts, models=models)[..., 0]
        answers = scale * (seen @ self._weights.T)
        # Most lots are without the record: their median shows what the other records add.
        middle = answers.median(dim=1, keepdim=True).values
        scores = {"likelihood": log_ratio(self._information, answers, rate=rate, noise=noise).numpy()}
        if answers.shape[1] > 1:
            scores["centred"] = log_ratio(self._information, answers - middle, rate=rate, noise=noise).numpy()
            scores["variation"] = _variation(answers)
        for guess in self.guesses:
            scores[guess.name] = guess.scores(answers, world, plan, first=seed)
        return scores

    @cached_property
    def _weights(self) -> Tensor:
        return self.view.recover(self.world.target)

    @cached_property
    def _information(self) -> Tensor:
        return self.view.information(self.world.target)


def _variation(answers: Float[Tensor, "trials queries"]) -> Float[np.ndarray, " trials"]:
    """Return how much the answers differ from round to round: nothing, where the same noise is used again."""
    spread = answers.std(dim=1)
    return torch.log(spread + 1e-12).numpy()
