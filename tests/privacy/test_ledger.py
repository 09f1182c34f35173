import itertools
import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tampering import gaussians

from tacit.errors import BudgetExceeded, PrivacyError
from tacit.privacy import Budget, Event, Guarantee, Ledger, Mechanism, epsilon
from tacit.privacy.filters import filtered_epsilon


def open_account(ledger, *, run="run", owners=("a", "b"), rate=0.1, sigma=2.0, queries=5, release=True):
    return ledger.open(
        run=run,
        owners=owners,
        mechanisms=gaussians([rate] * len(owners), [sigma] * len(owners)),
        queries=queries,
        release=release,
    )


def test_every_query_is_one_event_for_each_owner():
    ledger = Ledger()
    account = open_account(ledger)
    for spent in range(3):
        assert account.spent == spent
        account.spend()
    assert [(e.owner, e.run, e.spent) for e in ledger.entries()] == [("a", "run", 3), ("b", "run", 3)]


def test_a_query_past_the_allowance_raises_and_spends_nothing():
    ledger = Ledger()
    account = open_account(ledger, queries=2)
    account.spend()
    account.spend()
    with pytest.raises(BudgetExceeded, match="all 2 queries"):
        account.spend()
    assert ledger.entries("a")[0].event.count == 2


def test_a_closed_account_cannot_spend():
    account = open_account(Ledger())
    account.close()
    with pytest.raises(BudgetExceeded, match="closed"):
        account.spend()


def test_epsilon_of_a_run_and_of_all_runs_on_the_same_data():
    ledger = Ledger()
    for run, sigma in (("one", 2.0), ("two", 3.0)):
        account = open_account(ledger, run=run, sigma=sigma, queries=50)
        for _ in range(50):
            account.spend()
        account.close(finished=True)
    one = Event(sample_rate=0.1, noise_multiplier=2.0, count=50)
    two = Event(sample_rate=0.1, noise_multiplier=3.0, count=50)
    assert ledger.guarantee("a", delta=1e-5, run="one").epsilon == epsilon([one], delta=1e-5)
    assert ledger.guarantee("a", delta=1e-5).epsilon == epsilon([one, two], delta=1e-5)
    replaced = ledger.guarantee("a", delta=1e-5, adjacency="replace_one")
    assert replaced.epsilon == epsilon([one, two], delta=1e-5, adjacency="replace_one")


def test_reading_epsilon_changes_nothing():
    ledger = Ledger()
    open_account(ledger).spend()
    before = ledger.to_json()
    ledger.guarantee("a", delta=1e-5)
    assert ledger.to_json() == before


def test_a_guarantee_says_all_that_it_depends_on():
    ledger = Ledger()
    open_account(ledger, release=False).spend()
    text = str(ledger.guarantee("a", delta=1e-5, adjacency="replace_one"))
    for part in ("ε=", "δ=1e-05", "replace-one", "pld", "not a release"):
        assert part in text


def test_one_run_that_is_not_a_release_marks_all_runs_together():
    ledger = Ledger()
    open_account(ledger, run="one").spend()
    open_account(ledger, run="two", release=False).spend()
    assert ledger.guarantee("a", delta=1e-5, run="one").release
    assert not ledger.guarantee("a", delta=1e-5).release


def play(account, queries):
    for _ in range(queries):
        account.spend()
    account.close(finished=True)


def test_a_stopped_run_is_charged_its_plan_and_a_finished_one_what_it_made():
    """When to stop may depend on the answers; that spare queries were not needed does not."""
    ledger = Ledger()
    accounts = {run: open_account(ledger, run=run, queries=50) for run in ("open", "stopped", "finished", "unused")}
    for run, account in accounts.items():
        for _ in range(0 if run == "unused" else 48):
            account.spend()
    accounts["stopped"].close()
    accounts["finished"].close(finished=True)
    accounts["unused"].close()
    charged = {entry.run: (entry.event.count, entry.spent, entry.state) for entry in ledger.entries("a")}
    assert charged == {"open": (50, 48, "open"), "stopped": (50, 48, "stopped"), "finished": (48, 48, "finished")}
    for run, count in (("open", 50), ("stopped", 50), ("finished", 48)):
        event = Event(sample_rate=0.1, noise_multiplier=2.0, count=count)
        assert ledger.guarantee("a", delta=1e-5, run=run).epsilon == epsilon([event], delta=1e-5)


