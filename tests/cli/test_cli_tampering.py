"""`tacit ledger --verify` finds every change of the record that would make ε look smaller, or a run look better."""

import sqlite3

import pytest
from invoking import QUICK

RUN = ["train", *QUICK, "--source", "seeded", "--name", "one", "-q"]

TAMPERED = {
    "more noise": "UPDATE lines SET noise_multiplier = 30",
    "less sampling": "UPDATE lines SET sample_rate = 0.0001 WHERE place = 2",
    "made a release": "UPDATE lines SET release = 1",
    "another owner": "UPDATE lines SET owner = 'nobody' WHERE place = 1",
    "an owner less": "DELETE FROM lines WHERE place = 3",
    "queries at the end": "DELETE FROM queries WHERE number > 4",
    "a query between": "DELETE FROM queries WHERE number = 3",
    "all queries": "DELETE FROM queries",
    "a larger allowance": "UPDATE accounts SET allowed = 100000",
}


@pytest.mark.parametrize("change", TAMPERED)
def test_a_tampered_ledger_is_found_out(change, tacit, tmp_path):
    assert tacit(*RUN)[0] == 0
    assert tacit("ledger", "--verify")[0] == 0
    with sqlite3.connect(tmp_path / "runs" / "ledger.sqlite") as database:
        database.execute(TAMPERED[change])
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "NOT WHOLE" in out


def test_a_ledger_of_another_version_is_refused(tacit, tmp_path):
    tacit(*RUN)
    with sqlite3.connect(tmp_path / "runs" / "ledger.sqlite") as database:
        database.execute("PRAGMA user_version = 7")
    code, _, err = tacit("ledger")
    assert code == 2
    assert "is a ledger of version 7" in err
