"""The paper's attack: whoever sees the final models asks how well they know the record.

Weaker than a neighbour who saw every message, and it needs nothing but models: a low loss on the canary speaks for its
having been learned.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

from tacit.algorithms import DSGD, DSGT, SGD, DiNNO, Momentum
from tacit.algorithms.interface import Algorithm
from tacit.audit.attacks.collecting import Scores
from tacit.audit.attacks.worlds import World, images, plan_of
from tacit.data import DataSet
from tacit.networks import StackedNetwork
from tacit.privacy import Plan, Privacy, Sources
from tacit.privacy.accounting import Event
from tacit.training.counting import count
from tacit.training.preparation import connect
from tacit.training.schedules import LogSpaced, Schedule, as_schedule

# Rules, clipping norms and step sizes. The paper does not name any for this attack, and those of its large runs drown a
# network on 300 images in noise. Of the steps tried for DSGT (0.003 to 1), 0.1 makes the canary move its loss most. For
# the others none were searched.
SETTINGS: dict[str, tuple[Algorithm, float, float | Schedule]] = {
    "sgd": (SGD(step=Momentum(0.9)), 1.0, 0.02),
    "dsgd": (DSGD(), 1.0, 0.1),
    "dsgt": (DSGT(), 1.0, 0.1),
    "dinno": (DiNNO(), 1.0, LogSpaced(0.01, 0.0005)),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Membership:
    """An attack on the final models of a world."""

    world: World
    sources: Sources | None = None

    @cached_property
    def plan(self) -> Plan:
        """What the agents promise."""
        world = self.world
        agents = world.data.agents
        (topology,) = connect(
            world.graph, "metropolis", allow_drift=False, agents=agents, trials=1, rounds=world.rounds
        )
        cost = count(
            world.algorithm,
            world.rounds,
            as_schedule(world.lr),
            lambda device: StackedNetwork(topology, device=device),
            seed=0,
        )
        return plan_of(world, cost.queries)

    @property
    def event(self) -> Event:
        """The target's mechanism, as it is stated."""
        return self.plan.event(self.world.target)

    def scores(self, trials: int, *, present: bool, seed: int) -> Scores:
        """Train so many systems; each scores minus the loss of its agents' models on the canary, on average."""
        world = self.world
        results = world.play(trials, present=present, seed=seed, sources=self.sources)
        inputs = world.data.dataset.prepare(world.canary.inputs)
        with torch.no_grad():
            losses = [
                [float(result.model.losses(theta, inputs, world.canary.targets)) for theta in result.theta]
                for result in results
            ]
        return {"loss": -torch.tensor(losses, dtype=torch.float64).mean(dim=1).numpy()}


def paper_attack(
    data_set: DataSet, rule: str, *, epsilon: float, delta: float, rounds: int, lot_size: float = 10.0
) -> Membership:
    """Return the paper's attack on one of its algorithms."""
    algorithm, clip, lr = SETTINGS[rule]
    privacy = Privacy(epsilon=epsilon, delta=delta, clip=clip, lot_size=lot_size)
    return Membership(world=images(data_set, algorithm, privacy=privacy, rounds=rounds, lr=lr, compile=True))
