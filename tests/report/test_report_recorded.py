import json
import math

import numpy as np
import pytest
from made_runs import MACHINE, TIME, record_as_stopped
from tampering import read_events, write_events

from tacit.errors import InvalidInput
from tacit.report import RecordedRun


def test_a_folder_holds_the_whole_run(folders, runs):
    run, events = runs["dsgt"], read_events(folders["dsgt"])
    assert (run.name, run.plan.agents, run.plan.rounds, run.round) == ("dsgt", 6, 20, 20)
    assert run.graph.number_of_edges() == 6
    assert run.queries == run.spent == run.plan.queries == 20
    assert run.finished
    assert run.summary is not None
    assert run.scores.measure == "accuracy"
    assert run.scores.final.tolist() == events[-3]["accuracy"]
    assert run.bytes_sent == sum(events[-3]["bytes_sent"])
    assert run.samples_per_second == pytest.approx(run.summary["samples_per_second"])


def test_a_last_line_that_was_cut_off_is_ignored(folder):
    whole = RecordedRun.load(folder)
    path = folder / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    run = RecordedRun.load(folder)
    assert len(run.history) == len(whole.history)
    path.write_bytes(b"".join(lines[:-3]) + lines[-3][:200] + b"\xff\x00")
    assert len(RecordedRun.load(folder).history) == len(whole.history) - 1


def test_a_run_without_summary_is_not_finished_unless_it_says_so(folder):
    (folder / "summary.json").unlink()
    assert RecordedRun.load(folder).finished
    write_events(folder, read_events(folder)[:10])
    run = RecordedRun.load(folder)
    assert not run.finished
    assert run.summary is None
    assert run.round < run.plan.rounds


def test_the_later_of_two_snapshots_counts_and_lost_queries_are_charged(folder):
    plan, *snapshots = read_events(folder)[:6]
    again = snapshots[-1] | {"consensus_distance": 123.0}
    resume = {"event": "resume", "time": TIME, "round": 2, "lost_queries": 2, "machine": MACHINE}
    write_events(folder, [plan, *snapshots, resume, plan | {"time": "2026-10-20T11:30:00+00:00"}, again])
    record_as_stopped(folder, snapshots[-1]["queries"] + 2)
    run = RecordedRun.load(folder)
    assert [s.round for s in run.history] == [s["round"] for s in snapshots]
    assert run.history[-1].consensus_distance == 123.0
    assert (run.resumes, run.lost_queries) == (1, 2)
    assert run.spent_at(run.history[-1]) == run.spent == snapshots[-1]["queries"] + 2
    assert run.spent_at(run.history[-2]) == snapshots[-2]["queries"]


def test_numbers_that_are_not_finite_are_read_as_none(folder):
    plan, first, second, *_ = read_events(folder)
    second |= {"accuracy": None, "consensus_distance": None, "loss": [None] * 6}  # as the writer puts them
    write_events(folder, [plan | {"clips": [None] * 6}, first | {"accuracy": None}, second])
    run = RecordedRun.load(folder)
    assert run.scores.measure == "loss"
    assert np.isnan(run.scores.final).all()
    assert math.isnan(run.history[-1].consensus_distance)


def test_a_run_without_snapshots_has_an_empty_history(folder):
    write_events(folder, read_events(folder)[:1])
    run = RecordedRun.load(folder)
    assert run.history == ()
    assert (run.round, run.queries, run.bytes_sent, run.scores, run.samples_per_second) == (0, 0, 0, None, None)


def change(position, **fields):
    def apply(folder):
        events = read_events(folder)
        events[position] |= fields
        write_events(folder, events)

    return apply


def again(**fields):
    """Repeat the plan, with other fields."""

    def apply(folder):
        events = read_events(folder)
        events.insert(3, events[0] | fields)
        write_events(folder, events)

    return apply


def put(name, content):
    return lambda folder: (folder / name).write_text(content)


