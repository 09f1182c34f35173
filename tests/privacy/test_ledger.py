import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import BudgetExceeded, PrivacyError
from tacit.privacy import Budget, Event, Guarantee, Ledger, epsilon


def open_account(ledger, *, run="run", owners=("a", "b"), rate=0.1, sigma=2.0, queries=5, release=True):
    return ledger.open(
        run=run,
        owners=owners,
        sample_rates=[rate] * len(owners),
        noise_multipliers=[sigma] * len(owners),
        queries=queries,
        release=release,
    )


def test_every_query_is_one_event_for_each_owner():
    ledger = Ledger()
    account = open_account(ledger)
    for spent in range(3):
        assert account.spent == spent
        account.spend()
    assert [(e.owner, e.run, e.event.count) for e in ledger.entries()] == [("a", "run", 3), ("b", "run", 3)]


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
        account.close()
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


def test_a_budget_refuses_a_run_that_does_not_fit_before_it_starts():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    first = open_account(ledger, run="one", sigma=3.0, queries=45)
    for _ in range(45):
        first.spend()
    first.close()
    before = ledger.to_json()
    with pytest.raises(BudgetExceeded, match=r"'a' to ε=1\.\d+, past its budget of ε=1 at δ=1e-05 \(add-or-remove"):
        open_account(ledger, run="two", sigma=3.0, queries=45)
    assert ledger.to_json() == before
    open_account(ledger, run="three", sigma=3.0, queries=5)


def test_what_an_open_account_may_still_spend_counts_against_the_budget():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    first = open_account(ledger, run="one", sigma=3.0, queries=45)
    with pytest.raises(BudgetExceeded):
        open_account(ledger, run="two", sigma=3.0, queries=45)
    first.close()
    open_account(ledger, run="two", sigma=3.0, queries=45)


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


def test_a_budget_does_not_start_afresh_when_records_are_dealt_out_anew():
    ledger = Ledger(Budget(epsilon=50.0, delta=1e-5))
    held = {"sample_rates": [0.1], "noise_multipliers": [2.0], "queries": 5, "release": True, "records": "digits"}
    ledger.open(run="one", owners=["x"], partition="seed 0", **held).spend()
    ledger.open(run="two", owners=["x"], partition="seed 0", **held)
    with pytest.raises(BudgetExceeded, match="dealt out anew"):
        ledger.open(run="three", owners=["y"], partition="seed 1", **held)
    ledger.open(run="four", owners=["z"], partition="seed 1", **(held | {"records": "mnist"}))


def test_counters_cannot_be_set():
    account = open_account(Ledger())
    for name in ("spent", "allowed", "remaining"):
        with pytest.raises(AttributeError):
            setattr(account, name, 0)


def test_an_epsilon_is_never_shown_smaller_than_it_is():
    for value, text in ((1.00049, "1.001"), (3.99999, "4"), (4.0, "4"), (0.0123401, "0.01235"), (123.41, "123.5")):
        shown = str(Guarantee(epsilon=value, delta=1e-5, adjacency="add_remove", accountant="pld", release=True))
        assert shown.startswith(f"ε={text} at")
    nothing = Guarantee(epsilon=float("inf"), delta=1e-5, adjacency="add_remove", accountant="pld", release=False)
    assert "nothing is promised" in str(nothing)


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
        for _ in range(count):
            account.spend()
    ledger.budget = budget
    again = Ledger.from_json(ledger.to_json())
    assert again.to_json() == ledger.to_json()
    assert again.entries() == ledger.entries()
    assert again.budget == budget


GOOD = json.loads(Ledger().to_json())
EVENT = {
    "owner": "a",
    "run": "r",
    "records": "",
    "partition": "",
    "sample_rate": 0.1,
    "noise_multiplier": 1.0,
    "release": True,
    "count": 2,
}


@pytest.mark.parametrize(
    "content",
    [
        "not json",
        "[]",
        "{}",
        "[" * 100_000,
        json.dumps({**GOOD, "format": "other"}),
        json.dumps({**GOOD, "budget": {}}),
        json.dumps({**GOOD, "events": [{**EVENT, "count": -1}]}),
        json.dumps({**GOOD, "events": [{**EVENT, "count": 1.5}]}),
        json.dumps({**GOOD, "events": [{**EVENT, "sample_rate": 2.0}]}),
        json.dumps({**GOOD, "events": [{**EVENT, "owner": 3}]}),
        json.dumps({**GOOD, "events": [EVENT, EVENT]}),
        json.dumps({**GOOD, "events": [{"owner": "a"}]}),
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
    row = {**EVENT, "noise_multiplier": 2, "sample_rate": 1}
    assert Ledger.from_json(json.dumps({**GOOD, "events": [row]})).entries()[0].event.noise_multiplier == 2.0


def test_an_unknown_owner_is_an_error():
    with pytest.raises(PrivacyError, match="nobody"):
        Ledger().guarantee("nobody", delta=1e-5)
