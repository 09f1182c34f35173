"""Rounds of gossip, several exchanges for a query, and agents that are away."""

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit import graphs
from tacit.errors import GraphError, InvalidInput, PrivacyError
from tacit.networks import base_graphs, one_peer_exponential
from tacit.training.absences import Absence, Absences, WithAbsences

AGENTS = 6


@pytest.fixture(scope="module")
def data():
    chance = torch.Generator().manual_seed(2)
    inputs, targets = torch.randn(160, 6, generator=chance), torch.randint(0, 3, (160,), generator=chance)
    table = tacit.data.DataSet.from_records(
        name="made up", train=(inputs[:120], targets[:120]), validation=(inputs[120:], targets[120:]), classes=3
    )
    return table.split(AGENTS, tacit.data.IID(), seed=0)


def session(data, rule=None, **changes):
    settings = {
        "model": lambda: nn.Linear(6, 3),
        "data": data,
        "privacy": tacit.Privacy(noise_multiplier=1.0, delta=1e-5, clip=1.0, lot_size=5),
        "rounds": 4,
        "lr": 0.3,
        "graph": graphs.ring(AGENTS),
        "sources": tacit.Seeded(1),
        "same_start": False,
        "compile": False,
    }
    return tacit.Session(tacit.Training(algorithm=rule or tacit.DSGT(), **settings | changes))


def play(made, until=None):
    while not made.finished and (until is None or made.round < until):
        made.advance()
    return made


def weights(graph):
    return torch.from_numpy(graphs.mixing_matrix(graph).toarray()).float()


def test_rounds_of_gossip_mix_the_models_and_ask_nothing(data):
    made = play(session(data, gossip_rounds=3), until=4)
    before, asked, steps = made.state, made.oracle.queries, weights(graphs.ring(AGENTS))
    play(made)
    assert made.round == 7
    assert made.oracle.queries == asked == made.cost.queries == 4
    expected = steps @ (steps @ (steps @ before.theta))
    torch.testing.assert_close(made.state.theta, expected)
    assert torch.equal(made.state.tracker, before.tracker)
    made.close()
    assert made.accounts[0].state == "finished"
    assert made.network.bytes_sent.tolist() == made.cost.bytes_sent.tolist()


def test_step_sizes_end_with_the_rule_and_not_with_gossip(data):
    plain, longer = (play(session(data, gossip_rounds=n, lr=tacit.LogSpaced(1.0, 0.01)), until=4) for n in (0, 3))
    assert torch.equal(plain.state.theta, longer.state.theta)


def test_several_exchanges_for_a_query_are_an_exact_average_on_base_graphs(data):
    schedule = base_graphs(AGENTS, peers=1)
    made = play(session(data, tacit.DSGT(), graph=schedule, exchanges_per_query=schedule.window))
    spread = (made.state.theta - made.state.theta.mean(0)).abs().max()
    assert float(spread) < 1e-6
    assert made.cost.queries == 4
    apart = play(session(data, tacit.DSGT(), graph=schedule))
    assert float((apart.state.theta - apart.state.theta.mean(0)).abs().max()) > 1e-2
    assert made.network.bytes_sent.sum() == schedule.window * apart.network.bytes_sent.sum()


def test_several_exchanges_are_refused_by_a_rule_that_sums_neighbours(data):
    with pytest.raises(InvalidInput, match="neighbours"):
        session(data, tacit.DiNNO(), exchanges_per_query=2)


@pytest.mark.parametrize("rule", [tacit.DSGD(), tacit.DSGT(), tacit.DiNNO(), tacit.Averaged(tacit.DSGT())])
def test_an_agent_that_is_away_keeps_its_state_and_comes_back(rule, data):
    made = play(session(data, rule, rounds=6, absences=[Absence(2, 1, 4)]), until=1)
    there, sent = made.state.theta.clone(), made.network.bytes_sent.copy()
    play(made, until=4)
    assert torch.equal(made.state.theta[2], there[2])
    assert not torch.equal(made.state.theta[1], there[1])
    assert made.network.bytes_sent[2] == sent[2]
    assert made.network.bytes_sent[5] > sent[5]
    play(made)
    assert not torch.equal(made.state.theta[2], there[2])


def test_tracking_stays_exact_and_duals_sum_to_zero_while_agents_come_and_go(data):
    away = [Absence(2, 1, 4), Absence(0, 3, 5), Absence(5, 6)]
    tracked = session(data, tacit.DSGT(), rounds=8, absences=away)
    duals = session(data, tacit.DiNNO(step=tacit.Plain()), rounds=8, lr=0.05, absences=away)
    while not tracked.finished:
        tracked.advance()
        # What an agent that is away still holds of the others' gradients is what it mixed last.
        state = tracked.state
        torch.testing.assert_close(state.mixed_tracker.mean(0), state.gradient.mean(0), atol=1e-6, rtol=1e-5)
        duals.advance()
        assert float(duals.state.dual.sum(0).abs().max()) < 1e-5


