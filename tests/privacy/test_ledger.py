"""The ledger: every query is an event, allowances and budgets hold, and a guarantee says what it depends on."""

import random
import re

import pytest
from opening_accounts import open_account, play
from tampering import gaussians

from tacit.errors import BudgetExceeded, PrivacyError
from tacit.privacy import Budget, Event, Guarantee, Ledger, Privacy, epsilon
from tacit.privacy.filters import filtered_epsilon
from tacit.privacy.guarantees import format_epsilon


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


def test_a_refusal_says_how_much_the_filter_counts_and_offers_no_run_of_zero_queries():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    play(open_account(ledger, run="one", sigma=3.0, queries=30), 30)
    with pytest.raises(BudgetExceeded) as error:
        open_account(ledger, run="two", sigma=0.3, queries=1)
    said = f"and counts {format_epsilon(ledger.filtered('a'))} already. What would fit: all 1 with σ="
    assert said in str(error.value)
    assert str(error.value).endswith("Nothing was spent"), "a ledger in memory has no commands"


def test_a_refusal_of_noise_with_bands_counts_queries_and_not_turns():
    def open_banded(ledger, run, queries):
        plan = Privacy(delta=1e-5, clip=1.0, lot_size=10, noise_multiplier=3.0, bands=4).plan([1000], 60)
        return ledger.open(run=run, owners=["a"], mechanisms=plan.mechanisms, queries=queries, release=True)

    ledger = Ledger(Budget(epsilon=0.5, delta=1e-5))
    play(open_banded(ledger, "one", 60), 60)
    with pytest.raises(BudgetExceeded) as error:
        open_banded(ledger, "two", 8000)
    (count,) = map(int, re.findall(r"What would fit: (\d+) queries with this noise", str(error.value)))
    with pytest.raises(BudgetExceeded):
        open_banded(ledger, "two", count + 4)  # one more turn of each group
    open_banded(ledger, "two", count)


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
    with pytest.raises(BudgetExceeded, match="After the first run the Rényi filter decides"):
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


def test_an_unknown_owner_is_an_error():
    with pytest.raises(PrivacyError, match="nobody"):
        Ledger().guarantee("nobody", delta=1e-5)
