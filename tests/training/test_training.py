"""`tacit.train`: what a run asks, spends, gives and shows."""

import math
import pickle

import numpy as np
import pytest
import torch
from small_training import AGENTS, make_model, settings
from torch import nn

import tacit
from tacit.errors import BudgetExceeded, InvalidInput


@pytest.mark.parametrize("algorithm", [tacit.DSGD(), tacit.DSGT(), tacit.DiNNO(), tacit.Local()], ids=repr)
def test_the_same_seeds_give_the_same_run(algorithm, data):
    one, other = (tacit.train(algorithm, **settings(data)) for _ in range(2))
    assert torch.equal(one.theta, other.theta)
    assert one.ledger.to_json() == other.ledger.to_json()
    assert not torch.equal(one.theta, tacit.train(algorithm, **settings(data, sources=tacit.Seeded(1))).theta)
    assert not torch.equal(one.theta, tacit.train(algorithm, **settings(data, seed=1)).theta)


def test_secret_runs_differ_and_are_releases(data):
    one, other = (tacit.train(tacit.DSGT(), **settings(data, sources=None)) for _ in range(2))
    assert not torch.equal(one.theta, other.theta)
    assert one.release
    assert all(guarantee.release for guarantee in one.guarantees())


def test_seeded_and_fast_sources_and_diagnostics_are_not_releases(data):
    for changes in ({"sources": tacit.Seeded(1)}, {"sources": tacit.Fast(1)}, {"private_diagnostics": True}):
        result = tacit.train(tacit.DSGD(), **settings(data, **({"sources": None} | changes)))
        assert not result.release
        assert "not a release" in str(result.guarantees()[0])
    assert result.private_diagnostics is not None
    assert len(result.private_diagnostics) == 4
    assert tacit.train(tacit.DSGD(), **settings(data)).private_diagnostics is None


def test_dinno_is_charged_for_every_inner_step(data):
    result = tacit.train(tacit.DiNNO(inner_steps=3), **settings(data))
    assert {entry.event.count for entry in result.ledger.entries()} == {12}
    assert result.plan.queries == 12
    assert result.history[-1].queries == 12


def test_epsilon_comes_from_the_ledger_and_is_spent_as_stated(data):
    privacy = tacit.Privacy(epsilon=[1.0, 2.0, 3.0, 4.0, 5.0], delta=1e-4, clip=1.0, lot_size=30)
    result = tacit.train(tacit.DSGD(), **settings(data, privacy=privacy, rounds=6, evaluate_every=2))
    for guarantee, wanted in zip(result.guarantees(), [1.0, 2.0, 3.0, 4.0, 5.0], strict=True):
        assert 0.998 * wanted < guarantee.epsilon <= wanted
        assert (guarantee.delta, guarantee.adjacency) == (1e-4, "add_remove")
    over_time = result.epsilons_over_time()
    assert over_time.shape == (4, AGENTS)
    assert (np.diff(over_time, axis=0) > 0).all()
    assert over_time[0].tolist() == [0] * AGENTS
    np.testing.assert_allclose(over_time[-1], [g.epsilon for g in result.guarantees()])


def test_history_has_what_happened(data):
    result = tacit.train(tacit.DSGT(), **settings(data, rounds=10, evaluate_every=4))
    assert [snapshot.round for snapshot in result.history] == [0, 4, 8, 10]
    assert result.history[0].consensus_distance < 1e-6
    assert result.accuracy.shape == (AGENTS,)
    message = 2 * 650 * 4  # θ and tracker in float32, to two neighbours each
    assert result.history[-1].bytes_sent.tolist() == [10 * 2 * message] * AGENTS
    assert result.bytes_sent == 10 * 2 * message * AGENTS
    assert result.samples_per_second > 0


def test_learns_privately_what_agents_alone_do_not():
    """Digits, every agent two classes: alone an agent cannot pass 20 %, together they go far beyond."""
    agents = tacit.data.load("digits").split(5, tacit.data.ByClass(t=1.0))
    privacy = tacit.Privacy(epsilon=4.0, delta=1e-4, clip=1.0, lot_size=64)
    run = settings(agents, privacy=privacy, rounds=120, lr=0.5)
    together = tacit.train(tacit.DSGT(), **run)
    alone = tacit.train(tacit.Local(), **run)
    assert together.accuracy.min() > 0.7
    assert alone.accuracy.max() < 0.25


def test_scores_are_means_over_records(data):
    result = tacit.train(tacit.Local(), **settings(data))
    held_out = data.dataset.validation
    for agent in (0, 4):
        outputs = result.module(agent)(data.dataset.prepare(held_out.inputs)).detach()
        loss = nn.functional.cross_entropy(outputs, held_out.targets)
        right = (outputs.argmax(dim=1) == held_out.targets).double().mean()
        assert result.history[-1].loss[agent] == pytest.approx(float(loss), rel=1e-5)
        assert result.accuracy[agent] == pytest.approx(float(right))
    score = result.evaluate()
    assert score.accuracy.shape == (AGENTS,)