def test_links_among_those_who_are_there_keep_the_average():
    made = WithAbsences(_static(nx.wheel_graph(AGENTS)), Absences([Absence(0, 2), Absence(3, 2, 4)], AGENTS))
    assert made.at(1)[0].degrees.tolist() == [5, 3, 3, 3, 3, 3]
    (links,) = made.at(2)
    assert links.degrees.tolist() == [0, 2, 1, 0, 1, 2]
    matrix = links.weights.toarray()
    assert matrix.sum(0) == pytest.approx(np.ones(AGENTS))
    assert matrix.sum(1) == pytest.approx(np.ones(AGENTS))
    assert matrix[0, 0] == matrix[3, 3] == 1
    assert made.at(5)[0].degrees.tolist() == [0, 2, 2, 2, 2, 2]


def _static(graph):
    from tacit.networks import as_topology

    return as_topology(graph)


def masked(data, **changes):
    noise = tacit.Cancelling(curious=1, lost=changes.pop("lost", 0), ratio=50.0)
    privacy = tacit.Privacy(noise_multiplier=1e-1, delta=1e-5, clip=1e-3, lot_size=5, noise=noise)
    settings = {"privacy": privacy, "lr": 1.0, "graph": graphs.complete(AGENTS), "same_start": True}
    return session(data, tacit.DSGD(), **settings | changes)


def average_moved(made, there):
    """How far a round moves the average of all who are there: by own noise alone, where masks cancel."""
    before = made.state.theta[there].mean(0)
    made.advance()
    return float((made.state.theta[there].mean(0) - before).square().mean().sqrt())


def test_masks_of_one_who_is_away_stay_in_the_average_until_keys_are_shared_without_it(data):
    """The average of the others is moved by uncancelled masks, about 50 times own noise, from round 2 to 4, and not before or after."""
    made = masked(data, lost=1, rounds=6, absences=[Absence(4, 2, rekey=4)])
    mask = made.plan.masks.size
    others = [agent for agent in range(AGENTS) if agent != 4]
    moved = [average_moved(made, list(range(AGENTS)) if number < 2 else others) for number in range(6)]
    assert max(*moved[:2], *moved[4:]) < 0.1 * mask
    assert all(each == pytest.approx(np.sqrt(5) / 5 * mask, rel=0.6) for each in moved[2:4])


def test_one_who_left_is_never_asked_without_masks(data):
    """A simulation still asks it and records the answers, which are charged as answers with masks. Its five masks have 3.5 to 6 of the
    variance of one in 21 numbers, but for once in thousands of seeds; this one is fixed."""
    made, answers = masked(data, lost=1, rounds=6, absences=[Absence(4, 2, rekey=4)]), []

    class Recording:
        def __init__(self, oracle):
            self.oracle = oracle

        def __getattr__(self, name):
            return getattr(self.oracle, name)

        def gradient(self, theta):
            answers.append(self.oracle.gradient(theta))
            return answers[-1]

    made.wrap_oracle(Recording)
    play(made)
    sizes = [float(each[4].square().mean().sqrt()) / made.plan.masks.size for each in answers]
    assert len(sizes) == 6
    assert min(sizes) > 1.2


def test_keys_are_shared_without_no_more_agents_than_the_noise_was_planned_for(data):
    with pytest.raises(PrivacyError, match=r"give Cancelling\(lost=1\)"):
        masked(data, absences=[Absence(4, 2, rekey=4)])
    made = masked(data, lost=1)
    with pytest.raises(PrivacyError, match="planned for 1"):
        made.real_oracle.leave_out([1, 2])


def test_absences_are_checked(data):
    for wrong, said in (
        ({"agent": -1, "first": 0}, "agent of an absence"),
        ({"agent": 0, "first": 3, "until": 3}, "until must be later than first"),
        ({"agent": 0, "first": 3, "until": 5, "rekey": 4}, "left for good"),
        ({"agent": 0, "first": 3, "rekey": 2}, "left for good"),
        ({"agent": 0, "first": 1.5}, "first of an absence"),
    ):
        with pytest.raises(InvalidInput, match=said):
            Absence(**wrong)
    with pytest.raises(InvalidInput, match="agent 9 is to be away"):
        session(data, absences=[Absence(9, 0)])
    with pytest.raises(InvalidInput, match="absences holds"):
        session(data, absences=[(1, 2)])
    with pytest.raises(GraphError, match="weights differ between the two directions"):
        play(session(data, graph=one_peer_exponential(AGENTS), absences=[Absence(1, 1, 2)]))