def append(*lines):
    def apply(folder):
        path = folder / "events.jsonl"
        path.write_text(path.read_text() + "".join(f"{line}\n" for line in lines))

    return apply


BROKEN = {
    "no config": (lambda folder: (folder / "config.toml").unlink(), "not a run folder: it has no config.toml"),
    "no events": (lambda folder: (folder / "events.jsonl").unlink(), "not a run folder: it has no events.jsonl"),
    "config of another kind": (put("config.toml", "a = = b"), "config.toml is not TOML"),
    "empty events": (put("events.jsonl", ""), "no plan event"),
    "summary of another kind": (put("summary.json", "[1]"), "holds list, not a summary"),
    "broken summary": (put("summary.json", "{"), "summary.json is not JSON"),
    "line cut off in the middle": (append('{"event": "snap', '{"event": "finish", "seconds": 1}'), "is not JSON"),
    "not an event": (append("[1, 2]"), "not an event"),
    "snapshot first": (
        put("events.jsonl", json.dumps({"event": "snapshot", "time": TIME}) + "\n"),
        "line 1: snapshot, round: Field required",
    ),
    "missing key": (append('{"event": "finish", "round": 3}'), "finish, time: Field required"),
    "agents of another type": (change(0, agents="many"), "line 1: plan, agents"),
    "no agents": (change(0, agents=0), "plan, agents: Input should be greater than or equal to 1"),
    "too few rates": (change(0, sample_rates=[0.1]), "sample_rates has 1 values for 6 agents"),
    "rate above one": (change(0, sample_rates=[1.5] * 6), r"sample rate lies outside \(0, 1\]"),
    "no noise": (change(0, noise_multipliers=[0.0] * 6), "noise multiplier of a private run"),
    "no delta": (change(0, delta=None), "a private run needs delta"),
    "delta of one": (change(0, delta=1.0), "delta is 1.0"),
    "unknown adjacency": (
        change(0, adjacency="both"),
        "plan, adjacency: Input should be 'add_remove' or 'replace_one'",
    ),
    "edge into nothing": (change(0, edges=[[0, 6]]), "an edge leads to an agent that is not among the 6"),
    "ragged counts": (change(0, counts=[[1]] * 5 + [[1, 2]]), "rows of different lengths"),
    "too many accuracies": (change(1, accuracy=[0.5] * 7), "line 2: snapshot: accuracy has 7 values for 6 agents"),
    "another plan": (again(rounds=7), "line 4: a second plan that differs"),
    "unknown kind": (change(3, event="news"), "line 4: event: 'news' is not a kind of event"),
    "unknown field of a plan": (change(0, colour="red"), "line 1: plan, colour: unknown field"),
    "unknown field of a snapshot": (change(2, samples=3), "line 3: snapshot, samples: unknown field"),
    "a number as a text": (change(1, queries="3"), "line 2: snapshot, queries: Input should be a valid integer"),
    "part of a query": (change(1, queries=1.5), "line 2: snapshot, queries"),
    "a text among rates": (change(0, sample_rates=["a"] + [0.1] * 5), "line 1: plan, sample_rates.0: "),
    "less than none": (change(1, bytes_sent=[-1] * 6), "line 2: snapshot, bytes_sent.0: "),
    "no time zone": (change(0, time="2026-10-20T09:30:00"), "line 1: plan, time: Input should have timezone"),
    "broken last line with an end": (append('{"event": "snap'), "is not JSON"),
}


@pytest.mark.parametrize(("spoil", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_folder_is_an_error_that_says_what_is_wrong(folder, spoil, message):
    spoil(folder)
    with pytest.raises(InvalidInput, match=message):
        RecordedRun.load(folder)


def test_what_is_not_a_folder_is_an_error(tmp_path):
    with pytest.raises(InvalidInput, match="does not exist; a run is a folder"):
        RecordedRun.load(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="is a file"):
        RecordedRun.load(str(tmp_path / "file"))
