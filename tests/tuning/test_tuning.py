"""A search finds what is best on public records, says what it costs, and is refused past the budget."""

import re

import numpy as np
import pytest
import torch

import tacit
from tacit.cli.commands.tune import _price
from tacit.errors import BudgetExceeded, InvalidInput
from tacit.privacy import DurableLedger, Event, Ledger
from tacit.runs.config import RunConfig
from tacit.tuning import Search, parse_parameter, repeat_and_select, tune
from tacit.tuning.search import TrialOutcome, rank
from tacit.tuning.space import draw_values
from tacit.tuning.stack import STACKED, make_stack

SETTINGS = {
    "algorithm": "dsgt",
    "dataset": "digits",
    "agents": 4,
    "graph": "ring",
    "noise_multiplier": 1.5,
    "delta": 1e-3,
    "lot_size": 24,
    "rounds": 6,
    "source": "seeded",
    "compile": False,
}


def config(**changes):
    return RunConfig.of(SETTINGS | changes)


def test_parameters_are_ranges_or_lists():
    steps = parse_parameter("lr=log:0.1..10")
    assert (steps.low, steps.high, steps.log) == (0.1, 10.0, True)
    assert [steps.at(place) for place in (0.0, 0.5)] == [0.1, 1.0]
    assert steps.near(1.0, up=True) == 1.25
    assert steps.near(0.11, up=False) == 0.1  # not below the range
    assert parse_parameter("momentum=0..0.9").at(0.5) == 0.45
    clips = parse_parameter("clip=0.5,1,2")
    assert [clips.at(place) for place in (0.0, 0.4, 0.99)] == [0.5, 1.0, 2.0]
    assert [clips.near(1.0, up=up) for up in (False, True)] == [0.5, 2.0]
    assert clips.near(2.0, up=True) == 2.0
    assert parse_parameter("inner-steps=1..5").at(0.5) == 3
    assert [str(each) for each in (steps, clips)] == ["lr=log:0.1..10", "clip=0.5,1,2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr", "is not understood; write a range as in lr=log:0.1..10"),
        ("lr=log:0..1", "is not understood"),
        ("lr=2..1", r"the low end comes first: lr=1\.\.2"),
        ("lr=log:10..0.1", r"the low end comes first: lr=log:0\.1\.\.10"),
        ("lr=1..1", "is not understood"),
        ("lr=fast", "is not understood"),
        ("lt=1,2", "unknown parameter 'lt'; did you mean"),
        ("seed=1..5", "unknown parameter 'seed'"),
        ("graph=ring,star", "unknown parameter 'graph'"),
    ],
)
def test_parameters_that_cannot_be_searched_are_refused(text, message):
    with pytest.raises(InvalidInput, match=message):
        parse_parameter(text)


def test_searches_that_cannot_be_made_are_refused():
    lr, clip, steps = map(parse_parameter, ("lr=log:0.1..10", "clip=1,2", "inner-steps=1..3"))
    with pytest.raises(
        InvalidInput, match=r"possible for lr, lr_final, momentum, .*, not for inner_steps; leave these out"
    ):
        Search(parameters=(lr, clip, steps), generations=3)
    population = Search(parameters=(lr, clip), generations=3)
    with pytest.raises(
        InvalidInput,
        match=r"the ledger holds lots, clipping norms and noise before the first query.* cannot change clip",
    ):
        tune(config(), population, ledger=Ledger())
    with pytest.raises(InvalidInput, match="changes clip only where noise is local"):
        tune(config(noise="cancelling"), population)
    with pytest.raises(InvalidInput, match="give each parameter once"):
        Search(parameters=(lr, lr))
    with pytest.raises(InvalidInput, match="population is 1"):
        Search(parameters=(lr,), population=1)


def test_trials_cover_every_part_of_a_range_once():
    values = [each["lr"] for each in draw_values([parse_parameter("lr=log:0.1..10")], 8, seed=3)]
    parts = sorted(int(8 * (np.log10(value) + 1) / 2) for value in values)
    assert parts == list(range(8))
    assert values != sorted(values)


