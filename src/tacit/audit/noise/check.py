"""The cheapest attack: take the noise out of what neighbours see, and compare it with what is stated.

Where a record's gradient is the record itself, whoever sees an agent's answers exactly knows L·g̃/C = Σ clipped/C + σξ except for
the lot. Along axes in which no record lies that is pure noise; along the records' sum it counts who was drawn. Both are compared
with the stated σ and q, and the noise of agents, rounds and runs with one another (`noise_statistics`).

It finds faults of noise and lots only: a gradient that is not clipped goes unnoticed.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tacit.audit.attacks.curious import CuriousAgents
from tacit.audit.attacks.worlds import first_output
from tacit.audit.noise import noise_statistics as statistics
from tacit.audit.noise.report import AgentNoise, NoiseReport
from tacit.errors import InvalidInput
from tacit.privacy.gradients.clipping import clip_factors

_MOST_ROUNDING = 1e-2  # of float32 messages, as a share of the noise


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseCheck(CuriousAgents):
    """Observers, alone or as a coalition, who test the noise of every agent whose answers they see exactly.

    world: a `noise_world`, or a `dirac` one, in which lots show less.
    false_alarm: the highest probability that a system that is as stated fails.
    """

    false_alarm: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        world = self.world
        if world.loss is not first_output:
            raise InvalidInput(
                "noise can be separated from gradients only where those are known; use noise_world or dirac"
            )
        if not 0 < self.false_alarm < 1:
            raise InvalidInput(f"false_alarm is {self.false_alarm}; it must lie strictly between 0 and 1")
        if world.target not in self.seen:
            raise InvalidInput(
                f"observers {list(self.observers)} cannot reconstruct all answers of agent {world.target}, the target; "
                f"they can of agents {list(self.seen)}"
            )
        if crowded := [agent for agent in self.seen if not self._without_records(agent).any()]:
            raise InvalidInput(f"records of agent {crowded[0]} lie along every axis, so none shows pure noise")

    def run(self, trials: int, seed: int = 0) -> NoiseReport:
        """Play this many runs, trial t with seed `seed + t`, and report on their noise."""
        if trials < 2:
            raise InvalidInput(f"trials is {trials}; at least 2 are needed to compare runs")
        if self.plan.queries < 2:
            raise InvalidInput("each agent answers one query; at least 2 are needed to compare them")
        noises = self._play(trials, seed)
        tests = [test for noise in noises for test in statistics.check_agent(noise)] + statistics.check_between_agents(
            noises
        )
        risk = self.false_alarm / len(tests)
        return NoiseReport(
            trials=trials,
            queries=self.plan.queries,
            false_alarm=self.false_alarm,
            agents=tuple(
                AgentNoise(
                    agent=noise.agent,
                    sigma=statistics.estimate_sigma(noise, risk),
                    rate=statistics.estimate_rate(noise, risk),
                    queries=self.plan.queries,
                    privacy=self.world.privacy,
                )
                for noise in noises
            ),
            checks=tuple(tests),
        )

    @cached_property
    def seen(self) -> tuple[int, ...]:
        """The agents whose answers are all reconstructed exactly."""
        return tuple(agent for agent in range(self.view.agents) if self.view.exact(agent).all())

    def _play(self, trials: int, seed: int) -> list[statistics.RecoveredNoise]:
        """Play runs without the canary, and return the noise of every agent that is seen."""
        world, plan, sent = self.world, self.plan, list[tuple[Tensor, ...]]()
        results = world.play(trials, present=False, seed=seed, sources=self.sources, taps=[sent.append])
        models = torch.cat([result.theta for result in results])
        first = world.starts(results[0].model, trials, seed)
        seen = self.view.arrange(sent, first, models=models)
        rounding = torch.finfo(models.dtype).eps * max(
            float(each.abs().max()) for each in (first, models, *chain(*sent))
        )
        noises = []
        for agent in self.seen:
            sigma = plan.noise_multipliers[agent]
            weights = self.view.recover(agent) * plan.lot_sizes[agent] / plan.clips[agent]
            share = rounding * float(weights.abs().sum(dim=1).max()) / sigma
            if not share < _MOST_ROUNDING:
                raise InvalidInput(
                    f"rounding of messages may be {share:.0%} of agent {agent}'s noise; take a larger step size or "
                    "fewer rounds"
                )
            answers, records = weights @ seen, self._records(agent)
            total = records.sum(dim=0)
            direction = total / total.norm().clamp(min=1e-12)
            noises.append(
                statistics.RecoveredNoise(
                    agent=agent,
                    bare=answers[:, :, self._without_records(agent)] / sigma,
                    drawn=answers @ direction,
                    pulls=records @ direction,
                    rate=plan.sample_rates[agent],
                    sigma=sigma,
                    rounding=share,
                )
            )
        return noises

    def _records(self, agent: int) -> Float[Tensor, "records params"]:
        """Return an agent's clipped gradients, in clipping norms."""
        data, clip = self.world.data, torch.tensor(self.plan.clips[agent], dtype=torch.float64)
        gradients = data.dataset.train.table[data.indices[agent]].double()
        return gradients * clip_factors(gradients.norm(dim=1), clip)[:, None] / clip

    def _without_records(self, agent: int) -> Bool[Tensor, " params"]:
        return (self._records(agent) == 0).all(dim=0)
