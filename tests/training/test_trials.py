"""Trials in several processes: the models of one process to the bit, all accounts in one ledger, and mistakes in words."""

import os
import signal

import numpy as np
import pytest
import torch
from small_training import AGENTS, Greedy, make_model, settings

import tacit
from tacit.errors import BudgetExceeded, InvalidInput, ProcessLost, RuleError
from tacit.privacy import DurableLedger

TRIALS = 3
RING, FULL = tacit.graphs.ring(AGENTS), tacit.graphs.complete(AGENTS)
NOISE = {"noise_multiplier": 2.0, "delta": 1e-5, "clip": 1.0, "lot_size": 32}
CASES = {
    "tracking": (tacit.DSGT(), {}),
    "graphs, steps and masks of their own": (
        tacit.DSGD(),
        {
            "graph": [RING, FULL, RING],
            "lr": [0.1] * AGENTS + [0.5] * AGENTS + [0.9] * AGENTS,
            "privacy": tacit.Privacy(**NOISE, noise=tacit.Cancelling()),
        },
    ),
    "bands": (tacit.DSGD(), {"privacy": tacit.Privacy(**NOISE, bands=2)}),
    "no privacy": (tacit.DSGD(), {"privacy": tacit.NoPrivacy(lot_size=[20, 30, 40, 50, 60]), "sources": None}),
    "chance of each agent": ("choco", {"sources": tacit.Fast(3), "seed": 7}),
    "chance in common": ("dsgd:codec=randomk:0.3", {"seed": 7, "same_start": False}),
    "votes": ("pate:teachers=2,records=30,answers=10,teacher_steps=2", {"privacy": tacit.Privacy(**NOISE)}),
}