def test_trials_are_chosen_by_their_scores_on_all_validation_records():
    """Between generations, too, where a run shows its scores on a small sample."""
    stack = make_stack([config(lr=lr, rounds=40) for lr in (0.3, 3.0)], [0, 1], name="two", ledger=None, every=10)
    stack.play(until=20)
    assert stack.session.monitor.histories[0][-1].sample is not None
    scores = stack.scores()
    newest = [history[-1] for history in stack.session.monitor.histories]
    assert [(each.round, each.sample) for each in newest] == [(20, None), (20, None)]
    assert scores == [pytest.approx(each.accuracy.mean()) for each in newest]
    assert stack.scores() == scores


def test_of_trials_whose_scores_differ_by_rounding_the_lowest_number_is_best():
    scores = (0.3, 0.8, np.nextafter(0.8, 1), np.nan, np.nextafter(0.8, 0), 0.9)
    trials = [TrialOutcome(number=number, values={"lr": 1.0}, score=score) for number, score in enumerate(scores)]
    for order in (trials, trials[::-1]):
        assert [trial.number for trial in rank(order).trials] == [5, 1, 2, 4, 0, 3]


def test_stacked_trials_are_those_played_alone():
    """A trial of the stack with a step of its own is, to the bit, a session with that step: only seeds follow from its place."""
    configs = [config(lr=lr, step_agents=1) for lr in (0.3, 3.0)]
    both = make_stack(configs, [0, 1], name="both", ledger=None, every=6)
    both.play()
    alone = make_stack(configs[:1], [0], name="alone", ledger=None, every=6)
    alone.play()
    assert torch.equal(both.session.state.theta[:4], alone.session.state.theta)
    assert both.scores()[0] == pytest.approx(alone.scores()[0])
    assert both.scores()[0] != both.scores()[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"clip": 0.3},
        {"lot_size": 12.0, "noise_multiplier": 4.0},
        {"algorithm": "dinno", "rho": 0.1, "rho_growth": 1.1, "lr": 0.05},
        {"algorithm": "dsgd", "step": "momentum", "momentum": 0.5, "averaging": 0.9},
        {"private": False, "noise_multiplier": None, "lot_size": 12.0},
    ],
    ids=lambda changes: " ".join(changes),
)
def test_trials_that_differ_in_any_stacked_number_are_those_played_alone(changes):
    """Each trial of a stack computes what a session with its own numbers computes; columns round a number of the rule to the models' type."""
    kind = {name: value for name, value in changes.items() if name not in STACKED or value is None}
    one, other = config(**changes, step_agents=1), config(**kind, step_agents=1)
    both = make_stack([one, other], [0, 1], name="both", ledger=None, every=6)
    both.play()
    alone = make_stack([one], [0], name="alone", ledger=None, every=6)
    alone.play()
    torch.testing.assert_close(both.session.state.theta[:4], alone.session.state.theta, rtol=1e-4, atol=1e-6)
    first, second = both.session.results()
    assert first.plan.mechanisms == alone.session.results()[0].plan.mechanisms
    assert not torch.equal(first.theta, second.theta)
    wrong = make_stack([other], [0], name="other", ledger=None, every=6)
    wrong.play()
    apart = (wrong.session.state.theta - alone.session.state.theta).abs().max()
    assert apart > 100 * (both.session.state.theta[:4] - alone.session.state.theta).abs().max()


def test_a_population_changes_several_numbers_at_once():
    parameters = tuple(map(parse_parameter, ("lr=log:0.001..4", "clip=log:0.1..2", "momentum=0..0.9")))
    found = tune(config(algorithm="dsgd", step="momentum"), Search(parameters=parameters, population=4, generations=3))
    assert {name for trial in found.trials for each in trial.course for name in each} == {"lr", "clip", "momentum"}
    moved = [trial for trial in found.trials if len({each["clip"] for each in trial.course}) > 1]
    assert moved
    assert all(0.1 <= each["clip"] <= 2 for trial in found.trials for each in trial.course)
    best = found.best
    chosen = best.course[-1] | {"lr": best.course[0]["lr"], "lr_final": best.course[-1]["lr"]}
    assert found.settings(config()) == chosen
    assert found.settings(config(lr_final=0.1)) == {name: chosen[name] for name in ("lr", "clip", "momentum")}


