"""`events.jsonl`: what is written is read back, and what was not written so is refused by line and field."""

import hashlib
import json
import math
import re
from dataclasses import replace

import pytest

from tacit.errors import InvalidInput, StorageError
from tacit.runs import events
from tacit.runs.event_types import (
    CheckEvent,
    CheckpointEvent,
    FinishEvent,
    LinksEvent,
    Machine,
    NoticeEvent,
    PlanEvent,
    ResumeEvent,
    SnapshotEvent,
    now,
)
from tacit.runs.events import START, Events, append, read, say_links_used

MACHINE = Machine(processor="p", torch="2.13.0", threads=1, blocks=(8, 4), device="cpu", code="0" * 64)
PLAN = PlanEvent(
    time=now(),
    token="t",
    fingerprint="f",
    algorithm="dsgt",
    dataset="digits",
    agents=2,
    rounds=9,
    gossip_rounds=0,
    exchanges_per_query=1,
    absences=(),
    edges=((0, 1),),
    changing=False,
    weights=None,
    counts=None,
    sizes=(50, 60),
    owners=("Ä", "b"),
    schema={"inputs": {"kind": "float32"}},
    sample_rates=(0.1, 0.2),
    lot_sizes=(5.0, 12.0),
    clips=(1.0, math.inf),
    noise_multipliers=(1.5, 2.0),
    masks=None,
    observer="all",
    queries=11,
    spare_queries=2,
    private=True,
    unit=None,
    epsilon=None,
    delta=1e-5,
    adjacency="add_remove",
    accountant="pld",
    release=True,
    params=3,
    engine="layer by layer",
    compiled=False,
    machine=MACHINE,
)


def look(number, **changes):
    seen = {"accuracy": (0.1, 1 / 3), "loss": (math.nan, 2.0), "consensus_distance": math.nan, "bytes_sent": (4, 5)}
    seen |= {"scored": (100, 180)}
    return SnapshotEvent(time=now(), round=number, queries=number, seconds=0.5, **(seen | changes))


STORY = [
    PLAN,
    CheckEvent(
        time=now(), settings="s", checked="2026-10-20", verdict="no fault found", failed=("a",), false_alarm=1e-3
    ),
    look(0),
    look(3),
    CheckpointEvent(time=now(), round=3, sha256="1" * 64),
    look(4),
    ResumeEvent(time=now(), round=3, lost_queries=2, machine=MACHINE),
    look(4, bytes_sent=(8, 9)),
    FinishEvent(time=now(), round=4, seconds=2.25, models_sha256="2" * 64),
]


@pytest.fixture
def path(tmp_path):
    for event in STORY:
        append(tmp_path / "events.jsonl", event)
    return tmp_path / "events.jsonl"


def test_rounds_without_a_site_are_counted_as_such():
    """It played rounds 1, 2 and 5 of 5; of the links of round 5 it used none."""
    times = {"time": now()}
    played = [LinksEvent(round=each, used=(1, 2), skipped=(), **times) for each in (1, 2)]
    last = LinksEvent(round=5, used=(), skipped=(1, 2), **times)
    found = Events([*played, NoticeEvent(round=4, kind="away", **times), last]).links_used
    assert found == {"links_used": 4, "links_planned": 6, "rounds_away": 2}
    words = "4 of 6 exchanges over links were used, and this site took no part in 2 of 5 rounds: it ran short"
    assert say_links_used(found | {"rounds": 5}) == words
    assert say_links_used(found | {"links_used": 6, "rounds_away": 0}) == "6 of 6 exchanges over links were used"


def test_what_is_written_is_read_back(path):
    found = list(read(path))
    assert [type(event) for event in found] == [type(event) for event in STORY]
    for event, told in zip(found, STORY, strict=True):
        assert event.time == told.time
    assert found[1] == STORY[1]
    assert found[3].accuracy == STORY[3].accuracy
    assert math.isnan(found[3].loss[0])
    assert math.isnan(found[0].clips[1])  # JSON has no word for infinity
    assert replace(found[0], clips=PLAN.clips) == PLAN
    strict = {"parse_constant": lambda word: pytest.fail(f"{word} is no JSON")}
    for line in path.read_text().splitlines():
        json.loads(line, **strict)


def test_the_events_add_up(path):
    story = read(path)
    assert story.plan.owners == ("Ä", "b")
    assert [seen.round for seen in story.snapshots] == [0, 3, 4]
    assert story.snapshots[-1].bytes_sent == (8, 9)  # the later of two
    assert story.lost_before == {0: 0, 3: 0, 4: 2}
    assert (story.round, story.lost_queries, len(story.resumes), story.finish.seconds) == (4, 2, 1, 2.25)
    assert story.check.verdict == "no fault found"


