"""Agents are placed so that few rows cross and ranks have as much to do."""

import sys

import networkx as nx
import numpy as np
import pytest

from tacit import graphs
from tacit.cluster import place
from tacit.cluster.leading import describe_placement
from tacit.cluster.placement import Placement, count_halo, whole_weights
from tacit.errors import InvalidInput
from tacit.networks import RandomMatchings, as_topology
from tacit.networks.sharded import find_crossing, ranks_of


def shuffled_grid(side, seed=0):
    """A grid whose agents are numbered at random: cuts by number are bad."""
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(side, side))
    order = np.random.default_rng(seed).permutation(side * side).tolist()
    return nx.relabel_nodes(grid, dict(enumerate(order)))


def test_a_ring_is_cut_by_numbers_and_each_cut_costs_two_rows():
    best = place(as_topology(graphs.ring(12)), 3, np.ones(12))[0]
    assert best.shards == (tuple(range(4)), tuple(range(4, 8)), tuple(range(8, 12)))
    assert best.halo == 6
    assert best.halo_per_agent == 0.5


def test_metis_wins_where_numbers_say_nothing():
    best, other = place(as_topology(shuffled_grid(12)), 4, np.ones(144))
    assert (best.kind, other.kind) == ("METIS", "contiguous")
    assert best.halo < other.halo / 3
    assert max(map(len, best.shards)) <= 38
    assert sorted(agent for own in best.shards for agent in own) == list(range(144))


def test_lots_are_shared_out_evenly_and_everyone_hosts_somebody():
    lots = np.array([100.0, 1, 1, 1, 1, 1, 1, 1])
    shards = place(as_topology(graphs.ring(8)), 3, lots, "contiguous")[0].shards
    assert shards[0] == (0,)
    assert all(shards)
    assert [len(own) for own in place(None, 8, lots)[0].shards] == [1] * 8


@pytest.mark.parametrize(("agents", "ranks", "sizes"), [(5, 2, [2, 3]), (25, 2, [12, 13]), (9, 6, [1, 2, 1, 2, 1, 2])])
def test_equal_lots_are_cut_at_the_same_place_whatever_their_size(agents, ranks, sizes):
    """The middle of an agent lies at the cut, so that rounding would decide on which side it is."""
    for lot in (1.0, 0.7, 3.3, 3.3 * 1.1, 6.4, 10.1, 12.8 * 0.9, 25.6):
        assert [len(own) for own in place(None, ranks, np.full(agents, lot))[0].shards] == sizes, lot


def test_weights_of_any_number_of_agents_fit_what_metis_adds_them_up_in():
    lots = np.array([100.0, 50.0, 0.01])
    assert whole_weights(lots).tolist() == [1000, 500, 1]
    many = whole_weights(np.tile([64.0, 32.0], 2_500_000))
    assert many.sum() < 2**31
    assert many[0] == pytest.approx(2 * many[1], rel=0.01)


def test_halo_counts_what_crosses_on_links_that_change():
    matchings = RandomMatchings(10, seed=1)
    best = place(matchings, 2, np.ones(10), "contiguous")[0]
    rank_of = ranks_of(best.shards, 10)
    counted = []
    for number in range(16):
        (links,) = matchings.at(number)
        counted.append(count_halo(links, rank_of))
        assert counted[-1] == sum(len(find_crossing(links, rank_of, rank, 2).received) for rank in range(2))
    assert best.halo == np.mean(counted)


def test_bad_placements_are_refused(monkeypatch):
    ring = as_topology(graphs.ring(4))
    with pytest.raises(InvalidInput, match="5 workers for 4 agents: each worker hosts at least one, so use at most 4"):
        place(ring, 5, np.ones(4))
    with pytest.raises(InvalidInput, match="placement is 'best'"):
        place(ring, 2, np.ones(4), "best")
    monkeypatch.setitem(sys.modules, "pymetis", None)
    assert len(place(ring, 2, np.ones(4))) == 1
    with pytest.raises(InvalidInput, match=r"needs pymetis: .*tacit\[metis\]"):
        place(ring, 2, np.ones(4), "metis")


@pytest.mark.parametrize(
    ("shards", "halo", "words"),
    [
        (((0,), (1,)), 2.0, "2, each with 1 agent; metis placement: 1 row crosses for each agent"),
        (((0, 1), (2,)), 6.0, "2, each with 1 to 2 agents; metis placement: 2 rows cross for each agent"),
    ],
)
def test_a_placement_is_described_in_words(shards, halo, words):
    assert describe_placement(Placement("metis", shards, halo), []) == words
