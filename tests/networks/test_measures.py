"""What a schedule does to disagreement, by name and in numbers."""

import numpy as np
import pytest

from tacit.errors import GraphError, InvalidInput
from tacit.graphs import mixing_matrix, ring, spectral_gap
from tacit.networks import Several, as_topology, base_graphs, measure_schedule, schedule
from tacit.networks.schedules import text_of
from tacit.runs.specs import parse_links


def test_a_graph_that_stays_contracts_by_its_spectral_gap():
    measures = measure_schedule(as_topology(ring(10)))
    assert measures.of_a_round == pytest.approx(1 - spectral_gap(mixing_matrix(ring(10))), abs=1e-12)
    assert (measures.rounds, measures.pairs, measures.most_neighbors, measures.messages) == (1, 10, 2, 2.0)


def test_an_exact_average_leaves_nothing_and_a_slow_schedule_something():
    assert measure_schedule(base_graphs(10)).contraction == 0
    moving = measure_schedule(schedule("moving", 10, reach=0.5))
    assert 0 < moving.contraction < 1e-9
    assert 0 < moving.of_a_round < 1


def test_all_of_a_cycle_in_one_round_is_an_average():
    measures = measure_schedule(Several(base_graphs(10, peers=2), 4))
    assert (measures.rounds, measures.window, measures.contraction) == (1, 1, 0.0)


@pytest.mark.parametrize(("text", "symmetric"), [("one_peer_exponential", False), ("matchings", True), ("base", True)])
def test_a_schedule_that_real_peers_could_not_use_is_reported(text, symmetric):
    measures = measure_schedule(parse_links(text, 10))
    assert measures.symmetric is measures.to_dict()["symmetric"] is symmetric


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("matchings", None),
        ("one-peer-exponential", 4),
        ("base", 6),
        ("base:peers=2,exchanges=2", 2),
        ("moving:reach=0.6", None),
    ],
)
def test_schedules_go_by_name(text, period):
    topology = parse_links(text, 10, seed=1)
    assert (topology.agents, topology.period) == (10, period)


def test_chance_follows_the_seed():
    one, other = (parse_links(text, 10, seed=1).at(3)[0].heard.toarray() for text in ("matchings", "matchings:seed=2"))
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("moving", "moving needs reach; write it as in moving:reach=0.4"),
        ("base:pers=2", "did you mean 'peers'"),
        ("base:reach=2", "unknown option of 'base' 'reach'"),
        ("base:peers=x", "is a whole number, got 'x'"),
        ("moving:reach=-1", "reach is -1.0; it must be positive"),
        ("base:exchanges=0", "0 exchanges in a round"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises((GraphError, InvalidInput), match=message):
        parse_links(text, 10)


def test_too_many_agents_are_not_measured():
    with pytest.raises(GraphError, match="too large to be measured"):
        measure_schedule(schedule("matchings", 3000))


@pytest.mark.parametrize(
    "text",
    ["matchings:seed=3", "moving:reach=0.5,leg=4,window=9,seed=2", "base:peers=2", "matchings:seed=1,exchanges=2"],
)
def test_a_shipped_schedule_is_named_by_the_text_that_makes_it_again(text):
    assert text_of(parse_links(text, 10, seed=0)) == text