def test_a_stopped_run_cannot_be_made_a_finished_one():
    account = open_account(Ledger())
    account.spend()
    account.close()
    account.close(finished=True)
    assert account.state == "stopped"


def test_a_budget_refuses_a_run_that_does_not_fit_before_it_starts():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    play(open_account(ledger, run="one", sigma=3.0, queries=30), 30)
    before = ledger.to_json()
    with pytest.raises(
        BudgetExceeded, match=r"counted per record, would bring 'a' past its budget of ε=1 at δ=1e-05 \(add-or-remove"
    ) as refused:
        open_account(ledger, run="two", sigma=3.0, queries=45)
    assert re.findall(r"ε=[\d.]+", str(refused.value)) == ["ε=1"], "what the filter counts is not an ε"
    assert ledger.to_json() == before
    open_account(ledger, run="three", sigma=3.0, queries=5)


@pytest.mark.parametrize("owners", [("a", "b"), ("b", "c")])
def test_a_refusal_says_how_many_queries_or_how_much_noise_would_fit(owners):
    """Owners who differ in what is left: what fits all of them is said, and one query more or less noise does not fit."""
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    play(open_account(ledger, run="one", sigma=3.0, queries=20), 20)
    play(open_account(ledger, run="of b", owners=("b",), sigma=3.0, queries=10), 10)
    asked = {"owners": owners, "queries": 45}
    with pytest.raises(BudgetExceeded) as error:
        open_account(ledger, run="two", sigma=3.0, **asked)
    found = re.search(
        r"What would fit: (\d+) queries with this noise, or all 45 with σ=([\d.]+)\. Nothing", str(error.value)
    )
    count, sigma = int(found[1]), float(found[2])
    for refused in ({"sigma": 3.0, "queries": count + 1}, {"sigma": 0.995 * sigma}):
        with pytest.raises(BudgetExceeded):
            open_account(ledger, run="two", **asked | refused)
    copy = Ledger.from_json(ledger.to_json())
    open_account(ledger, run="two", sigma=3.0, **asked | {"queries": count})
    open_account(copy, run="two", sigma=sigma, **asked)


def test_a_refusal_of_a_first_run_says_for_which_epsilon_to_plan():
    with pytest.raises(BudgetExceeded, match=r"A run that is planned for ε=0\.1 or less fits"):
        open_account(Ledger(Budget(epsilon=0.1, delta=1e-5)), sigma=1.0, queries=100)


def test_what_an_open_or_stopped_account_was_allowed_counts_against_the_budget():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    first = open_account(ledger, run="one", sigma=3.0, queries=35)
    with pytest.raises(BudgetExceeded):
        open_account(ledger, run="two", sigma=3.0, queries=35)
    first.spend()
    first.close()
    with pytest.raises(BudgetExceeded):
        open_account(ledger, run="two", sigma=3.0, queries=35)


def test_an_account_on_which_nothing_was_asked_gives_all_of_it_back():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    open_account(ledger, run="one", sigma=3.0, queries=45).close()
    open_account(ledger, run="two", sigma=3.0, queries=45)


# Of σ=3 at q=0.1, 45 queries fit ε=1 at δ=1e-5 by their distributions, and not by the filter.
ONLY_BY_ITS_PLAN = {"sigma": 3.0, "queries": 45}


def test_the_first_run_passes_by_its_plan_and_then_nothing_else_does():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    play(open_account(ledger, run="one", **ONLY_BY_ITS_PLAN), 45)
    more = [Event(sample_rate=0.1, noise_multiplier=3.0, count=45), Event(sample_rate=1e-4, noise_multiplier=50.0)]
    assert epsilon(more, delta=1e-5) < 1.0, "by adding up distributions it would pass"
    with pytest.raises(BudgetExceeded, match="After a first run the Rényi filter decides"):
        open_account(ledger, run="two", rate=1e-4, sigma=50.0, queries=1)
    assert ledger.guarantee("a", delta=1e-5).basis == "plan"


