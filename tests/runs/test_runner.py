"""Run folders: what a crash, a kill or Ctrl-C leaves behind goes on where it stopped, and is never asked twice."""

import json
import os
import random
import time

import forked
import pytest
import torch
from played_runs import BASE, OPEN, config, play, stopped
from safetensors.torch import load_file

from tacit.data import ByClass, DataSet, load
from tacit.errors import BudgetExceeded
from tacit.models.hashing import models_sha256
from tacit.privacy import DurableLedger, PrivateOracle
from tacit.report import RecordedRun
from tacit.report.html.page import report
from tacit.runs import RunFolder, Runner, list_runs
from tacit.runs.config import RunConfig
from tacit.runs.events import read


def test_a_finished_run_is_a_folder_with_everything_in_it(tmp_path):
    result = play(Runner.start(tmp_path, "one", config()))
    folder = RunFolder.find(tmp_path / "one")
    assert folder.config() == config()
    kinds = [event.event for event in folder.events()]
    assert kinds[0] == "plan"
    assert kinds[-1] == "finish"
    assert [look.round for look in folder.events().snapshots] == [0, 3, 6, 9, 12]
    summary = folder.summary()
    for key in [
        "algorithm",
        "accuracy_mean",
        "accuracy_min",
        "accuracy_max",
        "accuracy_per_agent",
        "consensus_distance",
        "epsilon_per_agent",
        "delta",
        "adjacency",
        "release",
        "rounds",
        "seconds",
        "evaluation_seconds",
        "samples_per_second",
    ]:
        assert key in summary
    assert summary["release"] is False
    saved = load_file(folder.checkpoint_file)
    assert torch.equal(saved["state.0"], result.theta)
    assert not list(folder.path.glob("answers-*"))
    assert [run.name for run in list_runs(tmp_path)] == ["one"]
    ledger = DurableLedger(tmp_path / "ledger.sqlite")
    assert ledger.verify() == []
    assert {entry.event.count for entry in ledger.entries()} == {12}
    spent = ledger.guarantees(result.data.owners, delta=1e-5)
    assert summary["epsilon_per_agent"] == [guarantee.epsilon for guarantee in spent]


@pytest.mark.parametrize("algorithm", ["dsgt", "dsgt averaged", "dinno", "dsgd", "local"])
@pytest.mark.parametrize("stop_after", [1, 5, 7])
def test_a_resumed_run_ends_bit_for_bit_where_an_uninterrupted_one_does(tmp_path, algorithm, stop_after):
    more = {"dinno": {"inner_steps": 2}, "dsgd": {"step": "momentum"}, "dsgt averaged": {"averaging": 0.9}}
    changes = {"algorithm": algorithm.removesuffix(" averaged")} | more.get(algorithm, {})
    whole = play(Runner.start(tmp_path, "whole", config(**changes)))
    assert play(Runner.start(tmp_path, "parts", config(**changes)), stop_after=stop_after) is None
    parts = play(Runner.resume(tmp_path / "parts"))
    assert torch.equal(parts.theta, whole.theta)
    assert parts.history[-1].bytes_sent.tolist() == whole.history[-1].bytes_sent.tolist()
    entries = DurableLedger(tmp_path / "ledger.sqlite").entries()
    counts = {(entry.run, entry.event.count) for entry in entries}
    assert {count for _, count in counts} == {24 if algorithm == "dinno" else 12}


def test_a_crash_between_checkpoints_replays_answers_on_record_and_asks_nothing_twice(tmp_path):
    whole = play(Runner.start(tmp_path, "whole", config()))
    runner = Runner.start(tmp_path, "cut", config())
    for _ in range(8):  # three rounds past the checkpoint of round 5, then nothing is saved any more
        runner.session.advance()
        if runner.session.round == 5:
            runner.checkpoint()
    runner._resources.close()
    resumed = Runner.resume(tmp_path / "cut")
    assert resumed.session.round == 5
    assert resumed._oracle.on_record == 8
    result = play(resumed)
    assert torch.equal(result.theta, whole.theta)
    spent = {e.event.count for e in DurableLedger(tmp_path / "ledger.sqlite").entries(run="cut")}
    assert spent == {12}


def test_an_answer_that_was_cut_off_is_spent_for_nothing_and_a_spare_query_covers_it(tmp_path):
    for name, spare in (("spare", 1), ("none", 0)):
        runner = Runner.start(tmp_path, name, config(spare_queries=spare))
        for _ in range(3):
            runner.session.advance()
        log = runner._oracle.log.path
        runner._resources.close()
        os.truncate(log, log.stat().st_size - 7)
        if spare:
            assert play(Runner.resume(tmp_path / name)) is not None
            assert {e.event.count for e in DurableLedger(tmp_path / "ledger.sqlite").entries(run=name)} == {13}
        else:
            with pytest.raises(BudgetExceeded, match="1 answers of run 'none' were charged and lost"):
                Runner.resume(tmp_path / name)


