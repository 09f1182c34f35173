"""A whole run, private gradients and all, is the same to the bit wherever its agents are hosted."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from hosted_runs import AGENTS, GRAPHS, RULES, make_data, played, to_the_end, training

import tacit
from tacit import algorithms
from tacit.errors import DataError, InvalidInput, PrivacyError
from tacit.models.hashing import models_sha256
from tacit.networks import Loopback
from tacit.training.runtimes import Stacked, Wired


@pytest.fixture(scope="module")
def data():
    return make_data()


def everyone_apart(settings):
    """Play every agent as a process of its own would: with its own records, source, ledger and network alone.

    Sessions are made one after another: a start follows from torch's global generator, which a process has for itself.
    """
    wires, failed = Loopback(AGENTS, timeout=60), []
    sessions = [
        tacit.Session(
            replace(settings, data=settings.data.only([agent]), sizes=settings.data.sizes),
            Wired(agent, AGENTS, wires.end(agent)),
        )
        for agent in range(AGENTS)
    ]

    def run(agent):
        try:
            to_the_end(sessions[agent])
        except BaseException as error:
            failed.append(error)
        finally:
            wires.leave(agent)

    threads = [threading.Thread(target=run, args=(agent,)) for agent in range(AGENTS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if failed:
        raise failed[0]
    return sessions


# Every rule and every graph in a quick run, all pairs in a slow one.
PAIRS = [
    pytest.param(rule, where, marks=() if number % len(RULES) == place else pytest.mark.slow)
    for place, rule in enumerate(RULES)
    for number, where in enumerate(GRAPHS)
]


@pytest.mark.parametrize(("rule", "where"), PAIRS)
def test_a_run_is_the_same_to_the_bit_wherever_its_agents_are_hosted(rule, where, data):
    settings = training(data, RULES[rule], GRAPHS[where])
    together, apart = played(settings), everyone_apart(settings)
    thetas = torch.cat([each.state.theta for each in apart])
    assert torch.equal(together.state.theta, thetas)
    (whole,) = together.results()
    assert models_sha256(thetas) == models_sha256(whole.theta)
    assert together.network.bytes_sent.tolist() == [int(each.network.bytes_sent[0]) for each in apart]
    assert together.cost.bytes_sent.tolist() == [int(each.cost.bytes_sent[0]) for each in apart]
    assert together.cost.bytes_sent.tolist() == together.network.bytes_sent.tolist()


# What came after, each on links that it allows; their networks are compared in `tests/networks`.
FAMILY = {
    "pate": (algorithms.PATE(teachers=3, records=20, answers=12, teacher_steps=4), "ring"),
    "local-dsgd": (algorithms.LocalDSGD(), "irregular"),
    "d2": (algorithms.D2(), "ring"),
    "extra": (algorithms.EXTRA(), "ring"),
    "choco": (algorithms.ChocoSGD(), "irregular"),
    "deepsqueeze": (algorithms.DeepSqueeze(), "base"),
    "sdm-dsgd": (algorithms.SDMDSGD(), "ring"),
    "q-dpsgd-1": (algorithms.QDPSGD1(), "base"),
    "q-dpsgd-2": (algorithms.QDPSGD2(), "base"),
    "dp-srm": (algorithms.DPSRM(), "irregular"),
    "leasgd": (algorithms.LEASGD(), "base"),
    "muffliato": (algorithms.Muffliato(exchanges=2), "irregular"),
    "ad-psgd": (algorithms.ADPSGD(), "matchings"),
    "dsgd by medians": (algorithms.Robust(tacit.DSGD()), "irregular"),
}
ROUNDED = tacit.Privacy(
    noise_multiplier=1.5,
    delta=1e-5,
    clip=[0.5, 1.0, 1.0, 2.0, 1.0],
    lot_size=8,
    noise=tacit.Discrete(),
    accountant="rdp",
)


def test_every_shipped_rule_that_exchanges_is_hosted_apart():
    assert {name for name, line in algorithms.RULES.lines.items() if line.exchanges} <= {*RULES, *FAMILY}


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each == "pate" else pytest.mark.slow) for each in FAMILY]
)
def test_the_family_is_the_same_to_the_bit_wherever_agents_are_hosted(name, data):
    rule, where = FAMILY[name]
    settings = training(data, rule, GRAPHS[where], **({"privacy": ROUNDED} if name == "q-dpsgd-2" else {}))
    together, apart = played(settings), everyone_apart(settings)
    assert torch.equal(together.state.theta, torch.cat([each.state.theta for each in apart]))
    assert together.network.bytes_sent.tolist() == [int(each.network.bytes_sent[0]) for each in apart]
    (whole,) = together.results()
    assert [each.results()[0].guarantees()[0] for each in apart] == whole.guarantees()


MASKED = {
    "complete keys": tacit.Cancelling(curious=1, ratio=2.0),
    "keys of the graph, ratio by the rule": tacit.Cancelling(curious=1, keys="graph"),
    "two lost": tacit.Cancelling(curious=1, lost=2, ratio=1.0),
}


@pytest.mark.parametrize(
    ("rule", "where", "noise"),
    [
        ("dsgd", "irregular", "complete keys"),
        ("dsgt", "ring", "keys of the graph, ratio by the rule"),
        ("dsgt", "base", "two lost"),
        ("ranked", "ring", "complete keys"),
    ],
)
def test_masks_are_the_same_to_the_bit_wherever_their_ends_are_hosted(rule, where, noise, data):
    privacy = tacit.Privacy(noise_multiplier=1.5, delta=1e-5, clip=[0.5, 1, 1, 2, 1], lot_size=8, noise=MASKED[noise])
    settings = training(data, RULES[rule], GRAPHS[where], privacy=privacy)
    together, apart = played(settings), everyone_apart(settings)
    assert together.plan.masks is not None
    assert all(each.plan == together.plan for each in apart)
    assert torch.equal(together.state.theta, torch.cat([each.state.theta for each in apart]))
    for agent, session in enumerate(apart):
        (result,), (whole,) = session.results(), together.results()
        for observer in (None, tacit.Observer(2), tacit.Observer()):
            assert result.guarantees(observer) == [whole.guarantees(observer)[agent]]


def test_rounds_of_gossip_exchanges_and_absences_agree_as_well(data):
    settings = training(
        data,
        tacit.DSGT(),
        GRAPHS["ring"],
        rounds=4,
        gossip_rounds=2,
        exchanges_per_query=2,
        absences=[tacit.Absence(1, 1, 3), tacit.Absence(4, 2, rekey=3)],
        privacy=tacit.Privacy(
            noise_multiplier=1.5, delta=1e-5, clip=1.0, lot_size=8, noise=tacit.Cancelling(lost=1, ratio=1.0)
        ),
    )
    together, apart = played(settings), everyone_apart(settings)
    assert torch.equal(together.state.theta, torch.cat([each.state.theta for each in apart]))
    assert together.network.bytes_sent.tolist() == [int(each.network.bytes_sent[0]) for each in apart]
    assert together.cost.bytes_sent.tolist() == together.network.bytes_sent.tolist()


def test_secret_masks_are_refused_where_their_ends_are_in_different_processes(data):
    """Every process would draw keys of its own, and masks would not cancel."""
    privacy = tacit.Privacy(noise_multiplier=1.5, delta=1e-5, clip=1.0, lot_size=8, noise=MASKED["complete keys"])
    settings = training(data, tacit.DSGT(), GRAPHS["ring"], privacy=privacy, sources=tacit.Secret())
    own = replace(settings, data=data.only([2]), sizes=data.sizes)
    with pytest.raises(PrivacyError, match=r"1 of 5 agents are hosted here.*masks would not cancel between processes"):
        tacit.Session(own, Wired(2, AGENTS, Loopback(AGENTS).end(2)))
    assert tacit.Session(settings).plan.masks is not None
    local = replace(own, privacy=replace(privacy, noise=None))
    assert tacit.Session(local, Wired(2, AGENTS, Loopback(AGENTS).end(2))).plan.masks is None


def test_an_agent_by_itself_is_charged_for_its_own_records_alone(data):
    settings = training(data, tacit.DSGT(), GRAPHS["ring"])
    whole, apart = played(settings).results()[0], everyone_apart(settings)
    for agent, session in enumerate(apart):
        (result,) = session.results()
        assert session.ledger.owners == (data.owners[agent],)
        assert result.guarantees() == [whole.guarantees()[agent]]
        assert result.history[-1].loss == pytest.approx(whole.history[-1].loss[[agent]])
        assert np.isnan(result.consensus_distance)
        assert result.samples_per_second > 0
        assert len(session.training.data.dataset.train) == data.sizes[agent]


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_two_threads_and_compiled_steps_agree_as_well(data, compiled):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        settings = training(data, tacit.DSGT(), GRAPHS["ring"], compile=compiled)
        together, apart = played(settings), everyone_apart(settings)
    finally:
        torch.set_num_threads(before)
    assert {session.chosen.compiled for session in (together, *apart)} == {compiled}
    assert torch.equal(together.state.theta, torch.cat([each.state.theta for each in apart]))


def test_without_privacy_runtimes_agree_as_well(data):
    settings = training(data, tacit.DSGT(), GRAPHS["irregular"], privacy=tacit.NoPrivacy(lot_size=8), sources=None)
    thetas = torch.cat([each.state.theta for each in everyone_apart(settings)])
    assert torch.equal(played(settings).state.theta, thetas)


def test_all_agents_of_several_trials_count_as_they_send(data):
    settings = training(data, tacit.DSGT(), [GRAPHS["ring"], GRAPHS["star"]], lr=0.1)
    both = played(settings, Stacked(2))
    assert both.cost.bytes_sent.tolist() == both.network.bytes_sent.tolist()
    assert len(set(both.cost.bytes_sent[:AGENTS])) == 1 < len(set(both.cost.bytes_sent[AGENTS:]))


def test_trials_that_protect_other_units_than_their_training_are_refused(data):
    settings = training(data, tacit.DSGT(), GRAPHS["ring"], lr=0.1)
    per_patient = replace(settings.privacy, unit=tacit.privacy.Unit("patient", most=2))
    with pytest.raises(PrivacyError, match="the same units as their training"):
        tacit.Session(settings, Stacked(2), privacies=[per_patient] * 2)


def test_what_an_agent_by_itself_cannot_do_is_refused(data):
    settings, wires = training(data, tacit.DSGT(), GRAPHS["ring"]), Loopback(AGENTS)
    alone = Wired(2, AGENTS, wires.end(2))
    with pytest.raises(InvalidInput, match="the data is that of 5; give only its own"):
        tacit.Session(settings, alone)
    own = replace(settings, data=data.only([2]))
    with pytest.raises(InvalidInput, match="1 of 5 agents are hosted here; give sizes"):
        tacit.Session(own, alone)
    with pytest.raises(InvalidInput, match="one order only"):
        tacit.Session(replace(own, sizes=data.sizes, any_order=True), alone)
    with pytest.raises(InvalidInput, match="agent 5 is not among 5"):
        Wired(5, AGENTS, wires.end(4))
    with pytest.raises(DataError, match="there is no agent 7"):
        data.only([7])


def test_what_some_agents_hold_is_without_anybody_elses_records(data):
    own = data.only([3, 1])
    assert own.owners == (data.owners[3], data.owners[1])
    assert own.sizes == (data.sizes[3], data.sizes[1])
    assert len(own.dataset.train) == sum(own.sizes)
    assert torch.equal(own.dataset.train.inputs[own.indices[1]], data.dataset.train.inputs[data.indices[1]])
