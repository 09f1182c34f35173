"""The ledger as JSON: read back as it was, and refused where it is broken."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opening_accounts import open_account

from tacit.errors import PrivacyError
from tacit.privacy import Budget, Event, Ledger

names = st.text(min_size=1, max_size=8)


@settings(max_examples=50)
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


def test_whole_numbers_that_another_program_wrote_are_read():
    read = Ledger.from_json(
        with_mechanism(
            noise={"kind": "gaussian", "multiplier": 2},
            sampler={"kind": "poisson", "rate": 1, "unit": "record", "most": 1},
            clip=1,
        )
    )
    assert read.entries()[0].event.noise_multiplier == 2.0
