"""The cheapest detector: take the noise out of what neighbours see, and hold it against what is stated.

Where a record's gradient is the record itself, whoever sees an agent's answers exactly knows L·g̃/C = Σ clipped/C + σξ but
for the lot. Along axes in which no record lies that is bare noise; along the records' sum it counts who was drawn. Both
are compared with the stated σ and q, and the noise of agents, rounds and runs with one another (`noise_tests`).

It finds what is wrong with noise and lots, and nothing else: a gradient that is not clipped stays unseen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import networkx as nx
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tacit.algorithms import Algorithm
from tacit.audit.attacks.worlds import World, dirac, first_output, plan_of
from tacit.audit.linear.responses import Responses
from tacit.audit.linear.views import View
from tacit.audit.noise.noise_statistics import Noise, checks_of, joint_checks, rate_estimate, sigma_estimate
from tacit.audit.noise.report import AgentNoise, NoiseReport
from tacit.data import AgentData
from tacit.errors import InvalidInput
from tacit.models import FlatModel
from tacit.privacy import Plan, Privacy, Sources
from tacit.privacy.gradients.clipping import clip_factors
from tacit.training.preparation import make_module, starts
from tacit.training.schedules import Schedule

# Rounding of float32 messages must stay below this share of the noise.
_MOST_ROUNDING = 1e-2


def noise_world(
    algorithm: Algorithm[Any],
    *,
    privacy: Privacy,
    rounds: int,
    lr: float | Schedule = 0.1,
    graph: nx.Graph,
    target: int = 0,
    records: int = 100,
) -> World:
    """Return a `dirac` world in which all records are alike, along the second axis: the answers there count the lot."""
    world = dirac(algorithm, privacy=privacy, rounds=rounds, lr=lr, graph=graph, target=target, records=records)
    inputs = torch.zeros_like(world.data.dataset.train.table)
    inputs[:, 1] = world.data.dataset.train.table.norm(dim=1)
    parts = [(part, torch.zeros(len(part))) for part in inputs.split(records)]
    return replace(world, data=AgentData.from_parts(parts, name="noise"))


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseCheck:
    """Observers, alone or in league, who look at the noise of every agent whose answers they see exactly.

    world: a `noise_world`, or a `dirac` one, in which the lots show less.
    sources: where lots and noise come from in the runs; secret unless given.
    false_alarm: how probable it is that a system which is as stated is called otherwise, at most.
    """

    world: World
    observers: Sequence[int]
    sources: Sources | None = None
    false_alarm: float = 1e-3

    def __post_init__(self) -> None:
        world = self.world
        if world.graph is None:
            raise InvalidInput("observers need a graph to sit in")
        if world.loss is not first_output:
            raise InvalidInput("noise can be told from gradients only where those are known; use noise_world or dirac")
        if not 0 < self.false_alarm < 1:
            raise InvalidInput(f"false_alarm is {self.false_alarm}; it must lie strictly between 0 and 1")
        if world.target not in self.seen:
            raise InvalidInput(
                f"observers {list(self.observers)} cannot reconstruct all answers of agent {world.target}, the target; "
                f"they can of agents {list(self.seen)}"
            )
        if crowded := [agent for agent in self.seen if not self._quiet(agent).any()]:
            raise InvalidInput(f"records of agent {crowded[0]} lie along every axis, so none shows bare noise")

    def run(self, trials: int, seed: int = 0) -> NoiseReport:
        """Play so many runs, trial t from `seed + t`, and report on the noise in them."""
        if trials < 2:
            raise InvalidInput(f"trials is {trials}; at least 2 are needed to compare runs")
        plan = self._plan
        if plan.queries < 2:
            raise InvalidInput("each agent answers one query; at least 2 are needed to compare them")
        answers = self._answers(trials, seed)
        noises = [self._noise(agent, *answers[agent]) for agent in self.seen]
        found = [check for noise in noises for check in checks_of(noise)]
        found += joint_checks(noises)
        risk = self.false_alarm / len(found)
        return NoiseReport(
            trials=trials,
            queries=plan.queries,
            false_alarm=self.false_alarm,
            agents=tuple(
                AgentNoise(
                    agent=noise.agent,
                    sigma=sigma_estimate(noise, risk),
                    rate=rate_estimate(noise, risk),
                    queries=plan.queries,
                    privacy=self.world.privacy,
                )
                for noise in noises
            ),
            checks=tuple(found),
        )

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
    def seen(self) -> tuple[int, ...]:
        """The agents whose answers are all reconstructed exactly."""
        return tuple(agent for agent in range(self.view.agents) if self.view.exact(agent).all())

    @cached_property
    def _plan(self) -> Plan:
        return plan_of(self.world, self.view.queries)

    def _answers(self, trials: int, seed: int) -> dict[int, tuple[Float[Tensor, "trials queries params"], float]]:
        """Play, and return every seen agent's answers L·g̃/C, and how far rounding may have moved them."""
        world, sent = self.world, list[tuple[Tensor, ...]]()
        results = world.play(trials, present=False, seed=seed, sources=self.sources, taps=[sent.append])
        models = torch.cat([result.theta for result in results])
        model = FlatModel(make_module(world.model, seed), world.loss)
        first = starts(model, world.model, seed=seed, trials=trials, agents=world.data.agents, same_start=True)
        seen = self.view.arrange(sent, first, models=models)
        largest = max(float(tensor.abs().max()) for tensor in (first, models, *chain(*sent)))
        rounding = torch.finfo(models.dtype).eps * largest
        answers = {}
        for agent in self.seen:
            weights = self.view.recover(agent) * self._plan.lot_sizes[agent] / self._plan.clips[agent]
            error = rounding * float(weights.abs().sum(dim=1).max())
            share = error / self._plan.noise_multipliers[agent]
            if not share < _MOST_ROUNDING:
                raise InvalidInput(
                    f"rounding of messages may be {share:.0%} of agent {agent}'s noise; take a larger step size or "
                    "fewer rounds"
                )
            answers[agent] = weights @ seen, error
        return answers

    def _records(self, agent: int) -> Float[Tensor, "records params"]:
        """Return an agent's clipped gradients, in clipping norms."""
        data, clip = self.world.data, torch.tensor(self._plan.clips[agent], dtype=torch.float64)
        gradients = data.dataset.train.table[data.indices[agent]].double()
        return gradients * clip_factors(gradients.norm(dim=1), clip)[:, None] / clip

    def _quiet(self, agent: int) -> Bool[Tensor, " params"]:
        return (self._records(agent) == 0).all(dim=0)

    def _noise(self, agent: int, answers: Float[Tensor, "trials queries params"], error: float) -> Noise:
        records, plan = self._records(agent), self._plan
        total = records.sum(dim=0)
        direction = total / total.norm().clamp(min=1e-12)
        return Noise(
            agent=agent,
            bare=answers[:, :, self._quiet(agent)] / plan.noise_multipliers[agent],
            drawn=answers @ direction,
            pulls=records @ direction,
            rate=plan.sample_rates[agent],
            sigma=plan.noise_multipliers[agent],
            rounding=error / plan.noise_multipliers[agent],
        )