def test_a_first_run_that_was_stopped_leaves_no_more_room_than_its_plan_does():
    """Otherwise an analyst who stops by what it sees has the larger of two allowances, which nothing covers."""
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    first = open_account(ledger, run="one", **ONLY_BY_ITS_PLAN)
    first.spend()
    first.close()
    with pytest.raises(BudgetExceeded):
        open_account(ledger, run="two", sigma=3.0, queries=1)


def test_runs_that_are_opened_in_one_go_are_one_plan():
    terms = {"owners": ["a"], "mechanisms": gaussians([0.1], [3.0]), "release": True}
    apart = Ledger(Budget(epsilon=1.0, delta=1e-5))
    apart.open(run="0", queries=22, **terms)
    with pytest.raises(BudgetExceeded):
        apart.open(run="1", queries=22, **terms)
    together = Ledger(Budget(epsilon=1.0, delta=1e-5))
    for account in together.open_together(runs=["0", "1"], queries=22, **terms):
        play(account, 22)
    kept = together.guarantee("a", delta=1e-5)
    assert (kept.basis, kept.condition) == ("plan", "")
    with pytest.raises(BudgetExceeded):
        Ledger(Budget(epsilon=1.0, delta=1e-5)).open_together(runs=["0", "1"], queries=45, **terms)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_whatever_an_analyst_chooses_next_the_filter_keeps_one_order_within_the_budget(adjacency):
    """Each run's σ, q and length are chosen after the one before, to take all that is left; Σρ stays within the budget."""
    budget = Budget(epsilon=2.0, delta=1e-5, adjacency=adjacency)
    ledger, chance, made = Ledger(budget), random.Random(3), 0
    for number in range(60):
        rate, sigma = chance.choice([0.01, 0.1, 0.3]), chance.choice([2.0, 4.0, 9.0])
        queries = chance.choice([1, 10, 100])
        try:
            account = open_account(ledger, run=str(number), rate=rate, sigma=sigma, queries=queries)
        except BudgetExceeded:
            continue
        play(account, queries)
        made += 1
    assert made > 5
    events = [entry.event for entry in ledger.entries("a")]
    terms = {"epsilon": 2.0, "delta": 1e-5, "adjacency": adjacency}
    assert 1.5 < filtered_epsilon(events, **terms) <= 2.0
    kept = ledger.guarantee("a", delta=1e-5, adjacency=adjacency)
    assert (kept.basis, kept.adaptive) == ("filter", 2.0)
    assert kept.epsilon < 2.0, (
        "the sum of distributions is tighter, and holds only for plans that were fixed beforehand"
    )
    assert "or ε=2 if runs were planned from others' results" in str(kept)
    other = ledger.guarantee("a", delta=1e-6, adjacency=adjacency)
    assert (other.basis, other.adaptive) == ("plans", None), "the budget says nothing of a smaller δ"


def test_runs_without_a_budget_add_up_only_if_none_was_planned_by_another():
    ledger = Ledger()
    for run in ("one", "two"):
        play(open_account(ledger, run=run), 5)
    kept = ledger.guarantee("a", delta=1e-5)
    assert kept.basis == "plans"
    assert "if no run was planned from another's results" in str(kept)
    assert ledger.guarantee("a", delta=1e-5, run="one").basis == "plan"
    assert "planned" not in str(ledger.guarantee("a", delta=1e-5, run="one"))
    ledger.budget = Budget(epsilon=9.0, delta=1e-5)  # set after results were seen: it proves nothing of what was before
    play(open_account(ledger, run="three"), 5)
    assert ledger.guarantee("a", delta=1e-5).basis == "plans"


