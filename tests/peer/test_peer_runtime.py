"""A whole private run between peers is the stacked simulation's to the bit, also where links were skipped."""

import itertools
from dataclasses import dataclass, replace

import networkx as nx
import pytest
import torch
from consortium import MemoryJournal, Switch, play_apart
from torch import nn

import tacit
from tacit import algorithms, graphs
from tacit.data import DataSet
from tacit.errors import InvalidInput, PrivacyError
from tacit.networks import RandomMatchings
from tacit.networks.skipped import WithSkips
from tacit.networks.topology import as_topology
from tacit.peer.protocol.interface import CARRIES_MESSAGE, Kind, RecordKind
from tacit.peer.protocol.sqlite import SQLiteJournal
from tacit.peer.public_records import hash_of
from tacit.peer.runtime import Peer, SessionPlayer
from tacit.privacy.teacher_oracle import TeacherOracle

AGENTS, ROUNDS = 4, 3
GRAPHS = {"ring": graphs.ring(AGENTS), "irregular": nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3)])}
RULES = {"dsgd": tacit.DSGD(), "dsgt": tacit.DSGT(), "dinno": tacit.DiNNO(inner_steps=2)}
MASKS = tacit.Cancelling(curious=1, ratio=2.0)
NOISE = {"local noise": None, "masks": MASKS}


def make_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.Tanh(), nn.Linear(4, 3))


@pytest.fixture(scope="module")
def data():
    chance = torch.Generator().manual_seed(2)
    inputs, targets = torch.randn(200, 4, 4, generator=chance), torch.randint(0, 3, (200,), generator=chance)
    table = DataSet.from_records(
        name="made up", train=(inputs[:160], targets[:160]), validation=(inputs[160:], targets[160:]), classes=3
    )
    return table.split(AGENTS, tacit.data.IID(), seed=0)


def public_records(data, count=10):
    """Return what an agreement says of the records that teachers label."""
    return {"dataset": "made up", "records": count, "sha256": hash_of(data.dataset.with_pool(count).pool)}


def training(data, rule, graph, *, noise=None, **changes):
    settings = {
        "model": make_model,
        "data": data,
        "privacy": tacit.Privacy(noise_multiplier=1.5, delta=1e-5, clip=1.0, lot_size=8, noise=noise),
        "rounds": ROUNDS,
        "lr": 0.1,
        "graph": graph,
        "sources": tacit.Seeded(4),
        "step_agents": 1,
        "compile": False,
    }
    return tacit.Training(algorithm=rule, **settings | changes)


def play_together(settings):
    with tacit.Session(settings) as session:
        while not session.finished:
            session.advance()
    return session


def skipped_links(switch):
    """Return what was skipped by either end in each exchange, having checked that the other end says the same."""
    decided = {
        (record.slot, agent, record.neighbor): record.kind == RecordKind.USED
        for agent, core in switch.cores.items()
        for record in core._journal.read()
        if record.kind in (RecordKind.USED, RecordKind.SKIPPED)
    }
    skipped = {}
    for (slot, agent, other), used in decided.items():
        assert decided[slot, other, agent] == used
        if not used:
            skipped.setdefault(tuple(slot), set()).add((min(agent, other), max(agent, other)))
    return skipped


# Every rule, graph and noise in a quick run, all combinations in a slow one.
QUICK = {("dsgd", "ring", "local noise"), ("dsgt", "irregular", "masks"), ("dinno", "ring", "masks")}
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
    for case in itertools.product(RULES, GRAPHS, NOISE)
]


@pytest.mark.parametrize(("rule", "where", "noise"), CASES)
def test_a_run_between_peers_is_the_simulations_to_the_bit(rule, where, noise, data):
    settings = training(data, RULES[rule], GRAPHS[where], noise=NOISE[noise])
    together, apart = play_together(settings), play_apart(settings)
    assert torch.equal(together.state.theta, torch.cat([each.state.theta for each in apart]))
    assert together.network.bytes_sent.tolist() == [int(each.network.bytes_sent[0]) for each in apart]
    (whole,) = together.results()
    for agent, session in enumerate(apart):
        (result,) = session.results()
        assert result.guarantees() == [whole.guarantees()[agent]]


