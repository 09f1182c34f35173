"""Update rules of a user's own in `tacit.train`: counted, stopped where they ask more, refused where they read others' rows."""

import pytest
import torch
from small_training import AGENTS, Greedy, is_counted, settings
from torch import nn

import tacit
from tacit.errors import BudgetExceeded, InvalidInput


def test_an_algorithm_that_asks_more_than_it_was_counted_for_is_stopped(data):
    ledger = tacit.Ledger()
    with pytest.raises(BudgetExceeded, match="all 4 queries"):
        tacit.train(Greedy(), **settings(data, ledger=ledger))
    assert {entry.event.count for entry in ledger.entries()} == {4}


class Modest(Greedy):
    """Asks twice when it is counted and once when it is played."""

    def round(self, state, at):
        if is_counted(at):
            at.gradient(state.theta)
        return self.inner.round(state, at)


def test_an_algorithm_that_asks_less_than_it_was_counted_for_is_charged_its_plan(data):
    """How much less may depend on the answers."""
    result = tacit.train(Modest(), **settings(data))
    assert {(entry.spent, entry.event.count) for entry in result.ledger.entries()} == {(4, 8)}


class Recursive:
    """STORM: the oracle clips the difference of two gradients of the same record, not only one gradient."""

    def init(self, theta):
        return tacit.algorithms.dsgd.DSGDState(theta, (theta, torch.zeros_like(theta)))

    def round(self, state, at):
        before, estimate = state.step

        def change(record, now, then):
            return record.gradient(now) - 0.5 * record.gradient(then)

        estimate = at.query(change, state.theta, before) + 0.5 * estimate
        mixed = at.exchange(state.theta).mix()
        return state._replace(theta=mixed - at.lr * estimate, step=(state.theta, estimate))


@pytest.mark.parametrize("private", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_rule_may_ask_for_other_vectors_than_gradients(private, data):
    privacy = settings(data)["privacy"] if private else tacit.NoPrivacy(lot_size=32)
    result = tacit.train(Recursive(), **settings(data, privacy=privacy))
    assert result.plan.queries == 4
    assert result.theta.isfinite().all()


@pytest.mark.parametrize("what", ["models", "gradients"])
def test_a_rule_that_reads_other_rows_without_an_exchange_is_refused(what, data):
    class Telepathic(Greedy):
        def round(self, state, at):
            theta, gradient = state.theta, at.gradient(state.theta)
            if what == "models":
                theta = theta.mean(0).expand_as(theta)
            else:
                gradient = gradient.mean(0).expand_as(gradient)
            return state._replace(theta=theta - at.lr * gradient)

    with pytest.raises(InvalidInput, match=r"Telepathic.round lets an agent read another's row without an exchange"):
        tacit.train(Telepathic(), **settings(data))


def test_counting_plays_the_runs_own_agents_seed_and_steps(data):
    """A rule that asks by public chance is counted as often as it will ask."""

    class Sometimes(Greedy):
        def round(self, state, at):
            if at.shared_chance(1) < 0.5:
                assert at.lr.shape == (AGENTS, 1)
                return self.inner.round(state, at)
            return state

    for seed in range(4):
        run = settings(data, rounds=10, seed=seed, lr=[0.1] * AGENTS)
        result = tacit.train(Sometimes(), **run)
        assert result.history[-1].queries == result.plan.queries


def test_a_record_that_the_model_cannot_read_ends_no_run(data):
    """A record that the model cannot read counts as zero: nobody sees an error, and nobody else's answer changes."""

    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(17, 10).requires_grad_(False)
            self.out = nn.Linear(10, 10)

        def forward(self, x):
            return self.out(self.table((x * 16).round().long().clamp(min=0)).mean(dim=(1, 2, 3)))

    poisoned = data.dataset.train.inputs.clone()
    poisoned[7, 0, 0, 0] = 99
    records = tacit.data.DataSet.from_records(
        name="poisoned",
        train=(poisoned, data.dataset.train.targets),
        validation=data.dataset.validation,
        prepare=data.dataset.prepare,
    ).split(AGENTS, tacit.data.IID())
    privacy = tacit.Privacy(noise_multiplier=2.0, delta=1e-5, clip=1.0, lot_size=min(records.sizes))
    clean = tacit.data.DataSet.from_records(
        name="clean",
        train=(data.dataset.train.inputs, data.dataset.train.targets),
        validation=data.dataset.validation,
        prepare=data.dataset.prepare,
    ).split(AGENTS, tacit.data.IID())
    results = [
        tacit.train(
            tacit.Local(), **settings(each, model=Picky, privacy=privacy, sources=tacit.Seeded(3), rounds=1, graph=None)
        )
        for each in (records, clean)
    ]
    (holder,) = [agent for agent, held in enumerate(records.indices) if 7 in held]
    for agent, (one, other) in enumerate(zip(*(result.theta for result in results), strict=True)):
        assert torch.equal(one, other) == (agent != holder)