def read_openly(ledger, *, run="open", owners=("a", "b"), **held):
    (account,) = ledger.open_without_privacy(
        runs=[run], owners=owners, mechanisms=[Mechanism.plain(sample_rate=0.1, lot=5)] * len(owners), **held
    )
    return account


def test_a_run_without_privacy_is_recorded_and_shown_from_then_on():
    ledger = Ledger()
    play(open_account(ledger, run="private", owners=("a", "c")), 5)
    before = ledger.guarantee("a", delta=1e-5, run="private")
    account = read_openly(ledger)
    account.spend()
    account.close(finished=True)
    for copy in (ledger, Ledger.from_json(ledger.to_json())):
        kept = copy.guarantee("a", delta=1e-5)
        assert (kept.epsilon, kept.basis, kept.exposed, kept.release) == (float("inf"), "nothing", True, False)
        assert str(kept) == "ε=∞: a run without privacy has read these records: there is no guarantee"
        of_run = copy.guarantee("a", delta=1e-5, run="private")
        assert (of_run.epsilon, of_run.release, of_run.exposed) == (before.epsilon, True, True)
        assert str(of_run) == f"{before}; a run without privacy has read these records: there is no guarantee"
        assert copy.guarantee("c", delta=1e-5) == ledger.guarantee("c", delta=1e-5, run="private")
        assert not copy.guarantee("c", delta=1e-5).exposed, "its records were not read"
        assert copy.readers_without_privacy(["a", "b", "c"]) == {"a": ("open",), "b": ("open",), "c": ()}
        assert [entry.event for entry in copy.entries("b")] == [None]


def test_a_run_without_privacy_that_read_nothing_leaves_no_mark():
    ledger = Ledger()
    account = read_openly(ledger)
    assert ledger.readers_without_privacy(["a"]) == {"a": ("open",)}, "while it is open, it may"
    account.close()
    assert ledger.readers_without_privacy(["a"]) == {"a": ()}
    assert ledger.entries() == []


def test_the_same_records_dealt_to_other_owners_were_read_too():
    ledger = Ledger()
    held = {"mechanisms": gaussians([0.1], [2.0]), "queries": 5, "release": True, "records": "digits"}
    ledger.open(run="one", owners=["x"], partition="seed 0", **held).spend()
    read_openly(ledger, owners=("y",), records="digits", partition="seed 1").spend()
    read_openly(ledger, run="else", owners=("z",), records="mnist", partition="seed 1").spend()
    assert ledger.guarantee("x", delta=1e-5).exposed
    neighbour = Ledger()
    neighbour.open(run="one", owners=["x"], partition="seed 0", **held).spend()
    read_openly(neighbour, owners=("y",), records="digits", partition="seed 0").spend()
    assert not neighbour.guarantee("x", delta=1e-5).exposed, "another part of one partition is other records"


def test_a_budget_refuses_a_run_without_privacy_before_anything_is_read():
    ledger = Ledger(budgets={"b": Budget(epsilon=100.0, delta=1e-5)})
    with pytest.raises(
        BudgetExceeded, match=r"run 'open' has no privacy, and 'b' has a budget of ε=100 .* Nothing was read"
    ):
        read_openly(ledger)
    assert ledger.accounts == ()
    read_openly(ledger, owners=("a",))


def test_a_budget_that_comes_too_late_lets_nothing_in():
    ledger = Ledger()
    read_openly(ledger).spend()
    ledger.budget = Budget(epsilon=100.0, delta=1e-5)
    with pytest.raises(BudgetExceeded, match="a run without privacy has read the records of 'a'"):
        open_account(ledger)


def test_an_owner_may_have_a_budget_of_its_own():
    ledger = Ledger(Budget(epsilon=100.0, delta=1e-5), {"b": Budget(epsilon=0.1, delta=1e-5)})
    open_account(ledger, run="one", owners=("a",), queries=50)
    with pytest.raises(BudgetExceeded, match="'b'"):
        open_account(ledger, run="two", queries=50)


def test_a_run_name_is_used_once():
    ledger = Ledger()
    open_account(ledger)
    with pytest.raises(PrivacyError, match="has a run 'run' already"):
        open_account(ledger)


