"""The cheapest attack: take the noise out of what neighbours see, and compare it with what is stated.

Where a record's gradient is the record itself, whoever sees an agent's answers exactly knows L·g̃/C = Σ clipped/C + σξ except for
the lot. Along axes in which no record lies that is pure noise; along the records' sum it counts who was drawn. Both are compared
with the stated σ and q, and the noise of agents, rounds and runs with one another (`noise_statistics`).

Where agents share masks, the noise of all agents together is compared with the stated covariance Σ = diag(a²) + b²·Lap of the key graph.
What the others' noise leaves of agent i's, [Σ⁻¹n]ᵢ, must have the size that protects i from an observer of all messages who has no keys,
and the sum of all agents' noise must have the variance Σa².

It finds faults of noise and lots only: a gradient that is not clipped goes unnoticed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tacit.audit.attacks.curious import CuriousAgents
from tacit.audit.attacks.known_masks import hidden_covariance
from tacit.audit.attacks.worlds import first_output
from tacit.audit.noise import noise_statistics as statistics
from tacit.audit.noise.discrete_scores import scores_of_agent
from tacit.audit.noise.report import AgentNoise, NoiseReport
from tacit.errors import InvalidInput
from tacit.privacy.gradients.clipping import clip_factors

_MOST_ROUNDING = 1e-2  # of float32 messages, as a share of the noise


class _Separated(NamedTuple):
    """One agent's noise in stated units: what the others leave of it, independent of theirs, and its σ without and with theirs."""

    bare: Tensor
    apart: Tensor
    sigma: float
    whole_sigma: float


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
        if self.plan.bands:
            raise InvalidInput("these tests are of independent noise; use Privacy without bands")
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
        noises, total = self._play(trials, seed)
        tests = [test for noise in noises for test in statistics.check_agent(noise)]
        tests += statistics.check_between_agents(noises)
        if total is not None:
            tests += statistics.check_sum(total, self.seen)
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
        view = self.plain_view
        return tuple(agent for agent in range(view.agents) if view.exact(agent).all())

    def _play(self, trials: int, seed: int) -> tuple[list[statistics.RecoveredNoise], Tensor | None]:
        """Play runs without the canary; return the noise of every agent that is seen and, with masks, their sum in stated units."""
        world, plan, sent = self.world, self.plan, list[tuple[Tensor, ...]]()
        results = world.play(trials, present=False, seed=seed, sources=self.sources, taps=[sent.append])
        models = torch.cat([result.theta for result in results])
        first = world.starts(results[0].model, trials, seed)
        seen = self.plain_view.arrange(sent, first, models=models)
        rounding = torch.finfo(models.dtype).eps * max(
            float(each.abs().max()) for each in (first, models, *chain(*sent))
        )
        answers: list[Tensor] = []
        rounded: list[float] = []
        for agent in self.seen:
            weights = self.plain_view.recover(agent) * plan.lot_sizes[agent] / plan.clips[agent]
            share = rounding * float(weights.abs().sum(dim=1).max()) / plan.noise_multipliers[agent]
            if not share < _MOST_ROUNDING:
                raise InvalidInput(
                    f"rounding of messages may be {share:.0%} of agent {agent}'s noise; take a larger step size or "
                    "fewer rounds"
                )
            answers.append(weights @ seen)
            rounded.append(share)
        apart, total = self._separate(answers, seed)
        noises = []
        for place, agent in enumerate(self.seen):
            records = self._records(agent)
            whole = records.sum(dim=0)
            direction = whole / whole.norm().clamp(min=1e-12)
            noises.append(
                statistics.RecoveredNoise(
                    agent=agent,
                    bare=apart[place].bare,
                    apart=apart[place].apart,
                    drawn=answers[place] @ direction,
                    pulls=records @ direction,
                    rate=plan.sample_rates[agent],
                    sigma=apart[place].sigma,
                    drawn_sigma=apart[place].whole_sigma,
                    rounding=rounded[place],
                )
            )
        return noises, total

    def _separate(
        self, answers: Sequence[Float[Tensor, "trials queries params"]], seed: int
    ) -> tuple[list[_Separated], Tensor | None]:
        """Return the noise of the agents that are seen, with the other agents' taken out of it, and its sum if there are masks."""
        plan = self.plan
        if plan.masks is None:
            # Discrete noise is stated in units of the length that a rounded vector has at most.
            room = 1.0 if plan.rounding is None else plan.rounding.bound(1.0)
            found = []
            for agent, answer in zip(self.seen, answers, strict=True):
                sigma, bare = plan.noise_multipliers[agent], answer[:, :, self._without_records(agent)]
                chance = np.random.default_rng([seed, agent])
                scaled = bare / sigma
                if plan.rounding is not None:
                    scaled = torch.from_numpy(scores_of_agent(bare.numpy(), plan, agent, chance))
                found.append(_Separated(scaled, scaled, sigma, sigma * room))
            return found, None
        units = torch.tensor([plan.clips[agent] / plan.lot_sizes[agent] for agent in self.seen], dtype=torch.float64)
        axes = torch.stack([self._without_records(agent) for agent in self.seen]).all(dim=0)
        if not axes.any():
            raise InvalidInput(
                "agents' records lie along every axis, so none shows the noise of all agents; use noise_world"
            )
        noise = torch.stack([answer[:, :, axes] for answer in answers], dim=-1) * units
        covariance = hidden_covariance(plan.masks, ())[list(self.seen)][:, list(self.seen)]
        values, vectors = torch.linalg.eigh(covariance)
        inverse = torch.linalg.inv(covariance)
        left = noise @ inverse / inverse.diagonal().sqrt()
        white = noise @ (vectors / values.sqrt()) @ vectors.T
        alone, whole = inverse.diagonal().rsqrt() / units, covariance.diagonal().sqrt() / units
        total = noise.sum(dim=-1) / covariance.sum().sqrt()
        found = [
            _Separated(left[..., place], white[..., place], float(alone[place]), float(whole[place]))
            for place in range(len(self.seen))
        ]
        return found, total

    def _records(self, agent: int) -> Float[Tensor, "records params"]:
        """Return an agent's clipped gradients, in clipping norms."""
        data, clip = self.world.data, torch.tensor(self.plan.clips[agent], dtype=torch.float64)
        gradients = data.dataset.train.table[data.indices[agent]].double()
        return gradients * clip_factors(gradients.norm(dim=1), clip)[:, None] / clip

    def _without_records(self, agent: int) -> Bool[Tensor, " params"]:
        return (self._records(agent) == 0).all(dim=0)
