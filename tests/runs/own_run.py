"""A run of one's own: data, a model and rules that are not shipped, and how it is stopped."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import tacit
from tacit.data import IID, DataSet
from tacit.privacy import PrivateOracle

PRIVATE = tacit.Privacy(noise_multiplier=3.0, delta=1e-5, clip=1.0, lot_size=20)


def own_data(count=200, shift=0.0):
    """Records of one's own, for four agents."""
    chance = torch.Generator().manual_seed(5)
    inputs = torch.randn(count + 60, 6, generator=chance) + shift
    targets = (inputs[:, 0] > 0).long() + 2 * (inputs[:, 1] > 0).long()
    own = DataSet.from_records(
        name="own",
        train=(inputs[:count], targets[:count]),
        validation=(inputs[count : count + 30], targets[count : count + 30]),
        test=(inputs[-30:], targets[-30:]),
        classes=4,
    )
    return own.split(4, IID())


WIDTH = 5


def net():
    return nn.Sequential(nn.Linear(6, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 4))


@dataclass(frozen=True)
class Halving:
    """A rule of one's own, which this module can name."""

    factor: float = 0.5

    def init(self, theta):
        return tacit.DSGD().init(theta)

    def round(self, state, at):
        theta = at.exchange(state.theta).mix() - self.factor * at.lr * at.gradient(state.theta)
        return state._replace(theta=theta)


def given(**changes):
    return {
        "model": lambda: net(),
        "data": own_data(),
        "graph": tacit.graphs.ring(4),
        "privacy": PRIVATE,
        "rounds": 12,
        "lr": 0.5,
        "sources": tacit.Seeded(0),
        "evaluate_every": 3,
        **changes,
    }


OBJECTS = ("model", "data")  # those of `given` that no name stands for


def stop(monkeypatch, after):
    """Let training end with an error after so many answers, as a program's own mistake would."""
    gradient, made = PrivateOracle.gradient, []

    def limited(self, theta):
        if len(made) == after:
            raise KeyboardInterrupt
        made.append(1)
        return gradient(self, theta)

    monkeypatch.setattr(PrivateOracle, "gradient", limited)


def stopped(runs, monkeypatch, rule=None, *, after=7, **changes):
    settings = given(**changes)
    with monkeypatch.context() as patch:
        stop(patch, after)
        with pytest.raises(KeyboardInterrupt):
            tacit.train(rule or tacit.DSGT(), **settings, run="one", runs=runs, checkpoint_every=5)
    return settings


def narrow():
    return nn.Sequential(nn.Linear(6, 4))


def smoothed(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)
