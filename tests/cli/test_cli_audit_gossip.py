"""What agents learn of each other from gossip, on the command line."""

import networkx as nx
import pytest

import tacit
from tacit.graphs.mixing import mixing_matrix
from tacit.privacy.accounting import epsilon
from tacit.privacy.event import Event
from tests.cli.invoking import answer, complaint, document

PATH = ("audit", "gossip", "--graph", "path", "--agents", 3, "--exchanges", 2)


def test_the_far_end_of_a_path_sees_everything():
    """The published bound gives it 0.333 of the local µ²."""
    found = document(*PATH)
    near, far = found["distances"]
    assert (near["pairs"], far["pairs"]) == (4, 2)
    assert far["share"] == 1.0
    assert far["epsilon"] == near["epsilon"] == pytest.approx(1.0, abs=1e-4)
    assert found["published"][0][2] == pytest.approx(1 / 3, abs=1e-3)
    third = Event(sample_rate=1.0, noise_multiplier=found["local"]["noise_multiplier"] * 3**0.5, count=1)
    assert far["published_epsilon"] == pytest.approx(epsilon([third], delta=1e-5), rel=1e-2)
    assert [found["epsilon"][agent][agent] for agent in range(3)] == [None] * 3


def test_epsilon_of_every_pair_is_that_of_the_library():
    found = document("audit", "gossip", "--graph", "star", "--agents", 5, "--exchanges", 1, "--delta", 1e-3)
    library = tacit.audit.pairwise(nx.star_graph(4), exchanges=1)
    assert found["share"] == library.share.tolist()
    exact = library.epsilon(found["local"]["noise_multiplier"], 1e-3)
    assert all(found["epsilon"][u][v] == float(exact[u, v]) for u in range(5) for v in range(5) if u != v)
    assert [row["distance"] for row in found["distances"]] == [1, 2]
    assert found["distances"][1]["epsilon"] == 0  # one exchange reaches neighbours alone


def test_accelerated_gossip_takes_the_gap_of_the_graph():
    found = document("audit", "gossip", "--agents", 6, "--exchanges", 3, "--accelerated")
    assert found["gap"] == pytest.approx(tacit.graphs.spectral_gap(mixing_matrix(nx.cycle_graph(6))))
    assert found["share"] == tacit.audit.pairwise(nx.cycle_graph(6), exchanges=3, gap=found["gap"]).share.tolist()


def test_it_says_that_no_guarantee_follows():
    said = " ".join(answer(*PATH).split())
    assert "path of 3 agents · 2 exchanges of gossip" in said
    assert "no guarantee for training, and no ε of a run rests on it" in said


def test_bad_numbers_are_refused():
    assert "exchanges" in complaint("audit", "gossip", "--exchanges", 0)
    assert "delta" in complaint("audit", "gossip", "--agents", 3, "--delta", 2)
