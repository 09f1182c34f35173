"""Scoring models is planned to take at most a tenth of a run's work, and its time is kept apart from that of training."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tacit
from tacit.data import Records
from tacit.training import monitor as watching
from tacit.training import session
from tacit.training.evaluation import evaluate
from tacit.training.monitor import plan_snapshots, public_sample, scored_share

COUNTS = st.integers(1, 10**6)


@given(rounds=COUNTS, lots=st.floats(1, 1e5), agents=st.integers(1, 1000), validation=COUNTS)
def test_records_scored_are_at_most_a_tenth_of_those_trained_on(rounds, lots, agents, validation):
    trained = rounds * agents * lots
    looks = plan_snapshots(rounds=rounds, every=None, trained=trained, agents=agents, validation=validation)
    number = len(range(0, rounds, looks.every))
    on_the_way, end = number * looks.sample * agents, validation * agents
    assert 1 <= number <= 20
    assert min(100, validation) <= looks.sample <= validation
    if number > 1:  # one look of a hundred records is always taken
        assert on_the_way <= max(0.1 * trained - end, 0.05 * trained) * (1 + 1e-9)
        assert end > 0.05 * trained or on_the_way + end <= 0.1 * trained * (1 + 1e-9)


@given(rounds=COUNTS, every=COUNTS, trained=st.floats(1, 1e9), agents=st.integers(1, 1000), validation=COUNTS)
def test_snapshots_that_were_asked_for_are_kept_and_the_sample_is_cut(rounds, every, trained, agents, validation):
    looks = plan_snapshots(rounds=rounds, every=every, trained=trained, agents=agents, validation=validation)
    assert looks.every == every
    number = len(range(0, rounds, every))
    left = max(0.1 * trained - validation * agents, 0.05 * trained)
    assert looks.sample == min(100, validation) or number * looks.sample * agents <= left * (1 + 1e-9)


def test_a_long_run_is_scored_on_all_records_at_twenty_snapshots():
    assert plan_snapshots(rounds=1000, every=None, trained=1e9, agents=10, validation=5000) == (50, 5000)


def test_twenty_rounds_of_twenty_agents_are_scored_in_full_once():
    """What took nine tenths of the time: 21 looks at 5,000 records by 20 models, for 25,600 records in lots."""
    looks = plan_snapshots(rounds=20, every=None, trained=20 * 20 * 64.0, agents=20, validation=5000)
    assert looks == (20, 100)


@pytest.mark.parametrize(("rounds", "agents", "share"), [(20, 20, 3.98), (200, 10, 0.44), (5000, 10, 0.1)])
def test_a_short_run_states_that_it_scores_more_than_a_tenth(rounds, agents, share):
    work = {"rounds": rounds, "trained": rounds * agents * 64.0, "agents": agents, "validation": 5000}
    schedule = plan_snapshots(**work, every=None)
    assert scored_share(schedule, **work) == pytest.approx(share, rel=0.01)


def test_without_validation_records_snapshots_cost_nothing():
    assert plan_snapshots(rounds=100, every=None, trained=1.0, agents=2, validation=0) == (5, 0)


def test_a_sample_is_fixed_and_that_of_a_smaller_size_is_part_of_it():
    records = Records(torch.arange(1000.0)[:, None], torch.arange(1000))
    small, large = (set(public_sample(records, count).targets.tolist()) for count in (50, 200))
    assert small == set(public_sample(records, 50).targets.tolist())
    assert (len(small), len(large)) == (50, 200)
    assert small < large
    assert len({label // 100 for label in large}) == 10  # of sorted records, not the first ones
    assert public_sample(records, 1000) is records


def training(**changes):
    data = tacit.data.synthetic(records=1200, seed=0)
    settings = {
        "model": lambda: tacit.models.logistic(data.input_shape, data.classes),
        "data": data.split(3, tacit.data.IID()),
        "graph": tacit.graphs.ring(3),
        "privacy": tacit.Privacy(noise_multiplier=2.0, delta=1e-5, clip=1.0, lot_size=20),
        "rounds": 6,
        "lr": 0.5,
        "sources": tacit.Fast(0),
    }
    return settings | changes


def test_models_are_scored_on_a_sample_on_the_way_and_on_all_records_in_the_end():
    result = tacit.train(tacit.DSGD(), **training(evaluate_every=2))
    validation = result.data.dataset.validation
    whole = len(validation)
    assert [look.scored for look in result.history] == [(100, whole)] * 3 + [(whole, whole)]
    assert [look.sample for look in result.history] == [100] * 3 + [None]
    first, last = result.history[0], result.history[-1]
    score = evaluate(result.model, result.theta, validation, result.data.dataset.prepare, classification=True)
    np.testing.assert_array_equal(last.accuracy, score.accuracy)
    assert ((first.accuracy * 100) % 1 < 1e-9).all()


def test_a_run_that_is_stopped_says_that_its_accuracy_is_of_a_sample():
    with session.Session(tacit.Training(algorithm=tacit.DSGD(), **training(evaluate_every=2))) as stopped:
        stopped.advance()
        stopped.advance()
        assert "on a sample of 100 validation records" in repr(stopped.results()[0])


def test_time_of_scoring_is_not_time_of_training(monkeypatch):
    """A clock on which nothing but scoring takes time: a hundred seconds for each score."""
    clock = SimpleNamespace(now=0.0)

    def slowly(*args, **kwargs):
        clock.now += 100.0
        return evaluate(*args, **kwargs)

    fake = SimpleNamespace(perf_counter=lambda: clock.now)
    for module in (session, watching):
        monkeypatch.setattr(module, "time", fake)
    monkeypatch.setattr(watching, "evaluate", slowly)
    monkeypatch.setattr(
        session.Play,
        "advance",
        lambda play, real=session.Play.advance: (real(play), setattr(clock, "now", clock.now + 1)),
    )
    result = tacit.train(tacit.DSGD(), **training(evaluate_every=3))
    assert (result.seconds, result.evaluation_seconds) == (6.0, 300.0)
    assert result.samples_per_second == pytest.approx(6 * 60 / 6.0)


def test_a_monitor_holds_no_training_records():
    with tacit.Session(tacit.Training(algorithm=tacit.DSGD(), **training())) as played:
        parts, train = list(vars(played.monitor).values()), played.training.data.dataset.train
    assert any(isinstance(part, Records) for part in parts)
    assert not any(isinstance(part, tacit.data.DataSet | tacit.data.AgentData) or part is train for part in parts)
