"""A user's files with a model, a loss, a rule, data and graphs, and settings that name them."""

from tacit.runs.config import RunConfig

STUDY = '''
"""A study of one's own: records, model, loss, rule and graph."""
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

import tacit


class Net(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(input_shape[0], 6), nn.Tanh(), nn.Linear(6, classes))

    def forward(self, inputs):
        return self.layers(inputs)


def small():
    return nn.Linear(4, 3)


def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)


smoothed = nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)


class State(NamedTuple):
    theta: torch.Tensor
    velocity: torch.Tensor


@dataclass(frozen=True)
class Heavy:
    decay: float = 0.9

    def init(self, theta):
        return State(theta, torch.zeros_like(theta))

    def round(self, state, at):
        velocity = self.decay * state.velocity + at.gradient(state.theta)
        return State(at.exchange(state.theta - at.lr * velocity).mix(), velocity)


light = Heavy(decay=0.1)


def whole():
    chance = torch.Generator().manual_seed(3)
    inputs = torch.randn(150, 4, generator=chance)
    targets = (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0).long()
    return tacit.data.DataSet.from_records(
        name="study", train=(inputs[:120], targets[:120]), validation=(inputs[120:], targets[120:]), classes=3
    )


def clinics():
    data = whole()
    rows = data.train.inputs.split(40), data.train.targets.split(40)
    return tacit.data.AgentData.from_parts(
        list(zip(*rows)), name="clinics", owners=["north", "south", "west"], classes=3,
        validation=(data.validation.inputs, data.validation.targets),
    )


records = clinics()


def numbers():
    chance = torch.Generator().manual_seed(3)
    inputs = torch.randn(90, 4, generator=chance)
    return tacit.data.DataSet.from_records(name="line", train=(inputs, inputs.sum(dim=1)))


def line():
    return nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))


def squared(outputs, targets):
    return (outputs - targets) ** 2


def along(agents):
    return tacit.graphs.path(agents)


def by_seed(agents, seed):
    return tacit.networks.RandomMatchings(agents, seed=seed)


triangle = tacit.graphs.ring(3)
'''


ODD = """
from torch import nn

number = 3
made = nn.Linear(4, 3)


class Wide(nn.Module):
    def __init__(self, width):
        super().__init__()


class Rule:
    def __init__(self, rho):
        self.rho = rho

    def init(self, theta):
        return theta

    def round(self, state, at):
        return state


def fails():
    return 1 / 0


def nothing():
    return None


def graph_fails(agents):
    raise KeyError("no such place")


def needs_more(agents, radius):
    return None
"""


BASE = {
    "dataset": "study.py:clinics",
    "model": "study.py:Net",
    "loss": "study.py:loss",
    "algorithm": "study.py:Heavy",
    "graph": "study.py:along",
    "noise_multiplier": 3.0,
    "lot_size": 10,
    "rounds": 12,
    "lr": 0.1,
    "source": "seeded",
    "checkpoint_every": 5,
    "evaluate_every": 3,
}


def config(**changes):
    return RunConfig.of(BASE | changes)


def play(runner, *, stop_after=None):
    with runner:
        return runner.play(stop=lambda: stop_after is not None and runner.session.round >= stop_after)
