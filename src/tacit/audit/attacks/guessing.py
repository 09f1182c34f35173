"""An attacker who guesses the key of the lots or of the noise. A right guess undoes the sampling, or removes the noise."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.audit.attacks.world import World
from tacit.privacy import Plan, Sources
from tacit.privacy.randomness import Stream


@dataclass(frozen=True, kw_only=True)
class Guess:
    """The guess that lots, or noise, of trial t come from `sources.make(agents, t)`."""

    name: str
    of: Literal["lots", "noise"]
    sources: Sources

    def scores(
        self, answers: Float[Tensor, "trials queries"], world: World, plan: Plan, first: int = 0
    ) -> Float[np.ndarray, " trials"]:
        """Return scores of the record's presence if the guess is right. Rows are trials from `first` on; answers are in clipping norms."""
        score = self._by_lots if self.of == "lots" else self._by_noise
        return np.array([score(row, world, plan, trial) for trial, row in enumerate(answers, start=first)])

    def _streams(self, world: World, trial: int, count: int) -> list[Stream]:
        source = self.sources.make(world.data.agents, trial)[world.target]
        return [source.next() for _ in range(count)]

    def _by_lots(self, answers: Tensor, world: World, plan: Plan, trial: int) -> float:
        """Add up the log-likelihood ratios of the queries whose lots would contain the record, which is the target's last."""
        records, noise = world.data.sizes[world.target], plan.noise_multipliers[world.target]
        below = int(plan.sample_rates[world.target] * 2.0**64)
        drawn = [int(stream.words(records + 1)[-1]) < below for stream in self._streams(world, trial, len(answers))]
        return float(((2 * answers - 1) / (2 * noise**2))[torch.tensor(drawn)].sum())

    def _by_noise(self, answers: Tensor, world: World, plan: Plan, trial: int) -> float:
        """Subtract the noise and return the largest remainder, which is 0 or 1 if the guess is right.

        A stream first gives one number per record for the lot, so one more with the record: both counts are tried.
        """
        records, noise = world.data.sizes[world.target], plan.noise_multipliers[world.target]
        left = []
        for held in (records, records + 1):
            streams = self._streams(world, trial, len(answers))
            drawn = torch.tensor([_noise_along(stream, held, world) for stream in streams], dtype=torch.float64)
            left.append(answers - noise * drawn)
        best = min(left, key=lambda rest: float(rest.abs().median()))
        return float(best.max())


def _noise_along(stream: Stream, records: int, world: World) -> float:
    stream.words(records)
    direction = world.direction.numpy()
    return float(stream.normals(len(direction)) @ direction)