def test_a_population_copies_the_best_and_changes_its_step():
    search = Search(parameters=(parse_parameter("lr=log:0.001..4"),), population=4, generations=3)
    found = tune(config(), search)
    assert [trial.score for trial in found.trials] == sorted((trial.score for trial in found.trials), reverse=True)
    firsts = [trial.course[0]["lr"] for trial in found.trials]
    assert all(len(trial.course) == len(trial.scores) == 3 for trial in found.trials)
    assert len(set(firsts)) < 4  # one was given up for another's models
    course = [each["lr"] for each in found.best.course]
    assert found.settings(config()) == {"lr": course[0], "lr_final": course[-1]}
    assert found.accounts == ()


def test_every_trial_on_private_records_is_a_run_and_past_the_budget_none_begins(tmp_path):
    search = Search(parameters=(parse_parameter("lr=log:0.1..4"), parse_parameter("clip=0.5,1")), population=4)
    ledger = DurableLedger(tmp_path / "ledger.sqlite")
    planned = []
    found = tune(config(), search, ledger=ledger, name="tried", on_plan=planned.extend)
    assert len(planned) == len(found.accounts) == 4
    by_number = {trial.number: trial.values["clip"] for trial in found.trials}
    assert [account.lines[0].mechanism.clip for account in ledger.accounts] == [
        by_number[number] for number in range(4)
    ]
    assert ledger.verify() == []
    assert {(account.state, account.spent) for account in ledger.accounts} == {("finished", 6)}
    one = ledger.guarantees([ledger.owners[0]], delta=1e-3, run=ledger.accounts[0].run)[0].epsilon
    assert ledger.guarantees([ledger.owners[0]], delta=1e-3)[0].epsilon > 1.5 * one
    small = DurableLedger(tmp_path / "small.sqlite", tacit.Budget(epsilon=1.2 * one, delta=1e-3))
    with pytest.raises(BudgetExceeded):
        tune(config(), search, ledger=small, name="tried")
    assert {account.spent for account in small.accounts} <= {0}
    assert not small.entries()


def test_repeat_and_select_gives_the_published_price():
    """ε=1 of one run takes 2.13 for the best of ten on average (geometric, one Gaussian, δ=1e-5)."""
    once = Event(sample_rate=1.0, noise_multiplier=4.0451, count=1)
    assert repeat_and_select(once, mean=10, delta=1e-5) == pytest.approx(2.13, abs=0.01)
    with pytest.raises(InvalidInput, match="more than one trial"):
        repeat_and_select(once, mean=1, delta=1e-5)


def test_orders_that_the_accountant_leaves_out_are_not_printed(capfd):
    """It says so through absl; the bound is that of the other orders."""
    event = Event(sample_rate=0.4, noise_multiplier=4.1853, count=10)
    assert 2.0 < repeat_and_select(event, mean=4, delta=1e-3) < 2.1
    assert capfd.readouterr().err == ""


def open_trials(queries, **settings):
    """Accounts of trials on the same 1000 records, one for each size of lots."""
    lots = settings.pop("lots")
    plans = [tacit.Privacy(delta=1e-5, clip=1.0, lot_size=lot, **settings).plan([1000], queries) for lot in lots]
    return [
        Ledger().open(run="one", owners=["a"], mechanisms=plan.mechanisms, queries=queries, release=True)
        for plan in plans
    ]


def price_of(accounts, accountant):
    search = Search(parameters=(parse_parameter("lr=0.1,1"),), population=2)
    return _price(accounts, RunConfig.of({"delta": 1e-5, "accountant": accountant, "epsilon": 1.0}), search)


def test_the_printed_price_counts_discrete_noise_as_such():
    noise = tacit.Discrete(bits=8, room=1.1)
    accounts = open_trials(20, lots=(50, 50), noise_multiplier=0.6, noise=noise, accountant="rdp")
    events = [account.lines[0].event(20) for account in accounts]
    together = tacit.privacy.epsilon(events, delta=1e-5, accountant="rdp")
    assert together == pytest.approx(11.607, abs=1e-3)
    words = price_of(accounts, "rdp")
    assert "cost ε=11.61 in all against everybody else together, at δ=1e-05" in words
    assert "repeat-and-select" not in words
    with pytest.raises(InvalidInput, match="one kind of query with Gaussian noise"):
        repeat_and_select(events[0], mean=2, delta=1e-5)


