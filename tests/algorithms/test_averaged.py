"""Models averaged over rounds; their equation is in `test_against_reference.py`."""

from typing import NamedTuple

import networkx as nx
import pytest
import torch
from torch import nn

import tacit


def settings():
    data = tacit.data.synthetic(records=60, features=4, classes=3, held_out=12, seed=3).split(3, tacit.data.IID())
    return {
        "model": lambda: nn.Linear(4, 3),
        "data": data,
        "graph": nx.cycle_graph(3),
        "privacy": tacit.Privacy(epsilon=2.0, delta=1e-3, clip=1.0, lot_size=5),
        "lr": 0.3,
        "sources": tacit.Seeded(4),
        "rounds": 6,
    }


def test_an_average_is_of_the_rules_own_models_and_costs_nothing():
    shared = settings()
    plain = tacit.train(tacit.DSGT(), **shared)
    last = tacit.train(tacit.Averaged(tacit.DSGT(), decay=0.0), **shared)
    mean = tacit.train(tacit.Averaged(tacit.DSGT(), decay=0.99), **shared)
    assert torch.equal(plain.theta, last.theta)
    assert not torch.equal(plain.theta, mean.theta)
    assert plain.guarantees() == mean.guarantees()
    assert plain.bytes_sent == mean.bytes_sent
    assert "dsgt, averaged" in repr(mean)


def test_a_decay_that_is_none_is_refused():
    with pytest.raises(tacit.TacitError, match=r"decay is 1\.0; it must lie in \[0, 1\)"):
        tacit.Averaged(tacit.DSGD(), decay=1.0)


@pytest.mark.parametrize("rule", [tacit.DSGD, 3])
def test_what_is_no_rule_is_refused(rule):
    with pytest.raises(tacit.TacitError, match="give an instance with init and round"):
        tacit.Averaged(rule)


class Widened(NamedTuple):
    theta: torch.Tensor


class Broadcasting:
    """Returns one row for all agents."""

    def init(self, theta):
        return Widened(theta)

    def round(self, state, at):
        return Widened(state.theta[:1])


class Lost:
    """Returns no models."""

    def init(self, theta):
        return Widened(theta)

    def round(self, state, at):
        return 3


@pytest.mark.parametrize("rule", [Broadcasting(), Lost()])
def test_a_rule_that_returns_other_models_is_named(rule):
    with pytest.raises(tacit.TacitError, match=rf"{type(rule).__name__}\.round must return a state"):
        tacit.train(tacit.Averaged(rule), **settings())


def test_what_holds_for_a_rule_holds_for_its_average():
    with pytest.raises(tacit.TacitError, match="sgd trains one agent"):
        tacit.train(tacit.Averaged(tacit.Averaged(tacit.SGD())), **settings())