def test_secret_runs_resume_with_new_keys_and_stay_releases(tmp_path):
    changes = {"source": "secret"}
    play(Runner.start(tmp_path, "secret", config(**changes)), stop_after=6)
    result = play(Runner.resume(tmp_path / "secret"))
    assert result.release
    assert RunFolder.find(tmp_path / "secret").summary()["release"] is True


def test_a_resumed_run_uses_the_engine_that_it_began_with(tmp_path):
    assert play(Runner.start(tmp_path, "one", config()), stop_after=3) is None
    folder = RunFolder.find(tmp_path / "one")
    plan = folder.events().plan
    assert plan.compiled is False
    assert plan.engine == "layer by layer"
    with Runner.resume(folder.path) as runner:
        assert runner.session.training.compile is False  # settled, and not "auto" any more


def test_tensorboard_shows_the_snapshots_once_even_after_a_crash(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with Runner.start(tmp_path, "one", config(tensorboard=True)) as runner, pytest.raises(RuntimeError, match="crash"):
        runner.play(stop=lambda: False, on_round=lambda now: crash() if now.session.round == 8 else None)
    play(Runner.resume(tmp_path / "one"))
    folder = RunFolder.find(tmp_path / "one")
    shown = accumulator.EventAccumulator(str(folder.board_folder)).Reload()
    looks = {look.round: look for look in folder.events().snapshots}
    for tag, value in {
        "accuracy/mean": lambda look: sum(look.accuracy) / 4,
        "accuracy of agents/2": lambda look: look.accuracy[2],
        "consensus distance": lambda look: look.consensus_distance,
        "bytes sent": lambda look: sum(look.bytes_sent),
    }.items():
        points = shown.Scalars(tag)
        assert [point.step for point in points] == [0, 3, 6, 9, 12], tag
        for point in points:
            assert point.value == pytest.approx(value(looks[point.step]), rel=1e-6)
    (tag,) = [tag for tag in shown.Tags()["scalars"] if "epsilon" in tag]
    assert tag == "epsilon per record at δ=1e-05, add-or-remove-one, pld, against everybody else together"
    spent = [point.value for point in shown.Scalars(tag)]
    assert spent == sorted(spent)
    assert spent[0] == 0
    assert spent[-1] == pytest.approx(max(folder.summary()["epsilon_per_agent"]), rel=1e-6)


def crash():
    raise RuntimeError("crash")


def test_private_diagnostics_go_to_a_file_of_their_own(tmp_path):
    play(Runner.start(tmp_path, "seen", config(private_diagnostics=True, source="secret")))
    folder = RunFolder.find(tmp_path / "seen")
    rows = [json.loads(line) for line in folder.private_file.read_text().splitlines()]
    assert len(rows) == 12
    assert "clipped_share" not in folder.events_file.read_text()
    assert folder.summary()["release"] is False


def test_a_run_without_privacy_is_in_the_ledger_and_resumes(tmp_path):
    whole = play(Runner.start(tmp_path, "whole", config(**OPEN)))
    play(Runner.start(tmp_path, "parts", config(**OPEN)), stop_after=7)
    ledger = DurableLedger(tmp_path / "ledger.sqlite")
    assert ledger.readers_without_privacy(whole.data.owners)[whole.data.owners[0]] == ("whole", "parts")
    assert torch.equal(play(Runner.resume(tmp_path / "parts")).theta, whole.theta)
    assert {(entry.run, entry.event, entry.state) for entry in ledger.entries()} == {
        ("whole", None, "finished"),
        ("parts", None, "finished"),
    }
    assert ledger.verify() == []


def test_a_run_without_privacy_is_on_record_before_it_reads_and_can_be_killed_at_any_moment(tmp_path):
    runner = Runner.start(tmp_path, "one", config(**OPEN))
    drawer, seen = runner.session.real_oracle._drawer, []
    draw = drawer.draw

    def watched():
        seen.append(DurableLedger(tmp_path / "ledger.sqlite").account("one").spent)
        return draw()

    drawer.draw = watched
    for _ in range(3):
        runner.session.advance()
    runner._resources.close()  # as a killed process would leave it
    assert seen == [1, 1, 1]
    account = DurableLedger(tmp_path / "ledger.sqlite").account("one")
    assert (account.state, account.charged) == ("open", 1)
    assert play(Runner.resume(tmp_path / "one")) is not None


def test_a_stopped_run_is_charged_its_plan_and_a_finished_one_what_it_made(tmp_path):
    changes = {"rounds": 12, "spare_queries": 3}
    play(Runner.start(tmp_path, "one", config(**changes)), stop_after=5)
    ledger = DurableLedger(tmp_path / "ledger.sqlite")
    assert {(entry.spent, entry.event.count, entry.state) for entry in ledger.entries()} == {(5, 15, "open")}
    told = RecordedRun.load(tmp_path / "one")
    assert (told.spent, told.charged) == (5, 15)
    result = play(Runner.resume(tmp_path / "one"))
    assert {(entry.spent, entry.event.count, entry.state) for entry in ledger.entries()} == {(12, 12, "finished")}
    stated = RunFolder.find(tmp_path / "one").summary()["epsilon_per_agent"]
    assert stated == [kept.epsilon for kept in ledger.guarantees(result.data.owners, delta=1e-5)]
    assert RecordedRun.load(tmp_path / "one").charged == 12


def test_a_run_killed_between_its_end_and_its_summary_is_finished_without_a_query(tmp_path, monkeypatch):
    with monkeypatch.context() as patch, Runner.start(tmp_path, "one", config()) as runner:
        patch.setattr(RunFolder, "summarise", lambda *_: crash())
        with pytest.raises(RuntimeError, match="crash"):
            runner.play(stop=lambda: False)
    folder = RunFolder.find(tmp_path / "one")
    assert folder.summary() is None
    result = play(Runner.resume(tmp_path / "one"))
    ledger = DurableLedger(tmp_path / "ledger.sqlite")
    kept = ledger.guarantees(result.data.owners, delta=1e-5)
    assert folder.summary()["epsilon_per_agent"] == [each.epsilon for each in kept]
    assert {entry.event.count for entry in ledger.entries()} == {12}


def test_a_line_that_a_crash_cut_off_does_not_spoil_the_events(tmp_path):
    folder = stopped(tmp_path)
    with folder.events_file.open("ab") as file:
        file.write(b'{"event": "snap')
    play(Runner.resume(folder.path))
    kinds = [json.loads(line)["event"] for line in folder.events_file.read_text().splitlines()]
    assert "resume" in kinds
    assert kinds[-1] == "finish"


def play_counted(tell, folder, count):
    """Play a run on, with an independent count: a byte for every answer, written before anything else sees it."""
    answers = os.open(count, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    gradient = PrivateOracle.gradient

    def counted(self, theta):
        answer = gradient(self, theta)
        os.write(answers, b".")
        return answer

    PrivateOracle.gradient = counted
    tell("going")
    with Runner.resume(folder) as runner:
        runner.play(stop=lambda: False)


@pytest.mark.slow
def test_kill_9_in_a_loop_ends_bit_for_bit_and_within_the_budget(tmp_path):
    """Killed at random moments until it is done: the ledger has every answer that ever left the oracle, and few others."""
    changes = {"rounds": 150, "spare_queries": 12, "checkpoint_every": 20, "evaluate_every": 50}
    whole = play(Runner.start(tmp_path, "whole", config(**changes)))
    with Runner.start(tmp_path, "killed", config(**changes)):
        pass
    moments, kills = random.Random(1), 0
    while not (tmp_path / "killed" / "summary.json").exists():
        child, said = forked.start(play_counted, tmp_path / "killed", tmp_path / "count")
        with said:
            assert said.readline() == "going\n"
            time.sleep(moments.uniform(0.1, 1.5))
            if kills < 6 and child.is_alive():
                child.kill()
                kills += 1
            child.join()
    ledger = DurableLedger(tmp_path / "ledger.sqlite")
    spent = {entry.event.count for entry in ledger.entries(run="killed")}
    lost = RunFolder(tmp_path / "killed").events().lost_queries
    assert ledger.verify() == []
    assert len(spent) == 1
    total = spent.pop()
    left_the_oracle = (tmp_path / "count").stat().st_size
    assert left_the_oracle <= total <= 150 + kills
    assert total >= 150
    assert lost == total - 150
    saved = load_file(tmp_path / "killed" / "checkpoint.safetensors")
    assert torch.equal(saved["state.0"], whole.theta)


class OwnData(RunConfig):
    """The settings of a run on records that are not a published set, though they have the name of one."""

    def load_data(self):
        digits = load("digits")
        own = DataSet.from_records(
            name="digits",
            train=(digits.train.inputs, digits.train.targets),
            validation=(digits.validation.inputs, digits.validation.targets),
            classes=10,
        )
        return own.split(4, ByClass(t=0.5))


def test_only_a_published_data_set_has_its_classes_counted_in_the_events(tmp_path):
    settings = {**BASE, "rounds": 2, "source": "secret"}
    own = play(Runner.start(tmp_path, "own", OwnData(**settings)))
    play(Runner.start(tmp_path, "published", RunConfig.of(settings)))
    events = {name: RunFolder.find(tmp_path / name).events_file for name in ("own", "published")}
    assert own.release
    assert read(events["own"]).plan.counts is None
    assert sum(map(sum, read(events["published"]).plan.counts)) == sum(own.data.sizes)
    told = "".join(path.read_text() for path in (tmp_path / "own").glob("*.js*"))
    for row in own.data.counts.tolist():
        assert str(row) not in told
    assert report(RecordedRun.load(tmp_path / "own"))


def test_a_resumed_run_has_the_hash_of_an_uninterrupted_one(tmp_path):
    whole = play(Runner.start(tmp_path, "whole", config()))
    play(Runner.start(tmp_path, "parts", config()), stop_after=7)
    play(Runner.resume(tmp_path / "parts"))
    play(Runner.start(tmp_path, "other", config(seed=1)))
    found = {name: RunFolder.find(tmp_path / name).summary()["models_sha256"] for name in ("whole", "parts", "other")}
    assert found["whole"] == found["parts"] == models_sha256(whole.theta)
    assert found["other"] != found["whole"]