def deal(ledger, *, run, owners, seed, rates=(0.1, 0.1), sigma=5.0, queries=60, records="digits"):
    return ledger.open(
        run=run,
        owners=owners,
        mechanisms=gaussians(rates, [sigma] * len(owners)),
        queries=queries,
        release=True,
        records=records,
        partition=f"seed {seed}",
    )


def test_a_budget_does_not_start_afresh_when_records_are_dealt_out_anew():
    """Of σ=5 at q=0.1, 140 queries fit the filter of ε=1 at δ=1e-5."""
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    play(deal(ledger, run="one", owners=["x", "y"], seed=0), 60)
    play(deal(ledger, run="two", owners=["v", "w"], seed=1), 60)
    said = "This counts what 'one', 'two' asked of the same records, divided among owners in another way"
    for owners, seed in ((["x", "y"], 0), (["v", "w"], 1), (["t", "u"], 2)):
        with pytest.raises(BudgetExceeded, match=said if seed == 2 else "This counts what '(one|two)' asked"):
            deal(ledger, run="three", owners=owners, seed=seed)
    assert ledger.filtered("x") == ledger.filtered("v") == pytest.approx(0.919, abs=1e-3)
    deal(ledger, run="other records", owners=["r", "s"], seed=2, records="mnist")
    deal(ledger, run="what is left", owners=["t", "u"], seed=2, queries=15)


def test_of_records_that_were_dealt_otherwise_the_owner_who_was_asked_most_counts():
    """Which owner held a record then is not on record."""
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    play(deal(ledger, run="one", owners=["x", "y"], seed=0, rates=(0.02, 0.1)), 60)
    alone = ledger.filtered("y")
    assert ledger.filtered("x") < alone
    with pytest.raises(BudgetExceeded):
        deal(ledger, run="two", owners=["v", "w"], seed=1, queries=90)
    play(deal(ledger, run="two", owners=["v", "w"], seed=1, rates=(0.001, 0.001), queries=1), 1)
    assert ledger.filtered("v") == pytest.approx(alone, abs=1e-4)


def test_a_first_run_that_only_its_plan_let_in_leaves_no_room_for_its_records_dealt_otherwise():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    play(deal(ledger, run="one", owners=["x", "y"], seed=0, sigma=3.0, queries=45), 45)
    with pytest.raises(BudgetExceeded, match="This counts what 'one' asked"):
        deal(ledger, run="two", owners=["v", "w"], seed=1, rates=(1e-4, 1e-4), sigma=50.0, queries=1)


def test_a_ledger_whose_records_were_dealt_in_two_ways_before_its_budget_can_be_used():
    ledger = Ledger()
    play(deal(ledger, run="one", owners=["x", "y"], seed=0), 60)
    play(deal(ledger, run="two", owners=["v", "w"], seed=1), 60)
    ledger.budget = Budget(epsilon=3.0, delta=1e-5)
    for number, owners in ((0, ["x", "y"]), (1, ["v", "w"])):
        play(deal(ledger, run=f"again {number}", owners=owners, seed=number), 60)


def of(account, owner):
    """What a finished run asked of one owner."""
    return next(line.event(account.spent) for line in account.lines if line.owner == owner)


def test_epsilon_over_all_runs_counts_the_same_records_under_other_owners_and_that_of_one_run_does_not():
    ledger = Ledger()
    one = deal(ledger, run="one", owners=["x", "y"], seed=0, rates=(0.05, 0.1))
    two = deal(ledger, run="two", owners=["v", "w"], seed=1, rates=(0.2, 0.02))
    deal(ledger, run="other records", owners=["r"], seed=1, rates=(0.5,), records="mnist")
    for account in (one, two):
        play(account, 60)
    for owner, run, most in (("x", one, of(two, "v")), ("y", one, of(two, "v")), ("w", two, of(one, "y"))):
        kept = ledger.guarantee(owner, delta=1e-5)
        assert kept.epsilon == epsilon([of(run, owner), most], delta=1e-5)
        assert kept.basis == "plans"
        alone = ledger.guarantee(owner, delta=1e-5, run=run.run)
        assert (alone.epsilon, alone.basis) == (epsilon([of(run, owner)], delta=1e-5), "plan")
        assert {asked.account.run for asked in ledger.accesses(owner)} == {"one", "two"}
    assert ledger.guarantee("r", delta=1e-5) == ledger.guarantee("r", delta=1e-5, run="other records")


