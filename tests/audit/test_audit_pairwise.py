"""What gossip shows of every agent to every other one, from the joint view."""

import math

import networkx as nx
import numpy as np
import pytest

from tacit import graphs
from tacit.audit import pairwise
from tacit.errors import InvalidInput
from tacit.privacy import Event, epsilon


def seen(weights, observer, exchanges, gamma=1.0):
    """All that one agent sees, as combinations of everybody's noisy values, written from the equation."""
    before, now, rows = None, np.eye(len(weights)), []
    heard = [other for other in range(len(weights)) if weights[observer][other] > 0]
    for number in range(exchanges):
        rows += [now[other] for other in heard]
        after = weights @ now if number == 0 else gamma * weights @ now + (1 - gamma) * before
        before, now = now, after
    return np.array(rows)


def share_of(rows, target):
    """µ² of the target's value in the rows: the squared length of its unit vector within their span."""
    basis = np.linalg.svd(rows)[2][: np.linalg.matrix_rank(rows, tol=1e-9)]
    return float((basis[:, target] ** 2).sum())


def test_the_far_end_of_a_path_of_three_sees_everything():
    """The published bound says a third."""
    found = pairwise(nx.path_graph(3), exchanges=2)
    assert float(found.share[0, 2]) == pytest.approx(1.0, abs=1e-6)
    assert float(found.published[0, 2]) == pytest.approx(1 / 3)
    once = pairwise(nx.path_graph(3), exchanges=1)
    assert (float(once.share[0, 2]), float(once.published[0, 2])) == (0.0, 0.0)


@pytest.mark.parametrize("gap", [None, 0.3])
@pytest.mark.parametrize(
    "graph", [graphs.ring(6), nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4)])], ids=["ring", "irregular"]
)
def test_shares_are_those_of_the_whole_view(graph, gap):
    weights = graphs.mixing_matrix(graph).toarray()
    gamma = 1.0 if gap is None else 2 * (1 - math.sqrt(gap * (1 - gap / 4))) / (1 - gap / 2) ** 2
    found = pairwise(graph, exchanges=3, gap=gap)
    for observer in graph:
        rows = seen(weights, observer, 3, gamma)
        for target in graph:
            assert float(found.share[target, observer]) == pytest.approx(share_of(rows, target), abs=1e-5)


def test_epsilon_is_that_of_the_share_that_is_seen():
    """A leaf of a star hears the hub's value, and the sum of all others' in the hub's second message."""
    found = pairwise(graphs.star(5), exchanges=2)
    assert float(found.share[3, 1]) == pytest.approx(1 / 3, abs=1e-5)
    against = found.epsilon(noise_multiplier=2.0, delta=1e-5)
    assert math.isinf(against[1, 1])
    for share, got in ((1.0, against[0, 1]), (1 / 3, against[3, 1])):
        expected = epsilon([Event(sample_rate=1.0, noise_multiplier=2.0 / share**0.5, count=1)], delta=1e-5)
        assert float(got) == pytest.approx(expected, rel=1e-4)
    far = pairwise(graphs.ring(6), exchanges=2).epsilon(noise_multiplier=2.0, delta=1e-5)
    assert far[0, 3] == 0.0, "two exchanges do not reach over three links"


def test_no_exchanges_are_refused():
    with pytest.raises(InvalidInput, match="exchanges is 0"):
        pairwise(graphs.ring(6), exchanges=0)
