"""LEASGD that ranks by private losses: every ranking is a query, and one that is not charged is caught."""

import networkx as nx
import pytest

import tacit
from tacit import algorithms
from tacit.privacy.lots import LotDrawer
from tacit.privacy.oracle import PrivateOracle
from tacit.training.session import Session

ROUNDS, EVERY, AGENTS = 7, 3, 3
RANKINGS = 3  # in rounds 0, 3 and 6


def make_training(rule, **changes):
    records = tacit.data.synthetic(records=60, features=4, classes=3, held_out=12, seed=3)
    settings = {
        "model": lambda: tacit.models.logistic((4,), 3),
        "data": records.split(AGENTS, tacit.data.IID()),
        "graph": nx.complete_graph(AGENTS),
        "privacy": tacit.Privacy(noise_multiplier=2.0, delta=1e-3, clip=1.0, lot_size=5),
        "rounds": ROUNDS,
        "lr": 0.1,
        "sources": tacit.Seeded(1),
    }
    return tacit.Training(algorithm=rule, **settings | changes)


def play(training, patch):
    """Return how often the data was read, and how often that was charged."""
    reads, draw = [0], LotDrawer.draw

    def counted(self, *args):
        reads[0] += 1
        return draw(self, *args)

    patch.setattr(LotDrawer, "draw", counted)
    with Session(training) as session:
        while not session.finished:
            session.advance()
    return reads[0], session.accounts[0].spent


def test_every_ranking_is_charged(monkeypatch):
    rule = algorithms.LEASGD(rank_every=EVERY, private_ranking=True)
    assert play(make_training(rule), monkeypatch) == (ROUNDS + RANKINGS, ROUNDS + RANKINGS)


def test_a_public_ranking_is_free(monkeypatch):
    assert play(make_training(algorithms.LEASGD(rank_every=EVERY)), monkeypatch) == (ROUNDS, ROUNDS)


def test_a_ranking_that_is_not_charged_is_caught(monkeypatch):
    """Planted: the oracle takes a single number for a diagnosis and answers it for nothing. Data is then read more often than charged."""
    query = PrivateOracle.query

    def free(self, per_sample, *public, width=None):
        with pytest.MonkeyPatch.context() as patch:
            if width == 1:
                patch.setattr(self, "_spend", lambda: None)
            return query(self, per_sample, *public, width=width)

    monkeypatch.setattr(PrivateOracle, "query", free)
    rule = algorithms.LEASGD(rank_every=EVERY, private_ranking=True)
    read, charged = play(make_training(rule), monkeypatch)
    assert (read, charged) == (ROUNDS + RANKINGS, ROUNDS)


def test_private_losses_are_clipped_noisy_means():
    """With lots of all records and hardly any noise, the answer is the mean of losses cut off at C; the grid is far finer than 0.01."""
    changes = {"privacy": tacit.Privacy(noise_multiplier=0.02, delta=1e-3, clip=1.05, lot_size=20), "rounds": 1}
    training = make_training(algorithms.LEASGD(private_ranking=True), **changes)
    with Session(training) as session:
        theta = session.state.theta
        answer = session.real_oracle.query(algorithms.leasgd._loss_of, theta, width=1)[:, 0]
        for agent, rows in enumerate(training.data.indices):
            records = training.data.dataset.train.take(rows)
            losses = session.model.losses(theta[agent], training.data.dataset.prepare(records.inputs), records.targets)
            assert float(answer[agent]) == pytest.approx(float(losses.clamp(max=1.05).mean()), abs=0.01)
