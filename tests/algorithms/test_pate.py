"""PATE as a rule: what is asked, charged and set aside, what students learn, and what a kill leaves of it."""

import math
import os

import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm
from torch import nn

import tacit
from tacit.algorithms import PATE
from tacit.data import IID
from tacit.errors import BudgetExceeded, DataError, InvalidInput, PrivacyError
from tacit.privacy import DurableLedger
from tacit.privacy.groups import group_key, group_records
from tacit.privacy.teachers import NO_ANSWER, answer
from tacit.privacy.votes import Votes
from tacit.runs import Runner
from tacit.runs.config import RunConfig

RULE = PATE(teachers=5, records=30, answers=20, teacher_steps=15)
AGENTS = 3
SETTINGS = {
    "algorithm": "pate:teachers=3,records=30,answers=20,teacher_steps=5",
    "dataset": "digits",
    "agents": AGENTS,
    "split": "iid",
    "epsilon": 8.0,
    "delta": 1e-3,
    "rounds": 6,
    "source": "seeded",
    "checkpoint_every": 4,
}


def make_data():
    return tacit.data.synthetic(records=90, features=4, classes=3, held_out=100, seed=3).split(AGENTS, IID())


def settings(**changes):
    return {
        "model": lambda: tacit.models.logistic((4,), 3).double(),
        "data": make_data(),
        "graph": tacit.graphs.path(AGENTS),
        "privacy": tacit.Privacy(epsilon=8.0, delta=1e-3, clip=1.0, lot_size=1),
        "rounds": 4,
        "lr": 0.5,
        "sources": tacit.Seeded(5),
    } | changes


def gaussian_epsilon(mu, delta):
    """ε of a Gaussian mechanism with this ratio of sensitivity to noise, by the exact formula of Balle & Wang (2018)."""
    return brentq(
        lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta, 0, 50 * mu * (1 + mu)
    )


def count_independently(votes, delta):
    """ε of one query, threshold checks and answers added up as squares of sensitivity over noise."""
    return gaussian_epsilon(
        math.sqrt(votes.records / votes.threshold_noise**2 + 2 * votes.answers / votes.answer_noise**2), delta
    )


def module_at(theta):
    module = tacit.models.logistic((4,), 3).double()
    nn.utils.vector_to_parameters(theta, module.parameters())
    return module


def loss_gradient(theta, inputs, targets):
    module = module_at(theta)
    nn.functional.cross_entropy(module(inputs), targets).backward()
    return torch.cat([each.grad.flatten() for each in module.parameters()])


def reference(result, start, lr=0.5, rounds=4):
    """Teachers one by one, their votes with the noise of the run's own sources, and students by a loop over agents."""
    dataset = result.data.dataset
    pool = dataset.prepare(dataset.pool).double()
    labels = []
    for agent, source in enumerate(tacit.Seeded(5).make(AGENTS)):
        rows = result.data.indices[agent]
        part = group_records(dataset.train.inputs, dataset.train.targets, rows.numpy(), 5, group_key(0))
        counts = torch.zeros(30, 3, dtype=torch.int64)
        for teacher in range(5):
            own = dataset.train.take(rows[torch.from_numpy(part) == teacher])
            theta, speed = start.clone(), torch.zeros_like(start)
            for _ in range(15):
                speed = 0.9 * speed + loss_gradient(theta, dataset.prepare(own.inputs).double(), own.targets)
                theta = theta - 0.5 * speed
            chosen = module_at(theta)(pool).argmax(1)
            counts[torch.arange(30), chosen] += 1
        labels.append(answer(counts, result.plan.mechanism(agent).noise, source.next()))
    weights = torch.tensor([[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]], dtype=torch.float64)
    thetas = [start] * AGENTS
    for _ in range(rounds):
        mixed = [sum(weights[i, j] * thetas[j] for j in range(AGENTS)) for i in range(AGENTS)]
        slopes = [
            loss_gradient(theta, pool[own != NO_ANSWER], own[own != NO_ANSWER])
            for theta, own in zip(thetas, labels, strict=True)
        ]
        thetas = [mixed[i] - lr * slopes[i] for i in range(AGENTS)]
    return labels, torch.stack(thetas)


def test_a_run_is_teachers_trained_one_by_one_and_students_that_descend_and_mix():
    result = tacit.train(RULE, **settings())
    torch.manual_seed(0)
    start = nn.utils.parameters_to_vector(tacit.models.logistic((4,), 3).double().parameters()).detach()
    _, expected = reference(result, start)
    torch.testing.assert_close(result.theta, expected, rtol=0, atol=1e-9)


