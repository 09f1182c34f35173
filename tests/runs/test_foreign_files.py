"""Files that are not the run's own, are older than they should be, or are damaged: refused, and left as they are."""

import json
import os
import shutil
import signal

import forked
import pytest
import torch

import tacit
from tacit.errors import BudgetExceeded, InvalidInput, PrivacyError, StorageError
from tacit.privacy import DurableLedger
from tacit.runs import RunFolder, Runner
from tacit.runs.config import RunConfig
from tacit.training.session import Session

BASE = {
    "dataset": "digits",
    "agents": 4,
    "split": "0.5",
    "noise_multiplier": 3.0,
    "lot_size": 24,
    "rounds": 12,
    "source": "seeded",
    "checkpoint_every": 5,
    "evaluate_every": 3,
    "spare_queries": 4,
}


class Killed(BaseException):
    """As a process that dies: nothing of ours runs after it."""


def start(runs, name, *, die_after, **changes):
    """Play a run that dies after so many rounds."""

    def die(runner):
        if runner.session.round == die_after:
            raise Killed

    with Runner.start(runs, name, RunConfig.of(BASE | changes)) as runner, pytest.raises(Killed):
        runner.play(stop=lambda: False, on_round=die)
    return RunFolder.find(runs / name)


def resume(folder):
    with Runner.resume(folder.path) as runner:
        return runner.play(stop=lambda: False)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.path.iterdir() if path.is_file()}


def refused(folder, message, error=StorageError):
    before = content(folder)
    with pytest.raises(error, match=message):
        resume(folder)
    assert content(folder) == before


def test_a_checkpoint_of_another_run_with_the_same_settings(tmp_path):
    one, two = (start(tmp_path, name, die_after=7) for name in ("one", "two"))
    shutil.copy(two.checkpoint_file, one.checkpoint_file)
    refused(one, "checkpoint.safetensors belongs to another run")


def test_a_log_of_another_run_with_the_same_settings(tmp_path):
    one, two = (start(tmp_path, name, die_after=7) for name in ("one", "two"))
    shutil.copy(two.answers_file(5), one.answers_file(5))
    refused(one, "answers-00000005.bin belongs to another run")


def test_two_runs_whose_folders_were_swapped(tmp_path):
    one, two = (start(tmp_path, name, die_after=die_after) for name, die_after in (("one", 3), ("two", 9)))
    for before, after in ((one.path, tmp_path / "x"), (two.path, one.path), (tmp_path / "x", two.path)):
        before.rename(after)
    refused(one, "belongs to a different run than the one in the ledger")
    refused(two, "belongs to a different run than the one in the ledger")


def test_a_ledger_from_a_backup(tmp_path):
    def die(runner):
        if runner.session.round == 3:
            DurableLedger(tmp_path / "ledger.sqlite")._database.execute(f"VACUUM INTO '{tmp_path / 'backup'}'")
        if runner.session.round == 7:
            raise Killed

    with Runner.start(tmp_path, "one", RunConfig.of(BASE)) as runner, pytest.raises(Killed):
        runner.play(stop=lambda: False, on_round=die)
    for path in tmp_path.glob("ledger.sqlite*"):
        path.unlink()
    (tmp_path / "backup").rename(tmp_path / "ledger.sqlite")
    refused(RunFolder.find(tmp_path / "one"), "7 answers of run 'one' are on disk, but only 3 queries on record")


def test_settings_that_changed_when_the_plan_was_lost(tmp_path):
    folder = start(tmp_path, "one", die_after=3)
    folder.events_file.unlink()
    refused(folder, "has no plan, but 3 queries of this run are on record")


def test_a_secret_run_cannot_become_a_seeded_one_before_its_first_query(tmp_path):
    Runner.start(tmp_path, "one", RunConfig.of(BASE | {"source": "secret"})).close()
    folder = RunFolder.find(tmp_path / "one")
    folder.events_file.unlink()
    folder.config_file.write_text(folder.config_file.read_text().replace('"secret"', '"seeded"'))
    refused(folder, "lots and noise of another kind", PrivacyError)


@pytest.mark.parametrize("place", [-200, 300])
def test_a_checkpoint_with_a_flipped_bit(tmp_path, place):
    folder = start(tmp_path, "one", die_after=7)
    damaged = bytearray(folder.checkpoint_file.read_bytes())
    damaged[place] ^= 4
    folder.checkpoint_file.write_bytes(damaged)
    refused(folder, "is broken or not a checkpoint of Tacit")


def test_a_flipped_bit_in_an_answer_that_is_not_the_last(tmp_path):
    folder = start(tmp_path, "one", die_after=8)
    path = folder.answers_file(5)
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 4
    path.write_bytes(damaged)
    refused(folder, "is broken at byte 0")


def test_a_last_answer_that_was_cut_off_is_asked_again(tmp_path):
    folder = start(tmp_path, "one", die_after=8)
    path = folder.answers_file(5)
    path.write_bytes(path.read_bytes()[:-10])
    resume(folder)
    ledger = DurableLedger(tmp_path / "ledger.sqlite")
    assert {entry.event.count for entry in ledger.entries()} == {13}


