"""Runs that are refused, before they begin or when they are resumed, and what is left of them."""

import pytest
from played_runs import OPEN, config, play, stopped
from tampering import read_events, write_events

from tacit.data import Schema
from tacit.errors import BudgetExceeded, InvalidInput, StorageError
from tacit.privacy import Budget, DurableLedger
from tacit.runs import Runner
from tacit.runs.config import RunConfig


def test_a_setting_that_needs_an_extra_says_so(monkeypatch):
    monkeypatch.setattr("tacit.runs.config_checks.find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"install tacit\[tensorboard\]"):
        config(tensorboard=True)


def test_a_run_without_privacy_is_refused_under_a_budget_and_leaves_no_folder(tmp_path):
    DurableLedger(tmp_path / "ledger.sqlite", Budget(epsilon=100.0, delta=1e-5))
    with pytest.raises(BudgetExceeded, match=r"has no privacy, and .* has a budget of ε=100"):
        Runner.start(tmp_path, "open", config(**OPEN))
    assert not (tmp_path / "open").exists()


def test_a_run_that_would_pass_the_budget_leaves_no_folder(tmp_path):
    DurableLedger(tmp_path / "ledger.sqlite", Budget(epsilon=0.1, delta=1e-5))
    with pytest.raises(BudgetExceeded, match="past its budget"):
        Runner.start(tmp_path, "greedy", config())
    assert not (tmp_path / "greedy").exists()


def test_two_processes_cannot_work_on_one_run(tmp_path):
    with Runner.start(tmp_path, "one", config()), pytest.raises(InvalidInput, match="another process is working on"):
        Runner.resume(tmp_path / "one")


def test_the_plan_keeps_the_schema_and_a_run_goes_on_under_no_other(tmp_path):
    folder = stopped(tmp_path)
    kept = folder.events_file.read_bytes()
    schema = Schema.of(folder.events().plan.schema)
    assert str(schema) == "inputs: uint8 [1, 8, 8], 0 to 255; targets: int64, 0 to 9"
    spent = [entry.event.count for entry in DurableLedger(folder.ledger_file, read_only=True).entries(run="one")]
    told = read_events(folder.path)
    told[0]["schema"]["targets"]["high"] = 8
    write_events(folder.path, told)
    with pytest.raises(
        InvalidInput, match=r"began with inputs: .*, 0 to 8, but its data and model now give .* 0 to 9;"
    ):
        Runner.resume(folder.path)
    folder.events_file.write_bytes(kept.replace(b'"schema": {', b'"another": {'))
    with pytest.raises(InvalidInput, match="line 1: plan, schema: Field required"):
        Runner.resume(folder.path)
    assert [e.event.count for e in DurableLedger(folder.ledger_file, read_only=True).entries(run="one")] == spent
    folder.events_file.write_bytes(kept)
    assert play(Runner.resume(folder.path)) is not None


def test_records_that_do_not_fit_leave_no_run_behind(tmp_path, monkeypatch):
    load_data = RunConfig.load_data

    def spoilt(self):
        data = load_data(self)
        data.dataset.train.targets[data.indices[2][0]] = 77
        return data

    monkeypatch.setattr(RunConfig, "load_data", spoilt)
    with pytest.raises(InvalidInput, match=r"agent 2 \(digits/.*\): targets above 9\. Drop them") as caught:
        Runner.start(tmp_path, "one", config())
    assert "77" not in str(caught.value)
    assert not (tmp_path / "one").exists()
    assert not DurableLedger(tmp_path / "ledger.sqlite", read_only=True).entries()


def test_a_changed_configuration_is_refused(tmp_path):
    folder = stopped(tmp_path)
    folder.config_file.write_text(folder.config_file.read_text().replace("lot_size = 24", "lot_size = 25"))
    with pytest.raises(InvalidInput, match="was changed since the run began"):
        Runner.resume(folder.path)


def test_a_broken_or_foreign_checkpoint_is_refused_and_left_alone(tmp_path):
    folder = stopped(tmp_path)
    whole = folder.checkpoint_file.read_bytes()
    for content in (whole[: len(whole) // 2], b"not a checkpoint", b""):
        folder.checkpoint_file.write_bytes(content)
        with pytest.raises(StorageError, match="broken or not a checkpoint"):
            Runner.resume(folder.path)
        assert folder.checkpoint_file.read_bytes() == content
    folder.checkpoint_file.write_bytes(whole)
    assert play(Runner.resume(folder.path)) is not None


@pytest.mark.parametrize(
    ("prepare", "error", "message"),
    [
        (lambda f: f.summary_file.write_text("{}"), InvalidInput, "is finished"),
        (lambda f: f.ledger_file.unlink(), StorageError, "the ledger .* is missing"),
        (lambda f: f.config_file.unlink(), InvalidInput, "has no config.toml"),
        (lambda f: f.config_file.write_text("rounds = ["), InvalidInput, "is not TOML"),
        (lambda f: f.config_file.write_text("rond = 3"), InvalidInput, "did you mean 'rounds'"),
    ],
)
def test_a_folder_that_cannot_go_on_says_why(tmp_path, prepare, error, message):
    folder = stopped(tmp_path)
    prepare(folder)
    with pytest.raises(error, match=message):
        Runner.resume(folder.path)


def test_names_and_taken_folders_are_refused(tmp_path):
    play(Runner.start(tmp_path, "one", config()))
    with pytest.raises(InvalidInput, match="already exists"):
        Runner.start(tmp_path, "one", config())
    for name in ("../escape", "", "a/b", ".hidden"):
        with pytest.raises(InvalidInput, match="cannot be called"):
            Runner.start(tmp_path, name, config())