def test_other_parts_of_one_partition_are_other_records():
    ledger = Ledger()
    play(deal(ledger, run="one", owners=["x", "y"], seed=0), 60)
    alone = ledger.guarantee("x", delta=1e-5)
    play(deal(ledger, run="two", owners=["y", "z"], seed=0), 60)
    assert ledger.guarantee("x", delta=1e-5) == alone
    assert ledger.guarantee("y", delta=1e-5).epsilon > alone.epsilon


@pytest.mark.parametrize(
    ("accountant", "adjacency"), [("pld", "add_remove"), ("pld", "replace_one"), ("rdp", "add_remove")]
)
def test_whoever_held_a_record_each_time_no_epsilon_over_all_runs_is_smaller_than_what_it_lost(accountant, adjacency):
    """Three ways to deal, two runs on each, by owners of all kinds: all 18 ways to hold a record are tried."""
    chance, ledger, runs = random.Random(11), Ledger(), {}
    names = {0: ["a", "b"], 1: ["c", "d", "e"], 2: ["f", "g", "h"]}
    for seed, owners in names.items():
        for number in range(2):
            rates = [chance.choice([0.02, 0.1, 0.4]) for _ in owners]
            sigmas = [rate * chance.uniform(30, 60) for rate in rates]
            account = ledger.open(
                run=f"{seed} {number}",
                owners=owners,
                mechanisms=gaussians(rates, sigmas),
                queries=10 * (number + 1),
                release=True,
                records="digits",
                partition=f"seed {seed}",
            )
            play(account, account.allowed)
            runs.setdefault(seed, []).append(account)
    terms = {"delta": 1e-5, "accountant": accountant, "adjacency": adjacency}
    stated = {owner: ledger.guarantee(owner, **terms).epsilon for owners in names.values() for owner in owners}
    for held in itertools.product(*names.values()):
        lost = epsilon([of(account, owner) for seed, owner in enumerate(held) for account in runs[seed]], **terms)
        for owner in held:
            assert lost <= stated[owner]


def test_a_name_that_stands_for_several_data_sets_joins_what_was_asked_of_them():
    """Whoever is asked under one name may hold a record in both, and each was dealt out in another way, too."""
    ledger = Ledger()
    accounts = [
        deal(ledger, run="one", owners=["clinic"], seed=0, rates=(0.1,), records="2023"),
        deal(ledger, run="two", owners=["clinic"], seed=0, rates=(0.2,), records="2024"),
        deal(ledger, run="three", owners=["p"], seed=1, rates=(0.3,), records="2023"),
        deal(ledger, run="four", owners=["q"], seed=1, rates=(0.4,), records="2024"),
    ]
    for account in accounts:
        play(account, 60)
    events = [account.lines[0].event(60) for account in accounts]
    assert ledger.guarantee("clinic", delta=1e-5).epsilon == epsilon(events, delta=1e-5)
    ledger.budget = Budget(epsilon=100.0, delta=1e-5)
    assert ledger.filtered("clinic") == ledger.budget.filtered(events)


def test_a_run_on_other_deals_that_is_no_release_marks_all_runs_together():
    ledger = Ledger()
    play(deal(ledger, run="one", owners=["x", "y"], seed=0), 60)
    assert ledger.guarantee("x", delta=1e-5).release
    ledger.open(
        run="two",
        owners=["v"],
        mechanisms=gaussians([0.1], [5.0]),
        queries=1,
        release=False,
        records="digits",
        partition="seed 1",
    )
    assert not ledger.guarantee("x", delta=1e-5).release
    assert ledger.guarantee("x", delta=1e-5, run="one").release


