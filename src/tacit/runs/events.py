"""`events.jsonl`, the record of one run: how events are written and read. Nothing else depends on the format.

A plan comes first, then checks of the settings, snapshots, checkpoints and resumes, and a finish at the end. Lines are
appended and never changed. A last line without an end is what a crash left and is ignored; whatever else does not fit the
schema (not JSON, an unknown kind or field, a missing field or one of another type) is an error that names line and field.

Every line ends in a hash of itself and of all lines before it, so that whoever keeps the last one, the *head* of the events, can
check later that none was changed. A single line that was changed is refused when it is read.

The file records what was planned and measured. It does not state ε, which is derived from the ledger.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tacit.errors import InvalidInput
from tacit.io import chains
from tacit.io.files import finite
from tacit.io.jsonl import append_line, last_whole_line, whole_lines
from tacit.runs.event_types import (
    CheckEvent,
    CheckpointEvent,
    FinishEvent,
    LinksEvent,
    LogEvent,
    PlanEvent,
    ResumeEvent,
    SnapshotEvent,
    check_lengths,
)

START = chains.start("tacit-events-1")
"""The hash that the first line follows on."""
_EVENT: TypeAdapter[Any] = TypeAdapter(LogEvent)


class Events:
    """All events of one run, in the order in which they were written."""

    def __init__(self, all_events: Sequence[Any], hashes: Sequence[str] = ()) -> None:
        self._all, self.hashes = tuple(all_events), tuple(hashes)

    @property
    def head(self) -> str:
        """The hash that covers all events."""
        return self.hashes[-1] if self.hashes else START

    @property
    def played_head(self) -> str:
        """The hash that covers all events up to the last that is not a check of the settings: checks may come at any time."""
        played = len(self._all)
        while played and isinstance(self._all[played - 1], CheckEvent):
            played -= 1
        return self.hashes[played - 1] if played and self.hashes else START

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def plan(self) -> PlanEvent | None:
        """The plan; None if nothing was written yet."""
        return next((event for event in self if isinstance(event, PlanEvent)), None)

    @cached_property
    def snapshots(self) -> tuple[SnapshotEvent, ...]:
        """One snapshot a round at most, in the order of rounds; of two at one round, the later."""
        found = {event.round: event for event in self if isinstance(event, SnapshotEvent)}
        return tuple(found[number] for number in sorted(found))

    @cached_property
    def lost_before(self) -> dict[int, int]:
        """For the round of each of `snapshots`: how many queries were charged by then whose answers a crash lost."""
        lost, found = 0, {}
        for event in self:
            if isinstance(event, ResumeEvent):
                lost += event.lost_queries
            elif isinstance(event, SnapshotEvent):
                found[event.round] = lost
        return found

    @property
    def checkpoint(self) -> CheckpointEvent | None:
        """The latest checkpoint."""
        return next((event for event in reversed(self._all) if isinstance(event, CheckpointEvent)), None)

    @property
    def resumes(self) -> tuple[ResumeEvent, ...]:
        """Every time that the run was resumed."""
        return tuple(event for event in self if isinstance(event, ResumeEvent))

    @property
    def lost_queries(self) -> int:
        """How many queries were charged whose answers a crash lost."""
        return sum(event.lost_queries for event in self.resumes)

    @property
    def check(self) -> CheckEvent | None:
        """The latest check of the settings."""
        return next((event for event in reversed(self._all) if isinstance(event, CheckEvent)), None)

    @property
    def finish(self) -> FinishEvent | None:
        """The end, if the run has finished."""
        return next((event for event in reversed(self._all) if isinstance(event, FinishEvent)), None)

    @cached_property
    def links(self) -> dict[int, LinksEvent]:
        """Between peers: which links a site used, by round; of two for one round, the later."""
        return {event.round: event for event in self if isinstance(event, LinksEvent)}

    @property
    def links_used(self) -> dict[str, int]:
        """How many exchanges over links a site made, and how many there were to make, in the rounds that it played; and in how many it took no part."""
        used = sum(len(event.used) for event in self.links.values())
        planned = used + sum(len(event.skipped) for event in self.links.values())
        return {"links_used": used, "links_planned": planned, "rounds_away": self.round - len(self.links)}

    @property
    def round(self) -> int:
        """The last round of any event."""
        return max((event.round for event in self if not isinstance(event, PlanEvent | CheckEvent)), default=0)


def say_links_used(facts: Mapping[str, Any]) -> str:
    """Say what `Events.links_used` found; a run that ran short is called that."""
    used, planned, away = (int(facts[key]) for key in ("links_used", "links_planned", "rounds_away"))
    words = f"{used:,} of {planned:,} exchanges over links were used"
    if away:
        words += f", and this site took no part in {away:,} of {int(facts['rounds']):,} rounds"
    return f"{words}: it ran short" if away or used < planned else words


def append(path: Path, event: LogEvent) -> None:
    """Append one event to a file, with a hash that covers it and all before it, and wait until it is on disk."""
    (line,) = chained([plain(event)], head(path))
    append_line(path, line)


def head(path: Path) -> str:
    """Return the hash that covers all events in a file, which `read` verifies."""
    line = last_whole_line(path)
    if line is None:
        return START
    try:
        found = chains.parse(line)["hash"]
    except (ValueError, LookupError, TypeError):
        found = None
    if not chains.is_hash(found):
        raise InvalidInput(f"{path} ends in a line without a hash; nothing can be added to it")
    return str(found)


def chained(documents: Iterable[dict[str, Any]], previous: str = START) -> list[bytes]:
    """Return events, as plain data without hashes, as the lines of a file whose last hash before them is `previous`."""
    lines = []
    for document in documents:
        previous = chains.link(previous, chains.digest(chains.canonical(document)))
        lines.append(_to_json(document | {"hash": previous}))
    return lines


def to_line(event: LogEvent) -> bytes:
    """Return an event by itself as a line, without a hash."""
    return _to_json(plain(event))


def plain(event: LogEvent) -> dict[str, Any]:
    """Return an event as plain data, as its line has it."""
    document: dict[str, Any] = finite(_EVENT.dump_python(event, mode="json"))
    return document


def _to_json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def read(path: Path) -> Events:
    """Return the events in a file, none if there is no file, or raise an error that says which line and field is wrong."""
    return read_lines(whole_lines(path), path)


def read_lines(lines: Iterable[tuple[int, bytes]], path: os.PathLike[str] | str) -> Events:
    """Return the events on numbered lines, or raise an error that says which line and field is wrong."""
    found: list[Any] = []
    hashes: list[str] = []
    for number, line in lines:
        where = f"{path}, line {number}"
        content = _content(line, where)
        stated = content.pop("hash", None)
        event = _event(content, where)
        if isinstance(event, PlanEvent) and found:
            if replace(event, time=found[0].time) != found[0]:
                raise InvalidInput(f"{where}: a second plan that differs from the first; a folder holds one run")
        elif not isinstance(event, PlanEvent) and not found:
            raise InvalidInput(f"{where}: a {event.event} comes before the plan")
        elif isinstance(event, SnapshotEvent):
            try:
                check_lengths(event, ("accuracy", "loss", "bytes_sent", "labels"), found[0].agents)
            except ValueError as error:
                raise InvalidInput(f"{where}: snapshot: {error}") from None
        found.append(event)
        follows = chains.link(hashes[-1] if hashes else START, chains.digest(chains.canonical(content)))
        if stated != follows:
            raise InvalidInput(
                f"{where}: the hash does not follow: the line, or one before it, is not as it was written"
            )
        hashes.append(follows)
    return Events(found, hashes)


def parse(line: bytes, where: str) -> Any:
    """Return the event on one line without a hash, or raise an error that says what is wrong `where`."""
    return _event(_content(line, where), where)


def _content(line: bytes, where: str) -> dict[str, Any]:
    try:
        content = chains.parse(line)
    except ValueError as error:
        raise InvalidInput(f"{where} is not JSON ({error}); only a last line may be cut off") from error
    if not isinstance(content, dict) or not isinstance(content.get("event"), str):
        raise InvalidInput(f"{where} is not an event: an object with the key 'event' was expected")
    return content


def _event(content: dict[str, Any], where: str) -> Any:
    try:
        return _EVENT.validate_json(json.dumps(content))
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "union_tag_invalid":
            raise InvalidInput(f"{where}: event: {content['event']!r} is not a kind of event") from None
        place = ", ".join((str(first["loc"][0]), ".".join(map(str, first["loc"][1:])))).removesuffix(", ")
        words = "unknown field" if first["type"] == "unexpected_keyword_argument" else first["msg"]
        raise InvalidInput(f"{where}: {place}: {words.removeprefix('Value error, ')}") from None