def test_no_file_is_no_events(tmp_path):
    story = read(tmp_path / "events.jsonl")
    assert (len(story), story.plan, story.snapshots, story.finish, story.check, story.round) == (
        0,
        None,
        (),
        None,
        None,
        0,
    )


@pytest.mark.parametrize("cut", [1, 30, -1])
def test_a_last_line_without_an_end_is_ignored_and_replaced_by_the_next(path, cut):
    *whole, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole) + last[:cut])
    assert len(read(path)) == len(STORY) - 1
    append(path, STORY[-1])
    assert len(read(path)) == len(STORY)


def spoil(path, number, **fields):
    lines = path.read_text().splitlines()
    lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | fields)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("number", "fields", "message"),
    [
        (1, {"compiled": "no"}, "line 1: plan, compiled: Input should be a valid boolean"),
        (1, {"rounds": 9.0}, "line 1: plan, rounds"),
        (1, {"epsilons": [1.0]}, "line 1: plan, epsilons: unknown field"),
        (2, {"failed": "a"}, "line 2: check, failed"),
        (3, {"round": -1}, "line 3: snapshot, round"),
        (3, {"round": True}, "line 3: snapshot, round"),
        (3, {"seconds": None}, "line 3: snapshot, seconds"),
        (3, {"bytes_sent": [1]}, "line 3: snapshot: bytes_sent has 1 values for 2 agents"),
        (5, {"time": "yesterday"}, "line 5: checkpoint, time"),
        (7, {"lost_queries": 0.5}, "line 7: resume, lost_queries"),
        (9, {"event": "end"}, "line 9: event: 'end' is not a kind of event"),
        (9, {"event": None}, "line 9 is not an event"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_line_and_field(path, number, fields, message):
    spoil(path, number, **fields)
    with pytest.raises(InvalidInput, match=message):
        read(path)


def test_every_line_has_a_hash_of_itself_and_all_before_it(path):
    """By a loop from the definition."""
    previous, story = START, read(path)
    assert hashlib.sha256(b"tacit-events-1").hexdigest() == START
    for line, kept in zip(path.read_text().splitlines(), story.hashes, strict=True):
        content = json.loads(line)
        assert content.pop("hash") == kept
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        previous = hashlib.sha256(f"{previous}\n{hashlib.sha256(text.encode()).hexdigest()}\n".encode()).hexdigest()
        assert kept == previous
    assert story.head == events.head(path) == previous


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:3] + lines[4:],
        lambda lines: [*lines[:3], lines[3].replace(b'"queries": 3', b'"queries": 4'), *lines[4:]],
        lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
        lambda lines: [*lines[:2], re.sub(rb', "hash": "[0-9a-f]+"', b"", lines[2]), *lines[3:]],
    ],
    ids=["a line less", "another number", "another order", "no hash"],
)
def test_a_line_that_was_changed_by_itself_is_refused(path, change):
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(InvalidInput, match="the hash does not follow"):
        read(path)


def test_lines_that_were_taken_from_the_end_are_missed_by_whoever_holds_the_head(path):
    kept = read(path).head
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert kept not in read(path).hashes


def test_nothing_is_added_to_a_file_without_hashes(path):
    path.write_bytes(path.read_bytes() + b'{"event": "finish"}\n')
    with pytest.raises(InvalidInput, match="ends in a line without a hash"):
        append(path, STORY[-1])


def test_the_last_line_is_found_however_long_it_is(tmp_path):
    path = tmp_path / "events.jsonl"
    long = replace(PLAN, algorithm="x" * 200_000)
    append(path, long)
    append(path, replace(STORY[1], verdict="y" * 200_000))
    with path.open("ab") as file:
        file.write(b"z" * 100_000)  # cut off by a crash
    append(path, STORY[-1])
    assert [event.event for event in read(path)] == ["plan", "check", "finish"]


def test_what_comes_before_the_plan_is_refused(path):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[2:]))
    with pytest.raises(InvalidInput, match="line 1: a snapshot comes before the plan"):
        read(path)


def test_an_event_that_does_not_fit_cannot_be_made():
    with pytest.raises(ValueError, match="sizes has 3 values for 2 agents"):
        replace(PLAN, sizes=(1, 2, 3))
    with pytest.raises(ValueError, match="lost_queries"):
        ResumeEvent(time=now(), round=3, lost_queries=-1, machine=MACHINE)


def test_a_file_that_cannot_be_read_is_reported(tmp_path):
    with pytest.raises(StorageError, match="cannot be read"):
        events.read(tmp_path)
