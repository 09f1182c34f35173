"""The paper's attack: whoever sees the final models asks how low their loss on the record is.

It is weaker than a neighbour who sees every message, and needs nothing but the models.
"""

from dataclasses import dataclass

import torch

from tacit.algorithms import DSGD, DSGT, RULES, SGD, DiNNO, Momentum
from tacit.algorithms.interface import Algorithm
from tacit.audit.attacks.collection import Scores
from tacit.audit.attacks.world import World
from tacit.audit.attacks.worlds import images
from tacit.data import DataSet
from tacit.errors import choose
from tacit.privacy import Privacy, Sources
from tacit.privacy.event import Event
from tacit.training.schedules import LogSpaced, Schedule

# Rules, clipping norms and step sizes. The paper gives none for this attack, and with those of its large runs a network on 300
# images drowns in noise. Of the steps tried for DSGT (0.003 to 1), the canary moves its loss most with 0.1. For the others no
# search was made.
SETTINGS: dict[str, tuple[Algorithm, float, float | Schedule]] = {
    "sgd": (SGD(step=Momentum(0.9)), 1.0, 0.02),
    "dsgd": (DSGD(), 1.0, 0.1),
    "dsgt": (DSGT(), 1.0, 0.1),
    "dinno": (DiNNO(), 1.0, LogSpaced(0.01, 0.0005)),
}
_CLIP, _LR = 1.0, 0.1


def settings_for(rule: str) -> tuple[Algorithm, float, float | Schedule]:
    """Return a rule, its clipping norm and its step size for this attack; rules without settings of their own have those of DSGD."""
    if rule in SETTINGS:
        return SETTINGS[rule]
    return RULES[choose("algorithm", rule, RULES)](), _CLIP, _LR


@dataclass(frozen=True, kw_only=True, eq=False)
class Membership:
    """An attack on the final models of a world."""

    world: World
    sources: Sources | None = None

    @property
    def event(self) -> Event:
        """The target's mechanism, as stated."""
        return self.world.event

    def scores(self, trials: int, *, present: bool, seed: int) -> Scores:
        """Train this many systems; the score is minus the loss on the canary, averaged over the agents' models."""
        world = self.world
        inputs, targets = world.data.dataset.prepare(world.canary.inputs), world.canary.targets
        results = world.play(trials, present=present, seed=seed, sources=self.sources)
        with torch.no_grad():
            losses = [[float(each.model.losses(theta, inputs, targets)) for theta in each.theta] for each in results]
        return {"loss": -torch.tensor(losses, dtype=torch.float64).mean(dim=1).numpy()}


def paper_attack(
    data_set: DataSet, rule: str, *, epsilon: float, delta: float, rounds: int, lot_size: float = 10.0
) -> Membership:
    """Return the paper's attack on one of its algorithms, or on any other shipped rule."""
    algorithm, clip, lr = settings_for(rule)
    privacy = Privacy(epsilon=epsilon, delta=delta, clip=clip, lot_size=lot_size)
    return Membership(world=images(data_set, algorithm, privacy=privacy, rounds=rounds, lr=lr, compile=True))
