"""The curious neighbour with a natural record: its gradient changes with θ, and other records share its direction.

Observers of the target's whole neighbourhood reconstruct every answer and every θ at which the target was asked. There they compute
the record's gradient and project the answer on it. This is the informed attacker that differential privacy assumes: it knows all
other records of the target, though not which were drawn, and allows for what they add in that direction.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from torch import Tensor

from tacit.audit.attacks.collection import Scores
from tacit.audit.attacks.curious import CuriousAgents
from tacit.audit.attacks.one_run_scores import likelihoods
from tacit.data import Records
from tacit.errors import InvalidInput
from tacit.models import FlatModel


@dataclass(frozen=True, kw_only=True, eq=False)
class NaturalNeighbor(CuriousAgents):
    """Observers who see the whole neighbourhood of the target, in any world whose rule is linear."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_target()
        if self.plan.masks is not None:
            raise InvalidInput(
                "a natural record cannot be attacked behind masks: the points at which the target was asked are masked, too; use a "
                "dirac world and a Coalition"
            )
        if not bool(self.view.exact(self.world.target).all()):
            raise InvalidInput(
                f"the observers {list(self.observers)} do not see all of agent {self.world.target}'s answers; with a natural "
                "record they must, since its gradient depends on where the target was asked. Let all of its neighbours observe"
            )

    def scores(self, trials: int, *, present: bool, seed: int) -> Scores:
        """Play this many runs and score each. The messages of a run are kept until it is scored."""
        world = self.world
        sent: list[tuple[Tensor, ...]] = []
        results = world.play(trials, present=present, seed=seed, sources=self.sources, taps=[sent.append])
        model = results[0].model
        starts = world.starts(model, trials, seed)
        ratios = []
        for trial, result in enumerate(results):
            own = slice(trial * world.data.agents, (trial + 1) * world.data.agents)
            messages = [tuple(tensor[own] for tensor in tensors) for tensors in sent]
            seen = self.view.arrange(messages, starts[own], models=result.theta)[0]
            ratios.append(self._ratio(model, seen, starts[own].double()))
        return {"likelihood": np.array(ratios)}

    def _ratio(
        self, model: FlatModel, seen: Float[Tensor, "seen params"], starts: Float[Tensor, "agents params"]
    ) -> float:
        """Return the log-likelihood ratio of one run."""
        weights, from_starts = self._points
        points = (weights @ seen + from_starts @ starts).to(model.dtype)
        answers = zip(points, self.weights @ seen, strict=True)
        return float(likelihoods(model, *self._records, answers, self.plan, self.world.target))

    @cached_property
    def _records(self) -> tuple[Records, Records]:
        """The canary, and all other records of the target."""
        held = self.world.data.dataset.train.take(self.world.data.indices[self.world.target])
        return self.world.prepared(self.world.canary), self.world.prepared(held)

    @cached_property
    def _points(self) -> tuple[Tensor, Tensor]:
        rows, from_starts = self.responses.points(self.world.target)
        return self.view.rebuild(rows), from_starts
