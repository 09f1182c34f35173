"""`tacit ledger --verify` finds every change of the record that would make ε look smaller, or a run look better."""

import sqlite3

import pytest
from invoking import PLAIN, QUICK, one_line
from tampering import edit_log, read_log, write_log

from tacit.runs import Runner
from tacit.runs.config import RunConfig

RUN = ["train", *QUICK, "--source", "seeded", "--name", "one", "-q"]


def line(change, *places):
    """Return a change of the lines at these places, of all if none is named."""

    def of_account(row):
        lines = [change(each) if not places or place in places else each for place, each in enumerate(row["lines"])]
        return row | {"lines": [each for each in lines if each is not None]}

    return lambda row: of_account(row) if row["kind"] == "open" else row


def mechanism(**fields):
    return lambda each: each | {"mechanism": each["mechanism"] | fields}


def without(kind, which=lambda row: True):
    return lambda row: None if row["kind"] == kind and which(row) else row


# Each is made with hashes that follow, by someone who may write the ledger but not the files of the run.
TAMPERED = {
    "more noise": line(mechanism(noise={"kind": "gaussian", "multiplier": 30.0})),
    "less sampling": line(mechanism(sampler={"kind": "poisson", "rate": 0.0001, "unit": "record", "most": 1}), 2),
    "a smaller clip": line(mechanism(clip=0.5)),
    "a larger lot": line(mechanism(lot=100.0), 1),
    "made a release": line(lambda each: each | {"release": True}),
    "another owner": line(lambda each: each | {"owner": "nobody"}, 1),
    "an owner less": line(lambda each: None, 3),
    "queries at the end": without("query", lambda row: row["number"] > 4),
    "a query between": without("query", lambda row: row["number"] == 3),
    "all queries": without("query"),
    "a larger allowance": lambda row: row | {"allowed": 100000} if row["kind"] == "open" else row,
    "nothing at all": lambda row: None,
}


@pytest.mark.parametrize("change", TAMPERED)
def test_a_tampered_ledger_is_detected(change, tacit, tmp_path):
    assert tacit(*RUN)[0] == 0
    assert tacit("ledger", "--verify")[0] == 0
    edit_log(tmp_path / "runs" / "ledger.sqlite", TAMPERED[change])
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "DOES NOT HOLD" in out


def test_a_row_that_was_changed_by_itself_is_detected(tacit, tmp_path):
    assert tacit(*RUN)[0] == 0
    with sqlite3.connect(tmp_path / "runs" / "ledger.sqlite") as database:
        database.execute("UPDATE log SET text = replace(text, '\"clip\":1.0', '\"clip\":0.5')")
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "DOES NOT HOLD: row 1 was changed" in one_line(out)


NOISY = {"kind": "gaussian", "multiplier": 9.0}


@pytest.mark.parametrize(
    "change",
    [without("query"), line(mechanism(noise=NOISY, clip=1.0)), lambda row: None],
    ids=["no query", "noise", "nothing"],
)
def test_a_run_without_privacy_cannot_be_taken_out_of_the_record(change, tacit, tmp_path):
    assert tacit("train", *PLAIN, "--name", "open", "-q")[0] == 0
    assert tacit("ledger", "--verify")[0] == 0
    edit_log(tmp_path / "runs" / "ledger.sqlite", change)
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "DOES NOT HOLD" in out


def test_a_stopped_run_cannot_be_made_a_finished_one(tacit, tmp_path):
    config = RunConfig.of({"agents": 4, "noise_multiplier": 3.0, "lot_size": 24, "rounds": 6})
    with Runner.start(tmp_path / "runs", "one", config) as runner:
        runner.play(stop=lambda: runner.session.round >= 3)
    out = one_line(tacit("ledger")[1])
    assert "8 (3 made)" in out
    assert "a run that is not finished is charged its whole plan" in out
    assert tacit("ledger", "--verify")[0] == 0
    record = tmp_path / "runs" / "ledger.sqlite"
    write_log(record, [*read_log(record), {"kind": "close", "account": 1, "state": "finished"}])
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "is finished in the ledger, but its files show 3 of 8 queries" in one_line(out)


def test_a_ledger_of_another_version_is_refused(tacit, tmp_path):
    tacit(*RUN)
    with sqlite3.connect(tmp_path / "runs" / "ledger.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
    code, _, err = tacit("ledger")
    assert code == 2
    assert "is a ledger of version 99" in err