@pytest.fixture(autouse=True)
def one_thread():
    """Processes have one, and how sums are rounded follows from it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("case", CASES)
def test_trials_in_two_processes_are_those_of_one_to_the_bit(case, data):
    rule, changes = CASES[case]
    here = tacit.train_trials(TRIALS, rule, **settings(data, step_agents=AGENTS, name="both", **changes))
    apart = tacit.train_trials(TRIALS, rule, workers=2, **settings(data, name="both", **changes))
    assert len({each.theta.numpy().tobytes() for each in apart}) == TRIALS
    for one, other in zip(here, apart, strict=True):
        assert torch.equal(one.theta, other.theta)
        assert (one.run, one.plan, one.sizes, one.release) == (other.run, other.plan, other.sizes, other.release)
        for first, second in zip(one.history, other.history, strict=True):
            assert (first.round, first.queries, first.scored) == (second.round, second.queries, second.scored)
            assert first.bytes_sent.tolist() == second.bytes_sent.tolist()
            np.testing.assert_allclose(first.loss, second.loss, rtol=1e-6)
            assert first.consensus_distance == pytest.approx(second.consensus_distance, rel=1e-6, abs=1e-6)
        assert other.evaluate().accuracy.shape == (AGENTS,)
    ledgers = [each.ledger for each in (*apart, here[0])]
    assert len({id(ledger) for ledger in ledgers[:-1]}) == 1
    assert ledgers[0].to_json() == ledgers[-1].to_json()
    assert [each.guarantees() for each in apart] == [each.guarantees() for each in here]


def test_every_number_of_workers_gives_the_same_models(data):
    each = [tacit.train_trials(TRIALS, tacit.DSGT(), workers=count, **settings(data)) for count in (1, 2, 8)]
    thetas = [torch.cat([result.theta for result in results]) for results in each]
    assert torch.equal(thetas[0], thetas[1])
    assert torch.equal(thetas[0], thetas[2])
    assert torch.get_num_threads() == 1


def test_secret_sources_draw_apart_in_every_process_and_make_releases(data):
    still = settings(data, sources=None, model=make_model(), lr=0.5)
    results = tacit.train_trials(4, tacit.DSGD(), workers=2, **still)
    assert all(result.release for result in results)
    apart = [(one.theta - other.theta).norm() for one in results for other in results if one is not other]
    assert min(apart) > 0.01  # all start from one model, so that only lots and noise tell them apart


def test_diagnostics_are_returned_trial_by_trial(data):
    given = settings(data, private_diagnostics=True)
    here = tacit.train_trials(2, tacit.DSGD(), **given)
    apart = tacit.train_trials(2, tacit.DSGD(), workers=2, **given)
    lots = [[each.lot_sizes for each in result.private_diagnostics] for result in (*here, *apart)]
    assert lots[:2] == lots[2:]
    assert lots[0] != lots[1]


def test_trials_that_do_not_fit_the_budget_together_are_refused_before_any_process_begins(data, monkeypatch):
    monkeypatch.setattr("tacit.training.trials.spread", None)
    ledger = tacit.Ledger(tacit.Budget(epsilon=1.0, delta=1e-5))
    privacy = tacit.Privacy(epsilon=0.8, delta=1e-5, clip=1.0, lot_size=32)
    with pytest.raises(BudgetExceeded):
        tacit.train_trials(2, tacit.DSGT(), workers=2, **settings(data, privacy=privacy, ledger=ledger))
    assert ledger.entries() == []


def test_a_rule_that_asks_more_in_another_process_is_stopped_and_charged(data, tmp_path):
    """Spare queries are for answers that a crash loses: here they are calibrated for and not asked."""
    ledger = DurableLedger(tmp_path / "ledger.sqlite")
    with pytest.raises(BudgetExceeded, match="has made all 4 queries"):
        tacit.train_trials(2, Greedy(), workers=2, **settings(data, ledger=ledger, spare_queries=1))
    assert {(each.state, each.spent, each.charged) for each in ledger.accounts} == {("stopped", 4, 5)}
    done = tacit.train_trials(2, tacit.DSGD(), workers=2, **settings(data, ledger=ledger, spare_queries=1))
    assert {(each.state, each.spent, each.charged) for each in ledger.accounts[2:]} == {("finished", 4, 4)}
    assert done[0].ledger is ledger
    assert ledger.verify() == []


class Fails(tacit.DSGD):
    """Fails in its third round, unless it is only counted."""

    def round(self, state, at):
        if at.round == 2 and at._Round__play.oracle.queries and hasattr(at._Round__play.oracle, "skip"):
            self.fail()
        return super().round(state, at)

    def fail(self):
        raise ValueError("the third round")


class IsKilled(Fails):
    """Is killed there."""

    def fail(self):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("rule", "error", "words"),
    [
        (Fails(), RuleError, r"Fails\.round failed in round 3 of 4"),
        (IsKilled(), ProcessLost, "memory may have run out .* are charged their whole plan"),
    ],
    ids=["fails", "is killed"],
)
def test_what_happens_to_another_process_is_charged_all_the_same(rule, error, words, data):
    ledger = tacit.Ledger()
    with pytest.raises(error, match=words):
        tacit.train_trials(2, rule, workers=2, **settings(data, ledger=ledger))
    assert {(account.state, account.charged) for account in ledger.accounts} == {("stopped", 4)}


class OwnSecrets(tacit.Seeded):
    """Says that it is secret."""

    secret = True


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"workers": 0}, "workers is 0; it must be a whole number, at least 1"),
        ({"workers": True}, "workers is True"),
        ({"taps": [print]}, "taps see the messages of this process"),
        ({"model": lambda: make_model()}, "model cannot be given to other processes: .* no lambda"),
        ({"sources": OwnSecrets(0)}, "copies of secret sources in several processes could draw the same noise"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_other_processes_cannot_be_given_is_refused_before_anything_is_opened(changes, words, data):
    ledger = tacit.Ledger()
    with pytest.raises(InvalidInput, match=words):
        tacit.train_trials(2, tacit.DSGD(), **({"workers": 2} | settings(data, ledger=ledger, **changes)))
    assert ledger.accounts == ()


def test_one_run_has_no_workers_in_python(data):
    with pytest.raises(InvalidInput, match=r"there is no setting 'workers'; .* tacit\.train_trials"):
        tacit.train(tacit.DSGD(), workers=2, **settings(data))
