"""Records that a run read without privacy, or that were dealt out anew, in the ledger."""

import itertools
import random

import pytest
from opening_accounts import open_account, play
from tampering import gaussians

from tacit.errors import BudgetExceeded
from tacit.privacy import Budget, Ledger, Mechanism, epsilon


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


def test_the_same_records_assigned_to_other_owners_were_read_too():
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


def test_a_budget_does_not_start_afresh_when_records_are_divided_anew():
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


def test_of_records_that_were_divided_otherwise_the_owner_who_was_asked_most_counts():
    """Which owner held a record then is not on record."""
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    play(deal(ledger, run="one", owners=["x", "y"], seed=0, rates=(0.02, 0.1)), 60)
    alone = ledger.filtered("y")
    assert ledger.filtered("x") < alone
    with pytest.raises(BudgetExceeded):
        deal(ledger, run="two", owners=["v", "w"], seed=1, queries=90)
    play(deal(ledger, run="two", owners=["v", "w"], seed=1, rates=(0.001, 0.001), queries=1), 1)
    assert ledger.filtered("v") == pytest.approx(alone, abs=1e-4)


def test_a_first_run_that_only_its_plan_let_in_leaves_no_room_for_its_records_divided_otherwise():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    play(deal(ledger, run="one", owners=["x", "y"], seed=0, sigma=3.0, queries=45), 45)
    with pytest.raises(BudgetExceeded, match="This counts what 'one' asked"):
        deal(ledger, run="two", owners=["v", "w"], seed=1, rates=(1e-4, 1e-4), sigma=50.0, queries=1)


def test_a_ledger_whose_records_were_divided_in_two_ways_before_its_budget_can_be_used():
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
    ("accountant", "adjacency"),
    [("pld", "add_remove"), ("pld", "replace_one"), pytest.param("rdp", "add_remove", marks=pytest.mark.slow)],
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


def test_a_run_on_another_division_that_is_no_release_marks_all_runs_together():
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


def test_a_filter_proves_its_budget_over_all_divisions_if_it_let_all_of_them_in():
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