def test_trials_are_independent_runs_in_the_ledger(data):
    first, second = tacit.train_trials(2, tacit.DSGT(), **settings(data, name="sweep"))
    assert (first.run, second.run) == ("sweep/0", "sweep/1")
    assert not torch.equal(first.theta, second.theta)
    owner = data.owners[0]
    assert first.ledger is second.ledger
    assert len(first.ledger.entries(owner)) == 2
    together = first.ledger.guarantee(owner, delta=1e-5)
    assert together.epsilon > 1.2 * first.guarantees()[0].epsilon
    assert together.basis == "plan", "both were settled before either was asked"


def test_the_first_of_several_trials_is_the_single_run(data):
    for algorithm in (tacit.DSGT(), tacit.DiNNO()):
        alone = tacit.train(algorithm, **settings(data))
        first = tacit.train_trials(3, algorithm, **settings(data))[0]
        torch.testing.assert_close(first.theta, alone.theta, rtol=1e-4, atol=1e-5)


def test_trials_may_have_graphs_and_step_sizes_of_their_own(data):
    rates = [0.1] * AGENTS + [0.9] * AGENTS
    pair = [tacit.graphs.ring(AGENTS), tacit.graphs.complete(AGENTS)]
    first, second = tacit.train_trials(2, tacit.DSGD(), **settings(data, graph=pair, lr=rates))
    alone = tacit.train(tacit.DSGD(), **settings(data, lr=0.1))
    torch.testing.assert_close(first.theta, alone.theta, rtol=1e-4, atol=1e-5)
    assert second.history[-1].bytes_sent[0] == 2 * first.history[-1].bytes_sent[0]


def test_a_second_run_that_would_pass_the_budget_is_refused_before_it_asks(data):
    ledger = tacit.Ledger(tacit.Budget(epsilon=1.0, delta=1e-5))
    privacy = tacit.Privacy(epsilon=0.8, delta=1e-5, clip=1.0, lot_size=32)
    run = settings(data, privacy=privacy, ledger=ledger)
    tacit.train(tacit.DSGT(), **run)
    before = ledger.to_json()
    with pytest.raises(BudgetExceeded, match="past its budget of ε=1"):
        tacit.train(tacit.DSGT(), **run)
    assert ledger.to_json() == before


def test_trials_that_do_not_fit_the_budget_together_are_refused(data):
    ledger = tacit.Ledger(tacit.Budget(epsilon=1.0, delta=1e-5))
    privacy = tacit.Privacy(epsilon=0.8, delta=1e-5, clip=1.0, lot_size=32)
    with pytest.raises(BudgetExceeded):
        tacit.train_trials(2, tacit.DSGT(), **settings(data, privacy=privacy, ledger=ledger))
    assert ledger.entries() == []
    tacit.train(tacit.DSGT(), **settings(data, privacy=privacy, ledger=ledger))


def test_a_run_that_is_left_on_the_way_is_charged_its_plan(data):
    ledger = tacit.Ledger()
    with tacit.Session(tacit.Training(algorithm=tacit.DSGT(), **settings(data, ledger=ledger))) as session:
        session.advance()
    planned = session.plan.epsilons([session.plan.queries])[0]
    assert {(entry.spent, entry.event.count, entry.state) for entry in ledger.entries()} == {(1, 4, "stopped")}
    assert [kept.epsilon for kept in session.results()[0].guarantees()] == planned.tolist()


def test_a_run_without_privacy_is_seen_by_every_later_look_at_the_same_records(data):
    ledger = tacit.Ledger()
    before = tacit.train(tacit.DSGD(), **settings(data, ledger=ledger))
    tacit.train(tacit.DSGD(), **settings(data, ledger=ledger, privacy=tacit.NoPrivacy(lot_size=32)))
    kept = before.guarantees()[0]
    assert kept.exposed
    assert math.isfinite(kept.epsilon)
    assert math.isinf(ledger.guarantee(data.owners[0], delta=1e-5).epsilon)


def test_a_run_without_privacy_is_refused_under_a_budget(data):
    ledger = tacit.Ledger(tacit.Budget(epsilon=100.0, delta=1e-5))
    with pytest.raises(BudgetExceeded, match="Nothing was read"):
        tacit.train(tacit.DSGD(), **settings(data, ledger=ledger, privacy=tacit.NoPrivacy(lot_size=32)))
    assert ledger.accounts == ()


def test_declared_sizes_settle_the_rate(data):
    declared = [size - 1 for size in data.sizes]
    result = tacit.train(tacit.DSGD(), **settings(data, sizes=declared))
    assert result.plan.sample_rates == tuple(32 / size for size in declared)