PATE = algorithms.PATE(teachers=4, records=10, answers=6, threshold=0.3, teacher_steps=3)
VOTES = tacit.Privacy(epsilon=20.0, delta=1e-3, clip=1.0, lot_size=8)
FAMILY = {
    "deepsqueeze": algorithms.DeepSqueeze(),
    "local-dsgd": algorithms.LocalDSGD(),
    "d2": algorithms.D2(),
    "extra": algorithms.EXTRA(),
    "q-dpsgd-1": algorithms.QDPSGD1(),
    "q-dpsgd-2": algorithms.QDPSGD2(),
    "dp-srm": algorithms.DPSRM(),
    "leasgd": algorithms.LEASGD(private_ranking=True, rank_every=1),
    "leasgd that ranks every other round": algorithms.LEASGD(private_ranking=True, rank_every=2),
    "muffliato": algorithms.Muffliato(exchanges=2),
    "ad-psgd": algorithms.ADPSGD(),
    "dsgd by medians": algorithms.Robust(tacit.DSGD()),
    "pate": PATE,
    "pate by medians": algorithms.Robust(PATE),
}
ROUNDED = tacit.Privacy(
    noise_multiplier=1.5, delta=1e-5, clip=1.0, lot_size=8, noise=tacit.Discrete(), accountant="rdp"
)
OWN_PRIVACY = {"q-dpsgd-2": ROUNDED, "pate": VOTES, "pate by medians": VOTES}
VARIANTS = {"dsgd by medians", "pate by medians", "leasgd that ranks every other round"}
REFUSED = {"choco", "sdm-dsgd"}


def test_every_shipped_rule_is_played_between_peers_or_refused():
    """`test_agreement.py` has the refusals."""
    exchanging = {name for name, line in algorithms.RULES.lines.items() if line.exchanges}
    assert exchanging == ({*RULES, *FAMILY} - VARIANTS) | REFUSED


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in ("deepsqueeze", "pate") else pytest.mark.slow) for each in FAMILY]
)
def test_the_family_between_peers_is_the_simulations_to_the_bit(name, data):
    graph = RandomMatchings(AGENTS, seed=3) if name == "ad-psgd" else GRAPHS["irregular"]
    settings = training(data, FAMILY[name], graph, **({"privacy": OWN_PRIVACY[name]} if name in OWN_PRIVACY else {}))
    together, apart = play_together(settings), play_apart(settings, public=public_records(data))
    assert torch.equal(together.state.theta, torch.cat([each.state.theta for each in apart]))
    assert together.network.bytes_sent.tolist() == [int(each.network.bytes_sent[0]) for each in apart]
    (whole,) = together.results()
    for agent, session in enumerate(apart):
        (result,) = session.results()
        assert result.guarantees() == [whole.guarantees()[agent]]
        assert [account.spent for account in session.accounts] == [session.cost.queries]


@dataclass(frozen=True)
class VotesInEveryRound:
    """A rule of a member's own that asks teachers, in every round and before it exchanges."""

    def init(self, theta):
        return algorithms.DSGD().init(theta)

    def round(self, state, at):
        asked = {"teachers": 2, "records": 10, "answers": 6, "threshold": 0.3, "caution": 0.25, "steps": 1, "lr": 0.5}
        labels = at.vote(state.theta, **asked)
        mixed = at.exchange(state.theta).mix()
        return state._replace(theta=mixed - at.lr * at.labelled_gradient(state.theta, labels))


@pytest.mark.parametrize("rule", [PATE, VotesInEveryRound()])
def test_votes_are_refused_unless_the_agreement_has_these_very_records(rule, data, monkeypatch):
    """Whoever wrote the rule: students would descend on a site's own validation records without noise."""
    monkeypatch.setattr(TeacherOracle, "_attempt", None)  # nobody asks
    settings = training(data, rule, GRAPHS["ring"], privacy=VOTES)
    with pytest.raises(InvalidInput, match="and the agreement names none"):
        play_apart(settings)
    agreed = public_records(data)
    for other in ({"sha256": "0" * 64}, public_records(data, 9)):
        with pytest.raises(InvalidInput, match="are not the public records of the agreement"):
            play_apart(settings, public=agreed | other)
    with pytest.raises(InvalidInput, match=r"data\.public\.records"):
        play_apart(settings, public=agreed | {"records": 0})


