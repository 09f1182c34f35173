"""Links that change keep the average in every round and join all agents over a stated number of rounds."""

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from tacit.errors import GraphError
from tacit.graphs import complete, ring
from tacit.networks import (
    Changing,
    Cycle,
    Links,
    Moving,
    RandomMatchings,
    Several,
    Static,
    as_links,
    as_topology,
    base_graphs,
    check_topology,
    one_peer_exponential,
)


def product(topology, rounds):
    weights = np.eye(topology.agents)
    for number in range(rounds):
        for links in topology.at(number):
            weights = links.weights.toarray() @ weights
    return weights


@pytest.mark.parametrize("peers", [1, 2, 3, 4])
def test_base_graphs_average_exactly_with_few_peers(peers):
    for agents in range(1, 41):
        cycle = base_graphs(agents, peers=peers)
        np.testing.assert_allclose(product(cycle, len(cycle.each)), 1 / agents, rtol=0, atol=1e-12)
        assert max(links.degrees.max() for links in cycle.each) <= peers
        check_topology(cycle, 100)


def test_base_graphs_of_ten_take_as_many_rounds_as_published():
    assert [len(base_graphs(10, peers=peers).each) for peers in (1, 2)] == [6, 4]


def test_one_peer_exponential_graphs_contract_and_average_powers_of_two():
    ten = one_peer_exponential(10)
    assert not any(links.symmetric for links in ten.each[:2])
    assert np.linalg.norm(product(ten, 4) - 0.1, 2) == pytest.approx(0.19, abs=0.005)
    np.testing.assert_allclose(product(one_peer_exponential(8), 3), 1 / 8, rtol=0, atol=1e-15)
    check_topology(ten, 50)


@pytest.mark.parametrize("agents", [1, 2, 3, 6, 7])
def test_matchings_pair_everyone_and_follow_from_the_round(agents):
    matchings, again = RandomMatchings(agents, seed=4), RandomMatchings(agents, seed=4)
    check_topology(matchings, 300)
    met = set()
    for number in (5, 3, 200):
        (links,), (same,) = matchings.at(number), again.at(number)
        assert (links.heard != same.heard).nnz == 0
        assert sorted(links.degrees.tolist()) == [0] * (agents % 2) + [1] * (agents - agents % 2)
        met.add(links.heard.toarray().tobytes())
    assert len(met) > 1 or agents < 3


def test_agents_that_move_hear_whoever_is_near():
    moving = Moving(12, reach=0.4, leg=5, seed=2)
    for number in (0, 3, 17):
        places = moving.places(number)
        near = np.linalg.norm(places[:, None] - places[None], axis=2) <= 0.4
        np.testing.assert_array_equal(moving.at(number)[0].heard.toarray() > 0, near & ~np.eye(12, dtype=bool))
        assert (places >= 0).all()
        assert (places <= 1).all()
    steps = np.linalg.norm(moving.places(7) - moving.places(6), axis=1)
    assert steps.max() < 1.5 / 5


def test_weights_of_graphs_that_fall_apart_keep_the_average():
    apart = nx.Graph([(0, 1), (2, 3)])
    links = as_links(apart)
    np.testing.assert_allclose(links.weights.toarray().sum(0), 1)
    assert links.degrees.tolist() == [1, 1, 1, 1]


def halves(number):
    return nx.Graph([(0, 1), (2, 3)])


@pytest.mark.parametrize(
    ("topology", "rounds", "message"),
    [
        (
            Changing(halves, 4),
            10,
            "2 groups that hear nothing of each other in round 0; .* in every round, or the window must be longer",
        ),
        (Changing(halves, 4, window=3), 10, "2 groups .* within rounds 0 to 2"),
        (Changing(lambda k: ring(4) if k < 7 else nx.empty_graph(4), 4), 10, "4 groups .* round 7"),
        (Changing(lambda k: ring(4 + (k == 5)), 4), 10, "in round 5 there are 5 agents instead of 4"),
        (Changing(lambda k: np.full((4, 4), 0.3), 4), 10, "in round 0, row 0 .* 1.2 instead of one"),
        (Changing(lambda k: [[1, 0], [1, 0]], 2), 10, "in round 0, column 0 .* 2 instead of one"),
        (Changing(lambda k: [[2, -1], [-1, 2]], 2), 10, "in round 0, agent 0 takes -1 of agent 1; .* not negative"),
        (
            Static(Links.of(sparse.csr_array(np.full((3, 3), 1 / 3)), as_links(nx.path_graph(3)).heard)),
            10,
            "in round 0, agent 0 takes 0.333333 of agent 2, whom it does not hear",
        ),
        (Changing(lambda k: nx.DiGraph([(0, 1), (1, 0)]), 2), 10, "a directed graph cannot be mixed over"),
        (Changing(lambda k: "ring", 2), 10, "links are a graph or a matrix of weights"),
        (Changing(lambda k: nx.Graph([("a", "b")]), 2), 10, "numbered from 0"),
        (Static(Links.of(sparse.csr_array(np.eye(3)))), 10, "3 groups"),
        (Moving(10, reach=0.01), 40, "groups that hear nothing"),
    ],
)
def test_what_cannot_mix_is_refused_by_its_round(topology, rounds, message):
    with pytest.raises(GraphError, match=message):
        check_topology(topology, rounds)


