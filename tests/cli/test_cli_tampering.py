"""`tacit ledger --verify` finds every change of the record that would make ε look smaller, or a run look better."""

import sqlite3

import pytest
from invoking import PLAIN, QUICK, one_line

from tacit.config import RunConfig
from tacit.runs import Runner

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
    "no account at all": "DELETE FROM accounts; DELETE FROM lines; DELETE FROM queries",
}


@pytest.mark.parametrize("change", TAMPERED)
def test_a_tampered_ledger_is_found_out(change, tacit, tmp_path):
    assert tacit(*RUN)[0] == 0
    assert tacit("ledger", "--verify")[0] == 0
    with sqlite3.connect(tmp_path / "runs" / "ledger.sqlite") as database:
        database.executescript(TAMPERED[change])
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "NOT WHOLE" in out


@pytest.mark.parametrize(
    "change",
    ["DELETE FROM queries", "UPDATE lines SET noise_multiplier = 9", "DELETE FROM lines; DELETE FROM accounts"],
)
def test_a_run_without_privacy_cannot_be_taken_out_of_the_record(change, tacit, tmp_path):
    assert tacit("train", *PLAIN, "--name", "open", "-q")[0] == 0
    assert tacit("ledger", "--verify")[0] == 0
    with sqlite3.connect(tmp_path / "runs" / "ledger.sqlite") as database:
        database.executescript(change)
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "NOT WHOLE" in out


def test_a_stopped_run_cannot_be_made_a_finished_one(tacit, tmp_path):
    config = RunConfig.of({"agents": 4, "noise_multiplier": 3.0, "lot_size": 24, "rounds": 6})
    with Runner.start(tmp_path / "runs", "one", config) as runner:
        runner.play(stop=lambda: runner.session.round >= 3)
    out = one_line(tacit("ledger")[1])
    assert "8 (3 made)" in out
    assert "a run that is not finished is charged its whole plan" in out
    assert tacit("ledger", "--verify")[0] == 0
    with sqlite3.connect(tmp_path / "runs" / "ledger.sqlite") as database:
        database.execute("UPDATE accounts SET state = 'finished'")
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "is finished by the record; its files tell of 3 of 8 queries" in one_line(out)


def test_a_ledger_of_another_version_is_refused(tacit, tmp_path):
    tacit(*RUN)
    with sqlite3.connect(tmp_path / "runs" / "ledger.sqlite") as database:
        database.execute("PRAGMA user_version = 7")
    code, _, err = tacit("ledger")
    assert code == 2
    assert "is a ledger of version 7" in err