def test_labels_of_a_round_that_is_played_again_are_counted_once(data):
    """Its vote comes before its exchange, so each attempt of the round replays it."""
    settings = training(data, VotesInEveryRound(), GRAPHS["ring"], privacy=VOTES)
    together, apart = play_together(settings), play_apart(settings, public=public_records(data))
    assert torch.equal(together.state.theta, torch.cat([each.state.theta for each in apart]))
    counted = torch.cat([each._play.labels for each in apart])
    assert counted.sum() > 0
    assert torch.equal(together._play.labels, counted)


@pytest.mark.parametrize("frames", [30, 34, 37, 60])
def test_members_that_are_killed_replay_their_labels_and_vote_once(frames, data, tmp_path, monkeypatch):
    settings = training(data, PATE, GRAPHS["ring"], privacy=VOTES)
    attempt, drawn = TeacherOracle._attempt, []

    def attempted(oracle, *asked):
        drawn.append(oracle._accounts[0].lines[0].owner)
        return attempt(oracle, *asked)

    monkeypatch.setattr(TeacherOracle, "_attempt", attempted)

    def kill(sender, to, frame):
        if len(killed.sent) > frames:
            raise _Killed
        return False

    killed, journals = Switch(kill), [SQLiteJournal(tmp_path / f"{agent}.sqlite") for agent in range(AGENTS)]
    with pytest.raises(_Killed):
        play_apart(settings, killed, journals=journals, public=public_records(data))
    assert frames < 60 or len(drawn) == AGENTS
    for journal in journals:
        journal.append()  # the processes end, the machine does not: what was written stays
        journal._database.close()
    switch, journals = Switch(), [SQLiteJournal(tmp_path / f"{agent}.sqlite") for agent in range(AGENTS)]
    apart = play_apart(settings, switch, journals=journals, compute_seconds=1.0, public=public_records(data))
    assert sorted(drawn) == sorted({*drawn})
    assert len(drawn) == AGENTS
    topology = WithSkips(as_topology(GRAPHS["ring"]), skipped_links(switch))
    together = play_together(replace(settings, graph=topology))
    assert torch.equal(together.state.theta, torch.cat([each.state.theta for each in apart]))
    assert torch.equal(together._play.labels, torch.cat([each._play.labels for each in apart]))


def test_a_loss_on_a_sites_own_validation_records_is_not_given_to_a_rule(data):
    with pytest.raises(InvalidInput, match="between peers these are each site's own"):
        play_apart(training(data, algorithms.LEASGD(), GRAPHS["ring"]))


def test_links_that_were_skipped_are_skipped_by_both_ends_and_in_the_simulation(data):
    """Frames of one link are lost in one round, and those of a decider's answer in another."""

    def drops(sender, to, frame):
        slot, pair = frame.header.slot, {sender, to}
        return (pair == {0, 1} and slot.round == 1) or (
            frame.header.kind == Kind.VOTE and pair == {2, 3} and slot.round == 0
        )

    settings = training(data, tacit.DSGT(), GRAPHS["irregular"])
    switch = Switch(drops)
    apart = play_apart(settings, switch, compute_seconds=3.0, resend_seconds=0.1)
    skipped = skipped_links(switch)
    assert skipped[1, 0] == {(0, 1)}
    assert skipped[0, 0] == {(2, 3)}
    together = play_together(training(data, tacit.DSGT(), WithSkips(as_topology(GRAPHS["irregular"]), skipped)))
    assert torch.equal(together.state.theta, torch.cat([each.state.theta for each in apart]))


class _Killed(BaseException):
    """All processes end at once."""


@pytest.mark.parametrize("frames", [30, *(pytest.param(frames, marks=pytest.mark.slow) for frames in (11, 20, 40, 47))])
def test_processes_that_are_killed_continue_from_their_journals(frames, data, tmp_path):
    """All members end when so many frames were sent, and start again from SQLite: the run is that of the simulation with what was skipped."""
    settings = training(data, tacit.DSGT(), GRAPHS["ring"], noise=MASKS)

    def kill(sender, to, frame):
        if len(killed.sent) > frames:
            raise _Killed
        return False

    def journals():
        return [SQLiteJournal(tmp_path / f"{agent}.sqlite") for agent in range(AGENTS)]

    killed, first = Switch(kill), journals()
    with pytest.raises(_Killed):
        play_apart(settings, killed, journals=first)
    for journal in first:
        journal._database.close()  # what was not synced is lost
    switch = Switch()
    apart = play_apart(settings, switch, journals=journals(), compute_seconds=1.0)
    skipped = skipped_links(switch)
    together = play_together(replace(settings, graph=WithSkips(as_topology(GRAPHS["ring"]), skipped)))
    assert torch.equal(together.state.theta, torch.cat([each.state.theta for each in apart]))
    messages = {}
    for sender, _, frame in killed.sent + switch.sent:
        if frame.header.kind in CARRIES_MESSAGE:
            assert messages.setdefault((sender, frame.header.slot), frame.payload) == frame.payload