def test_a_filter_proves_its_budget_over_all_deals_if_it_let_all_of_them_in():
    ledger = Ledger(Budget(epsilon=2.0, delta=1e-5))
    play(deal(ledger, run="one", owners=["x", "y"], seed=0), 60)
    play(deal(ledger, run="two", owners=["v", "w"], seed=1), 60)
    for owner in "xyvw":
        kept = ledger.guarantee(owner, delta=1e-5)
        assert (kept.basis, kept.adaptive) == ("filter", 2.0)
    late = Ledger()
    play(deal(late, run="one", owners=["x", "y"], seed=0), 60)
    late.budget = Budget(epsilon=2.0, delta=1e-5)
    play(deal(late, run="two", owners=["v", "w"], seed=1), 60)
    assert late.guarantee("v", delta=1e-5).basis == "plans", "its records were asked before there was a budget"


def test_an_owners_own_budget_also_bounds_what_others_are_asked_who_may_hold_its_records():
    small = Budget(epsilon=1.0, delta=1e-5)
    ledger = Ledger(Budget(epsilon=9.0, delta=1e-5), {"x": small})
    play(deal(ledger, run="one", owners=["x", "y"], seed=0), 60)
    with pytest.raises(
        BudgetExceeded,
        match=r"queries records that 'x' holds, divided among owners in another way, .* past its own budget of ε=1 at",
    ):
        deal(ledger, run="two", owners=["v", "w"], seed=1, queries=90)
    play(deal(ledger, run="three", owners=["v", "w"], seed=1, queries=5), 5)
    kept = ledger.guarantee("x", delta=1e-5)
    assert (kept.basis, kept.adaptive) == ("plans", None), "what others were asked was let in by another budget"
    assert ledger.filtered("x") <= 1.0
    deal(ledger, run="four", owners=["r", "s"], seed=1, records="mnist")


def test_a_budget_lets_nothing_in_where_the_records_were_read_without_privacy_as_others_held_them():
    ledger = Ledger()
    read_openly(ledger, owners=("x", "y"), records="digits", partition="seed 0").spend()
    ledger.budget = Budget(epsilon=9.0, delta=1e-5)
    with pytest.raises(BudgetExceeded, match="a run without privacy has read the records of 'v'"):
        deal(ledger, run="two", owners=["v", "w"], seed=1)
    assert ledger.filtered("x") == float("inf")
    deal(ledger, run="three", owners=["v", "w"], seed=1, records="mnist")


def test_counters_cannot_be_set():
    account = open_account(Ledger())
    for name in ("spent", "allowed", "remaining"):
        with pytest.raises(AttributeError):
            setattr(account, name, 0)


def test_an_epsilon_is_never_shown_smaller_than_it_is():
    for value, text in ((1.00049, "1.001"), (3.99999, "4"), (4.0, "4"), (0.0123401, "0.01235"), (123.41, "123.5")):
        shown = str(Guarantee(epsilon=value, delta=1e-5, adjacency="add_remove", accountant="pld", release=True))
        assert shown.startswith(f"ε={text} per record at")
    nothing = Guarantee(epsilon=float("inf"), delta=1e-5, adjacency="add_remove", accountant="pld", release=False)
    assert "there is no guarantee" in str(nothing)


names = st.text(min_size=1, max_size=8)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(names, names, st.floats(1e-6, 1), st.floats(0.1, 1e3), st.integers(1, 4), st.booleans()),
        max_size=6,
    ),
    st.none() | st.builds(Budget, epsilon=st.floats(1e6, 1e9), delta=st.just(1e-5)),
)
def test_json_round_trip(rows, budget):
    ledger = Ledger()
    for number, (owner, run, rate, sigma, count, release) in enumerate(rows):
        account = open_account(
            ledger, run=f"{run} {number}", owners=(owner,), rate=rate, sigma=sigma, queries=count, release=release
        )
        for _ in range(count - 1):
            account.spend()
        if number % 3:
            account.close(finished=number % 3 == 1)
    ledger.budget = budget
    again = Ledger.from_json(ledger.to_json())
    assert again.to_json() == ledger.to_json()
    assert again.entries() == ledger.entries()
    assert again.budget == budget