def one_way_ring(*, back):
    """Weights that differ by direction, in a file."""
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0)]
    return "".join(f"{i} {j} 0.5\n{j} {i} {back}\n" for i, j in pairs)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("0 1\n1 2\n2 3\n", "0 1\n1 2\n2 3\n0 3\n"),
        ("0 1 0.3\n1 2 0.3\n2 3 0.3\n", "0 1 0.3\n1 2 0.3\n2 3 0.2\n"),
        (one_way_ring(back=0.1), one_way_ring(back=0.2)),
    ],
    ids=["links", "weights", "weights of one direction"],
)
def test_a_graph_file_that_changed(tmp_path, before, after):
    graph = tmp_path / "graph.txt"
    graph.write_text(before)
    folder = start(tmp_path / "runs", "one", die_after=7, graph=str(graph))
    graph.write_text(after)
    refused(folder, "graph.txt' was changed since the run began", InvalidInput)
    graph.write_text("".join(sorted(before.splitlines(keepends=True))))
    assert resume(folder) is not None


def test_a_run_that_was_killed_before_it_began_begins(tmp_path):
    whole = RunConfig.of(BASE)
    Runner.start(tmp_path, "other", whole).close()  # so that there is a ledger
    folder = RunFolder.create(tmp_path, "one", whole)
    resume(folder)
    assert folder.summary()["rounds"] == 12


def die_before_the_account_is_open(say, runs, budget):
    Session.open_accounts = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    Runner.start(runs, "one", RunConfig.of(BASE), budget=budget)


def test_a_run_that_was_killed_before_its_account_was_open_keeps_the_budget_that_it_brought(tmp_path):
    whole = RunConfig.of(BASE)
    Runner.start(tmp_path, "other", whole).close()  # a ledger without a budget
    small, large = (tacit.Budget(epsilon=epsilon, delta=1e-5) for epsilon in (0.01, 1000.0))
    child, _ = forked.start(die_before_the_account_is_open, tmp_path, small)
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    with pytest.raises(BudgetExceeded):
        Runner.resume(tmp_path / "one")
    assert DurableLedger(tmp_path / "ledger.sqlite", read_only=True).account("one") is None
    RunFolder.create(tmp_path, "two", whole, large)
    folder = RunFolder(tmp_path / "two")
    resume(folder)
    assert DurableLedger(tmp_path / "ledger.sqlite", read_only=True).budget == large
    assert not folder.budget_file.exists()


def test_dying_between_the_last_checkpoint_and_the_summary_changes_nothing(tmp_path, monkeypatch):
    with Runner.start(tmp_path, "whole", RunConfig.of(BASE)) as runner:
        expected = runner.play(stop=lambda: False)

    def die(self):
        raise Killed

    with monkeypatch.context() as patched, Runner.start(tmp_path, "one", RunConfig.of(BASE)) as runner:
        patched.setattr(Runner, "_finish", die)
        with pytest.raises(Killed):
            runner.play(stop=lambda: False)
    folder = RunFolder.find(tmp_path / "one")
    found = resume(folder)
    assert torch.equal(found.theta, expected.theta)
    one, whole = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("one", "whole"))
    for key in one.keys() - {"seconds", "evaluation_seconds", "samples_per_second", "heads"}:
        assert one[key] == whole[key], key


def test_dying_before_the_account_is_closed_leaves_it_charged_its_plan_until_the_run_is_resumed(tmp_path, monkeypatch):
    def die(self):
        raise Killed

    with monkeypatch.context() as patched, Runner.start(tmp_path, "one", RunConfig.of(BASE)) as runner:
        patched.setattr(Session, "close", die)
        with pytest.raises(Killed):
            runner.play(stop=lambda: False)
    left = DurableLedger(tmp_path / "ledger.sqlite").account("one")
    assert (left.state, left.charged) == ("open", left.allowed)
    resume(RunFolder.find(tmp_path / "one"))
    left = DurableLedger(tmp_path / "ledger.sqlite").account("one")
    assert (left.state, left.charged) == ("finished", 12)
    assert left.charged < left.allowed


def die_while_it_computes(tell, folder):
    with Runner.start(folder, "one", RunConfig.of(BASE)) as runner:
        runner.session.chosen.engine.clipped_sums = lambda *given: os._exit(9)
        runner.play(stop=lambda: False)


@pytest.mark.slow
def test_a_process_that_dies_while_it_computes_owes_nothing(tmp_path):
    """The answer was never seen by anyone, so no query was made."""
    process, told = forked.start(die_while_it_computes, tmp_path)
    process.join(120)
    assert process.exitcode == 9
    told.close()
    assert {entry.spent for entry in DurableLedger(tmp_path / "ledger.sqlite").entries()} == {0}
    resume(RunFolder.find(tmp_path / "one"))
    assert {entry.event.count for entry in DurableLedger(tmp_path / "ledger.sqlite").entries()} == {12}