@pytest.mark.chance(1e-9)
def test_secret_masks_cancel_between_members(data):
    """Two members with masks hundreds of times their own noise: after one round over their link, what masks added is gone.

    Without cancellation the mean of the two gradients would be off by hundreds of standard deviations of their own noise.
    """
    pair = data.dataset.split(2, tacit.data.IID(), seed=0)
    settings = training(
        pair, tacit.DSGT(), nx.Graph([(0, 1)]), noise=tacit.Cancelling(curious=0, ratio=500.0), rounds=1, lr=1.0
    )
    apart = play_apart(settings, masks=True)
    assert all(each.training.is_release for each in apart)
    own = apart[0].plan.mechanisms[0]
    scale = own.noise_multiplier * own.clip / own.lot
    start = tacit.Session(settings).state.theta[0]
    mean = (start - apart[0].state.theta[0]).double()
    assert torch.allclose(apart[0].state.theta, apart[1].state.theta, atol=1e-3)
    assert float(mean.abs().max()) < 1 + 10 * scale  # a gradient of at most the clip, and own noise
    assert (
        float((apart[0].state.gradient[0] / scale).abs().median()) > 100
    )  # while each answer by itself hides in its mask


def test_masks_are_shared_without_a_member_that_is_gone_from_the_agreed_round_on(data):
    noise = tacit.Cancelling(curious=1, lost=1, ratio=1.0)
    settings = training(data, tacit.DSGT(), GRAPHS["ring"], noise=noise)
    apart = play_apart(settings, absent=[3], gone={3: 1})
    together = play_together(replace(settings, absences=[tacit.Absence(3, 0, rekey=1)]))
    assert torch.equal(together.state.theta[:3], torch.cat([each.state.theta for each in apart]))


def test_more_members_gone_than_masks_were_planned_for_end_the_run(data):
    settings = training(data, tacit.DSGT(), GRAPHS["ring"], noise=MASKS)
    with pytest.raises(PrivacyError, match="1 agents are to be left out of the masks, but the noise was planned for 0"):
        play_apart(settings, absent=[3], gone={3: 1})


def test_a_run_that_is_stopped_ends_at_a_round_boundary_and_continues(data):
    settings = training(data, tacit.DSGD(), GRAPHS["ring"])
    switch, journals = Switch(), [MemoryJournal() for _ in range(AGENTS)]

    def stop(sender, to, frame):
        for core in switch.cores.values():
            if frame.header.slot.round == 1:
                core.stop()
        return False

    switch._drops = stop
    first = play_apart(settings, switch, journals=journals, linger_seconds=0.0, compute_seconds=0.5)
    assert {each.round for each in first} <= {1, 2}
    assert not any(each.finished for each in first)
    later = Switch()
    again = play_apart(settings, later, journals=journals)
    assert all(each.finished for each in again)
    # Those that stop a round before others are skipped by these.
    topology = WithSkips(as_topology(settings.graph), skipped_links(later))
    together = play_together(replace(settings, graph=topology))
    assert torch.equal(together.state.theta, torch.cat([each.state.theta for each in again]))


def test_what_peers_cannot_do_is_said(data):
    settings = training(data, tacit.DSGT(), GRAPHS["ring"])
    with pytest.raises(InvalidInput, match="agent 4 is not among 4"):
        Peer(4, 4, None)
    with pytest.raises(InvalidInput, match="the data is that of 4; give only its own"):
        tacit.Session(settings, Peer(0, 4, None))
    with pytest.raises(InvalidInput, match="made with the runtime Peer"):
        SessionPlayer(tacit.Session(settings), None)
    with pytest.raises(InvalidInput, match="the agreement has 9 rounds, and the training has 3"):
        play_apart(settings, agreed_rounds=9)