GOOD = json.loads(Ledger().to_json())
MECHANISM = {
    "sampler": {"kind": "poisson", "rate": 0.1, "unit": "record", "most": 1},
    "clip": 1.0,
    "lot": 5.0,
    "noise": {"kind": "gaussian", "multiplier": 1.0},
}
LINE = {
    "owner": "a",
    "records": "",
    "partition": "",
    "mechanism": MECHANISM,
    "release": True,
    "ground": "free",
}
ACCOUNT = {"run": "r", "together": "r", "state": "finished", "allowed": 3, "spent": 2, "lines": [LINE], "masks": None}


def with_account(**changes):
    return json.dumps({**GOOD, "accounts": [{**ACCOUNT, **changes}]})


def with_line(**changes):
    return with_account(lines=[{**LINE, **changes}])


def with_mechanism(**changes):
    return with_line(mechanism={**MECHANISM, **changes})


def test_the_records_below_are_broken_by_their_change_alone():
    assert Ledger.from_json(with_line()).entries()[0].event == Event(sample_rate=0.1, noise_multiplier=1.0, count=2)


@pytest.mark.parametrize(
    "content",
    [
        "not json",
        "[]",
        "{}",
        "[" * 100_000,
        json.dumps({**GOOD, "format": "tacit-ledger-1"}),
        json.dumps({**GOOD, "budget": {}}),
        json.dumps({**GOOD, "accounts": [ACCOUNT, ACCOUNT]}),
        with_account(spent=-1),
        with_account(spent=1.5),
        with_account(spent=4),
        with_account(state="done"),
        with_account(lines=[]),
        with_account(lines=[LINE, LINE]),
        with_mechanism(sampler={"kind": "poisson", "rate": 2.0, "unit": "record", "most": 1}),
        with_mechanism(sampler={"kind": "shuffled", "rate": 0.1, "unit": "record", "most": 1}),
        with_mechanism(noise={"kind": "gaussian", "multiplier": -1.0}),
        with_mechanism(noise={"kind": "cancelling", "multiplier": 1.0}),
        with_mechanism(clip=-1.0),
        with_mechanism(clip="1"),
        with_mechanism(seed=3),
        with_line(sample_rate=0.1),
        with_line(owner=3),
        with_line(ground="luck"),
        with_account(lines=[{"owner": "a"}]),
        with_account(together="another"),
        json.dumps({**GOOD, "accounts": [ACCOUNT, {**ACCOUNT, "run": "s", "allowed": 4}]}),
        json.dumps({**GOOD, "set_after": {"a": 1}}),
        json.dumps({**GOOD, "set_after": {"a": -1}}),
    ],
)
def test_a_broken_record_is_an_error(content):
    with pytest.raises(PrivacyError):
        Ledger.from_json(content)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"owners": ()}, "at least one"),
        ({"owners": ("a", "a")}, "repeated: a"),
        ({"queries": -1}, "negative"),
        ({"rate": 0.0}, "sample_rate is 0.0"),
        ({"sigma": 0.0}, "noise_multiplier is 0.0"),
    ],
)
def test_refuses_an_account_that_makes_no_sense(settings, message):
    with pytest.raises(PrivacyError, match=message):
        open_account(Ledger(), **settings)


def test_whole_numbers_that_another_program_wrote_are_read():
    read = Ledger.from_json(
        with_mechanism(
            noise={"kind": "gaussian", "multiplier": 2},
            sampler={"kind": "poisson", "rate": 1, "unit": "record", "most": 1},
            clip=1,
        )
    )
    assert read.entries()[0].event.noise_multiplier == 2.0


def test_an_unknown_owner_is_an_error():
    with pytest.raises(PrivacyError, match="nobody"):
        Ledger().guarantee("nobody", delta=1e-5)