def test_epsilon_is_that_of_one_query_however_many_rounds_there_are():
    for rounds in (1, 9):
        result = tacit.train(RULE, **settings(rounds=rounds))
        found = result.guarantees()
        votes = result.plan.mechanism(0).noise
        assert result.plan.queries == 1
        assert isinstance(votes, Votes)
        assert all(each.epsilon == pytest.approx(count_independently(votes, 1e-3), rel=2e-3) for each in found)
        assert all(7.9 < each.epsilon <= 8.0 for each in found)


def test_thresholds_that_a_run_does_not_charge_are_caught(monkeypatch):
    """Planted: noise is calibrated and charged as if checks whether teachers agree revealed nothing."""
    monkeypatch.setattr(Votes, "multiplier", property(lambda self: self.answer_noise / math.sqrt(2 * self.answers)))
    result = tacit.train(RULE, **settings())
    votes = result.plan.mechanism(0).noise
    assert result.guarantees()[0].epsilon < 0.95 * count_independently(votes, 1e-3)


def test_records_that_teachers_label_are_not_scored_and_keep_no_label():
    data = make_data()
    result = tacit.train(RULE, **settings(data=data))
    held = data.dataset.validation
    assert result.history[-1].scored == (len(held) - 30,) * 2
    pool, left = result.data.dataset.pool, result.data.dataset.validation.table
    rows = [{tuple(row) for row in table.tolist()} for table in (pool, left, held.table)]
    assert rows[0] | rows[1] == rows[2]
    assert (len(rows[0]), len(rows[1])) == (30, len(held) - 30)
    with pytest.raises(DataError, match=r"100 public records are to be labelled, but synthetic.* has 100 validation"):
        tacit.train(PATE(records=100), **settings(data=data))


def test_an_agent_without_labels_learns_from_its_neighbours():
    """No teachers agree: nobody has a label, so models stay where they start."""
    never = PATE(teachers=2, records=30, answers=20, threshold=0.99, teacher_steps=1)
    privacy = tacit.Privacy(noise_multiplier=0.02, delta=1e-3, clip=1.0, lot_size=1)
    data = make_data()
    result = tacit.train(never, **settings(data=data, privacy=privacy, model=tacit.models.logistic((4,), 3).double()))
    assert result.theta.isfinite().all()


def test_two_kinds_of_queries_in_one_run_are_refused():
    class Both(PATE):
        def round(self, state, at):
            at.gradient(state.theta)
            return super().round(state, at)

    with pytest.raises(InvalidInput, match="not all of one kind"):
        tacit.train(Both(), **settings())


def test_what_votes_have_no_use_for_is_refused():
    for change in ({"noise": tacit.Cancelling(curious=1)}, {"bands": 2}):
        privacy = tacit.Privacy(epsilon=8.0, delta=1e-3, clip=1.0, lot_size=1, **change)
        with pytest.raises(PrivacyError, match="votes of teachers are counted; leave it out"):
            tacit.train(RULE, **settings(privacy=privacy))
    with pytest.raises(PrivacyError, match="without privacy, train on the records themselves"):
        tacit.train(RULE, **settings(privacy=tacit.NoPrivacy(lot_size=1)))
    with pytest.raises(InvalidInput, match="leave out absences"):
        tacit.train(RULE, **settings(absences=[tacit.Absence(0, 1)]))
    with pytest.raises(InvalidInput, match="only 10 records are asked about"):
        PATE(records=10, answers=20)


def test_labels_on_record_are_not_asked_for_again_after_a_kill(tmp_path):
    with Runner.start(tmp_path, "whole", RunConfig.of(SETTINGS)) as runner:
        whole = runner.play(stop=lambda: False)
    for rounds in (2, 5):  # before the first checkpoint, and after it
        name = f"cut-{rounds}"
        runner = Runner.start(tmp_path, name, RunConfig.of(SETTINGS))
        for _ in range(rounds):
            runner.session.advance()
            if runner.session.round == 4:
                runner.checkpoint()
        runner._resources.close()
        with Runner.resume(tmp_path / name) as resumed:
            assert resumed._oracle.on_record == 1
            assert torch.equal(resumed.play(stop=lambda: False).theta, whole.theta)
        assert {each.event.count for each in DurableLedger(tmp_path / "ledger.sqlite").entries(run=name)} == {1}


def test_labels_that_a_kill_lost_are_charged_and_a_spare_query_covers_them(tmp_path):
    for name, spare in (("none", {}), ("spare", {"spare_queries": 1})):
        runner = Runner.start(tmp_path, name, RunConfig.of(SETTINGS | spare))
        runner.session.advance()
        log = runner._oracle.log.path
        runner._resources.close()
        os.truncate(log, log.stat().st_size - 7)
        if spare:
            with Runner.resume(tmp_path / name) as resumed:
                assert resumed.play(stop=lambda: False) is not None
                assert resumed.epsilon() <= 8.0
        else:
            with pytest.raises(BudgetExceeded, match="1 answers of run 'none' were charged and lost"):
                Runner.resume(tmp_path / name)