def test_a_users_own_module_keeps_its_parameters_as_the_start_and_stays_untouched(data):
    module = make_model()
    before = [p.clone() for p in module.parameters()]
    result = tacit.train(tacit.DSGD(), **settings(data, model=module, lr=1e-12))
    assert all(torch.equal(p, q) for p, q in zip(module.parameters(), before, strict=True))
    flat = torch.cat([p.reshape(-1) for p in before])
    torch.testing.assert_close(result.theta, flat.repeat(AGENTS, 1), rtol=0, atol=1e-6)


def test_agents_may_start_apart(data):
    result = tacit.train(tacit.DSGD(), **settings(data, same_start=False))
    assert result.history[0].consensus_distance > 0.1


def test_no_text_of_a_result_shows_private_records(data):
    result = tacit.train(tacit.DSGD(), **settings(data))
    for thing in (data, data.dataset, data.dataset.train, result):
        assert "tensor([[[[" not in repr(thing)
        assert "uint8 and shape (1, 8, 8)" in repr(thing)


def test_regression_and_records_without_validation_work():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator)
    y = x @ torch.tensor([1.0, -2.0, 0.5])
    parts = [(x[i::3], y[i::3]) for i in range(3)]
    agents = tacit.data.AgentData.from_parts(parts, name="line")
    result = tacit.train(
        tacit.DSGT(),
        model=lambda: nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)),
        data=agents,
        graph=tacit.graphs.path(3),
        privacy=tacit.NoPrivacy(lot_size=10),
        rounds=150,
        lr=0.1,
        loss=lambda outputs, targets: (outputs - targets).square(),
    )
    weights = result.theta[:, :3]
    torch.testing.assert_close(weights, torch.tensor([1.0, -2.0, 0.5]).expand(3, 3), rtol=0, atol=0.02)
    assert result.history[-1].accuracy is None
    with pytest.raises(InvalidInput, match="no validation records"):
        _ = result.accuracy


def test_torchs_global_generator_does_not_matter_and_is_left_alone(data):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = tacit.train(tacit.DSGD(), **settings(data))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(one.theta, tacit.train(tacit.DSGD(), **settings(data)).theta)


def test_progress_is_drawn_on_a_terminal_only(data, capfd, monkeypatch):
    tacit.train(tacit.DSGD(), **settings(data, progress=True))
    assert capfd.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich take the stream for a terminal
    tacit.train(tacit.DSGD(), **settings(data, progress=True))
    seen = capfd.readouterr()
    assert seen.out == ""
    assert "dsgd" in seen.err


def test_a_budget_follows_records_that_are_divided_anew(data):
    spent = max(each.epsilon for each in tacit.train(tacit.DSGT(), **settings(data)).guarantees())
    ledger = tacit.Ledger(tacit.Budget(epsilon=1.001 * spent, delta=1e-5))
    tacit.train(tacit.DSGT(), **settings(data, ledger=ledger))
    other = data.dataset.split(AGENTS, tacit.data.ByClass(t=0.5), seed=1)
    for again in (other, data.pooled()):
        with pytest.raises(BudgetExceeded, match="asked of the same records, divided among owners in another way"):
            tacit.train(tacit.Local(), **settings(again, ledger=ledger, graph=None))


def test_a_result_cannot_be_pickled_with_the_records_in_it(data):
    with pytest.raises(InvalidInput, match="state_dict"):
        pickle.dumps(tacit.train(tacit.DSGD(), **settings(data)))


def test_a_run_without_privacy_guarantees_nothing(data):
    result = tacit.train(tacit.DSGT(), **settings(data, privacy=tacit.NoPrivacy(lot_size=32)))
    assert not result.release
    assert all(math.isinf(guarantee.epsilon) for guarantee in result.guarantees())
    assert np.isinf(result.epsilons_over_time()[1:]).all()
    assert math.isinf(result.plan.clips[0])


def test_public_records_to_score_may_be_a_pair_of_tensors_or_arrays(data):
    result = tacit.train(tacit.DSGD(), **settings(data))
    test = data.dataset.test
    scored = result.evaluate()
    for pair in (
        (test.inputs, test.targets),
        [test.inputs.numpy(), test.targets.numpy()],
        (test.inputs, test.targets.to(torch.int32)),
    ):
        assert (result.evaluate(pair).loss == scored.loss).all()
        assert (result.evaluate(pair).accuracy == scored.accuracy).all()
    for wrong, said in (
        (test.inputs, "cannot read records from a tensor"),
        ((test.inputs, test.targets[:3]), "each record has one of both"),
        ((test.inputs.float(), test.targets), "inputs of the records to score are float32"),
        ((test.inputs[:, :, :4], test.targets), "the schema says"),
        ((test.inputs[:0], test.targets[:0]), "no records to score"),
    ):
        with pytest.raises(tacit.TacitError, match=said):
            result.evaluate(wrong)