def test_the_printed_price_of_repeat_and_select_covers_every_trial():
    accounts = open_trials(10, lots=(5, 500), noise_multiplier=1.0)
    each = [repeat_and_select(account.lines[0].event(10), mean=2, delta=1e-5) for account in accounts]
    assert each[1] > 2 * each[0]
    (claimed,) = re.findall(r"repeat-and-select would give ε=([0-9.]+)", price_of(accounts, "pld"))
    assert float(claimed) == pytest.approx(each[1], rel=1e-3)
    assert float(claimed) >= each[1]
    # Values that a search draws are spread over the ranges, each part used once, which the theorem does not cover.
    assert "needs trials that draw their settings independently" in price_of(accounts, "pld")


@pytest.mark.slow
def test_trials_that_are_not_stacked_may_share_processes():
    search = Search(parameters=(parse_parameter("lr=log:0.1..4"), parse_parameter("gossip-rounds=0,1")), population=4)
    here, spread = (tune(config(), search, workers=workers) for workers in (1, 2))
    assert [(trial.number, trial.score) for trial in here.trials] == [
        (trial.number, pytest.approx(trial.score)) for trial in spread.trials
    ]


@pytest.mark.parametrize(
    ("of", "generations", "ledger", "why"),
    [
        ("lr=0.1,1", 1, None, "all trials are in one stack"),
        ("lr=0.1,1", 2, None, "all trials are in one stack"),
        ("rounds=2,4", 1, Ledger(), "records are private"),
    ],
)
def test_a_search_says_so_where_workers_have_nothing_to_share(of, generations, ledger, why):
    said = []
    search = Search(parameters=(parse_parameter(of),), population=2, generations=generations)
    tune(config(rounds=2), search, ledger=ledger, workers=2, say=said.append)
    assert said[0].startswith("one process plays all trials: ")
    assert said[0].endswith(why)


def test_a_search_reports_every_round_of_all_its_stacks():
    seen = []
    tune(config(), Search(parameters=(parse_parameter("rounds=2,4"),), population=2), on_progress=seen.append)
    assert {(now.total, now.stacks) for now in seen} == {(6, 2)}
    assert [now.done for now in seen] in ([0, 1, 2, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 4, 5, 6])
    seen.clear()
    population = Search(parameters=(parse_parameter("lr=log:0.1..1"),), population=4, generations=3)
    tune(config(), population, on_progress=seen.append)
    assert sorted({now.done for now in seen}) == list(range(7))
    assert {now[1:] for now in seen} == {(6, 1, 1)}


def test_a_search_that_is_stopped_compares_only_trials_that_were_played_as_far():
    """Of several stacks those that ended count; of one, all trials as they are."""
    rounds = Search(parameters=(parse_parameter("rounds=2,4,6"),), population=3)
    asked = iter([False] * 7 + [True] * 20)
    found = tune(config(), rounds, stop=lambda: next(asked))
    whole = {trial.number: trial.score for trial in tune(config(), rounds).trials}
    assert (found.stopped, found.rounds) == (True, None)
    assert 1 <= len(found.trials) < 3
    assert all(trial.score == whole[trial.number] for trial in found.trials)
    steps = Search(parameters=(parse_parameter("lr=0.1,1"),), population=2)
    asked = iter([False] * 3 + [True] * 20)
    found = tune(config(), steps, stop=lambda: next(asked))
    played = make_stack([config(lr=lr) for lr in (0.1, 1.0)], [0, 1], name="short", ledger=None, every=6)
    played.play(until=3)
    assert (found.stopped, found.rounds) == (True, 3)
    assert sorted(trial.score for trial in found.trials) == sorted(played.scores())
    assert tune(config(), steps, stop=lambda: True).trials == ()
    population = Search(parameters=(parse_parameter("lr=log:0.1..1"),), population=4, generations=2)
    assert tune(config(), population, stop=lambda: True).trials == ()