def test_every_window_of_rounds_is_checked():
    """Against all windows, one by one, of schedules with few links in a round."""
    chance, refused = np.random.default_rng(0), 0
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0)]
    for _ in range(150):
        window, rounds = int(chance.integers(1, 6)), 12
        there = chance.random((rounds, len(pairs))) < chance.uniform(0.2, 1)
        each = [[pair for pair, used in zip(pairs, row, strict=True) if used] for row in there]
        graphs = [nx.Graph(edges) for edges in each]
        for graph in graphs:
            graph.add_nodes_from(range(4))
        apart = [
            end
            for end in range(window - 1, rounds)
            if not nx.is_connected(nx.compose_all(graphs[end - window + 1 : end + 1]))
        ]
        topology = Changing(graphs.__getitem__, 4, window=window)
        if not apart:
            check_topology(topology, rounds)
            continue
        refused += 1
        named = f"round {apart[0]};" if window == 1 else f"rounds {apart[0] - window + 1} to {apart[0]};"
        with pytest.raises(GraphError, match=named):
            check_topology(topology, rounds)
    assert 20 < refused < 130


def test_links_that_are_heard_and_not_weighed_join_nobody():
    links = Links.of(sparse.csr_array(np.eye(4)), as_links(ring(4)).heard)
    with pytest.raises(GraphError, match="4 groups"):
        check_topology(Static(links), 10)


def test_a_cycle_must_join_all_agents_within_one_turn():
    check_topology(as_topology([nx.Graph([(0, 1), (2, 3)]), nx.Graph([(1, 2), (0, 3)])]), 10)
    with pytest.raises(GraphError, match="rounds 0 to 1"):
        check_topology(as_topology([halves(0), halves(1)]), 10)
    with pytest.raises(GraphError, match="at least one"):
        Cycle(())
    with pytest.raises(GraphError, match=r"for \[3, 4\] agents"):
        as_topology([ring(3), ring(4)])


def test_several_exchanges_use_as_many_rounds_of_another_topology():
    base = base_graphs(10)
    several = Several(base, 4)
    assert [links for number in range(3) for links in several.at(number)] == [*base.each, *base.each]
    assert (several.period, several.agents) == (3, 10)
    check_topology(several, 30)
    with pytest.raises(GraphError, match="0 exchanges"):
        Several(base, 0)


def test_a_graph_gives_the_weights_of_its_rule():
    (links,) = as_topology(complete(4), mixing="max_degree").at(3)
    np.testing.assert_allclose(links.weights.toarray(), 0.25)
    assert links.of_agent(2)[0].tolist() == [0, 1, 3]
    assert links.hearing(2).tolist() == [0, 1, 3]
    with pytest.raises(GraphError, match="a topology is a graph"):
        as_topology(3)


ONE_WAY = 0.5 * np.eye(4) + 0.5 * np.roll(np.eye(4), 1, axis=1)
LOPSIDED = np.array([[0.5, 0.5, 0], [0.25, 0.5, 0.25], [0.25, 0, 0.75]])


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, lambda own: [own.tolist()]])
def test_a_matrix_of_weights_may_be_one_way(form):
    topology = as_topology(form(ONE_WAY))
    check_topology(topology, 10)
    (links,) = topology.at(7)
    np.testing.assert_array_equal(links.weights.toarray(), ONE_WAY)
    assert (links.degrees.tolist(), links.listeners.tolist()) == ([1] * 4, [1] * 4)


@pytest.mark.parametrize(
    ("links", "symmetric", "balanced"),
    [
        (as_links(ring(5)), True, True),
        (as_links(nx.star_graph(4)), True, True),
        (as_links(ONE_WAY), False, True),
        (Links.of(sparse.csr_array(ONE_WAY), as_links(ring(4)).heard), False, True),  # heard both ways, weighed one way
        (as_links(LOPSIDED), False, False),
    ],
)
def test_links_know_whether_they_are_symmetric_and_balanced(links, symmetric, balanced):
    check_topology(Static(links), 1)
    assert (links.symmetric, links.balanced) == (symmetric, balanced)
