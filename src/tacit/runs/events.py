"""`events.jsonl`, the record of one run: its events, how they are written and how they are read. Nothing else knows the format.

A plan comes first. Then come checks of the settings, snapshots, checkpoints and resumes, and in the end a finish. Lines are
appended and never changed. A last line without an end is what a crash left and is ignored; whatever else does not fit the
schema (not JSON, an unknown kind or field, a missing field or one of another type) is an error that names line and field.

Every line ends in a hash of itself and of all lines before it, so that whoever keeps the last one, the *head* of the events, can
tell later whether they are still those. A line that was changed by itself is refused when it is read.

The file tells what was planned and seen. It does not tell ε, which is the ledger's.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from math import isfinite, nan
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from tacit.errors import InvalidInput
from tacit.io import chains
from tacit.io.files import finite
from tacit.io.jsonl import append_line, last_whole_line, whole_lines
from tacit.privacy.accounting import Accountant, Adjacency
from tacit.privacy.mechanisms import EVERYBODY, RECORD, Gaussian, Masked, Masks, Mechanism, Observer, Poisson, unit_in

# JSON has no word for what is not a finite number; the writer puts null there.
_Number = Annotated[float, BeforeValidator(lambda value: nan if value is None else value)]
_Count = Annotated[int, Field(ge=0)]
_Positive = Annotated[int, Field(ge=1)]
_Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_STRICT = ConfigDict(extra="forbid", strict=True)
START = chains.start("tacit-events-1")
"""The hash that the first line follows on."""


def now() -> datetime:
    """Return the time, as events state it."""
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Machine:
    """What the bits of a run follow from, beside its settings and whether it is compiled."""

    processor: str
    """Its model, and the instructions that torch uses of it."""
    torch: str
    threads: _Positive
    blocks: tuple[_Positive, _Positive] | None
    """Records of a block and blocks of a step, in which gradients are computed; None for an engine without."""
    device: str
    code: _Hash
    """SHA-256 of the library's own source files."""


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Plan:
    """What was settled before the first query; sequences hold one value for each agent."""

    event: Literal["plan"] = "plan"
    time: AwareDatetime
    token: str
    """Tells the run from any other with the same settings; the ledger, the checkpoint and the answers have it, too."""
    fingerprint: str
    """Tells the settings that the run was started with."""
    algorithm: str
    dataset: str
    agents: _Positive
    rounds: _Positive
    gossip_rounds: _Count
    """Rounds after these in which agents only mix their models."""
    exchanges_per_query: _Positive
    absences: tuple[dict[str, int], ...]
    """Agents that are away: each with `agent` and `first`, and with `until` or `rekey` where there is one."""
    edges: tuple[tuple[_Count, _Count], ...]
    changing: bool
    """Whether who talks to whom changes from round to round; `edges` are then those of some round."""
    weights: tuple[float, ...] | None
    """What the graph's file says that the first agent of each edge takes of the second; None where a rule weighs them."""
    counts: tuple[tuple[_Count, ...], ...] | None
    """How many records of each class every agent holds; None unless the data set is a published one."""
    sizes: tuple[_Count, ...]
    owners: tuple[str, ...]
    schema: dict[str, Any]
    """What a record may be, as declared."""
    sample_rates: tuple[float, ...]
    lot_sizes: tuple[float, ...]
    clips: tuple[_Number, ...]
    noise_multipliers: tuple[float, ...]
    """Of every agent's own noise."""
    masks: dict[str, Any] | None
    """What pairs of agents share so that it cancels, as the ledger keeps it: own noise, size of a mask and key graph."""
    observer: str | None
    """Against whom ε is promised: a number of curious agents, or "all"; None without privacy."""
    queries: _Count
    """How many queries of each agent's data the run is allowed, spare ones among them."""
    spare_queries: _Count
    private: bool
    epsilon: tuple[float, ...] | None
    """What each agent may spend; None where σ was given and not ε."""
    delta: float | None
    adjacency: Adjacency | None
    accountant: Accountant | None
    unit: str | None
    """Who is protected, with how many records in a query at most, as in patient:8; None where every record is. `sizes` and lots count these."""
    release: bool
    params: _Count
    engine: str
    """How gradients are computed, in words."""
    compiled: bool
    machine: Machine
    """With `compiled`, the run's fingerprint: where it is the same, the same seeds give the same bits."""

    @property
    def protected(self) -> str:
        """Who is protected, in a word: a record, or whoever has several."""
        return RECORD if self.unit is None else unit_in(self.unit)[0]

    @property
    def total_rounds(self) -> int:
        """All rounds, also those in which models are only mixed."""
        return self.rounds + self.gossip_rounds

    @property
    def promised_against(self) -> Observer:
        """Against whom ε is promised."""
        return EVERYBODY if self.observer is None else Observer.of_key(self.observer)

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What one query of each agent does."""
        each = zip(self.sample_rates, self.clips, self.lot_sizes, self.noise_multipliers, strict=True)
        if not self.private:
            return tuple(Mechanism.plain(sample_rate=rate, lot=lot) for rate, _, lot, _ in each)
        unit, most = (RECORD, 1) if self.unit is None else unit_in(self.unit)
        masks = None if self.masks is None else Masks.of_json(self.masks)

        def noise(agent: int, sigma: float) -> Gaussian | Masked:
            return Gaussian(multiplier=sigma) if masks is None else Masked(multiplier=sigma, agent=agent, masks=masks)

        return tuple(
            Mechanism(sampler=Poisson(rate=rate, unit=unit, most=most), clip=clip, lot=lot, noise=noise(agent, sigma))
            for agent, (rate, clip, lot, sigma) in enumerate(each)
        )

    def __post_init__(self) -> None:
        each = ("counts", "sizes", "owners", "sample_rates", "lot_sizes", "clips", "noise_multipliers", "epsilon")
        _check_lengths(self, each, self.agents)
        if any(agent >= self.agents for edge in self.edges for agent in edge):
            raise ValueError(f"an edge leads to an agent that is not among the {self.agents}")
        if self.counts is not None and len({len(row) for row in self.counts}) > 1:
            raise ValueError("counts has rows of different lengths")
        if self.private == (self.observer is None):
            raise ValueError("a private run says against whom ε is promised, and no other run does")
        if self.masks is not None:
            if not self.private:
                raise ValueError("a run without privacy has no masks")
            if (sharing := Masks.of_json(self.masks).keys.agents) != self.agents:
                raise ValueError(f"masks are shared by {sharing} agents, and there are {self.agents}")
        elif self.promised_against != EVERYBODY:
            raise ValueError("without masks, ε is promised against everybody else together")
        if self.private:
            if self.delta is None or self.adjacency is None or self.accountant is None:
                raise ValueError("a private run needs delta, adjacency and accountant")
            if self.unit is not None:
                unit_in(self.unit)
            if not 0 < self.delta < 1:
                raise ValueError(f"delta is {self.delta}; it must lie strictly between 0 and 1")
            if not all(0 < rate <= 1 for rate in self.sample_rates):
                raise ValueError("a sample rate lies outside (0, 1]")
            if not all(sigma > 0 and isfinite(sigma) for sigma in self.noise_multipliers):
                raise ValueError("a noise multiplier of a private run is not positive and finite")


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Check:
    """A check of the run's settings, by `tacit audit`."""

    event: Literal["check"] = "check"
    time: AwareDatetime
    settings: str
    """Tells the settings that were checked, with the versions of the library and torch."""
    checked: str
    """When."""
    verdict: str
    failed: tuple[str, ...]
    false_alarm: float


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Snapshot:
    """The system after `round` rounds; sequences hold one value for each agent."""

    event: Literal["snapshot"] = "snapshot"
    time: AwareDatetime
    round: _Count
    queries: _Count
    """How many queries of each agent's data were answered."""
    accuracy: tuple[_Number, ...] | None
    loss: tuple[_Number, ...] | None
    consensus_distance: _Number
    bytes_sent: tuple[_Count, ...]
    scored: tuple[_Positive, _Positive] | None
    """On how many of how many validation records accuracy and loss are means; None where there are none."""
    seconds: Annotated[float, Field(ge=0)]
    """How long the rounds took until then, without scoring models."""

    def __post_init__(self) -> None:
        if self.scored is not None and self.scored[0] > self.scored[1]:
            raise ValueError(f"scored says {self.scored[0]} of {self.scored[1]} records")
        if (self.scored is None) != (self.accuracy is None and self.loss is None):
            raise ValueError(
                "scored says of how many records accuracy and loss are means: there must be both or neither"
            )


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class CheckpointSaved:
    """The state after `round` rounds is on disk."""

    event: Literal["checkpoint"] = "checkpoint"
    time: AwareDatetime
    round: _Count
    sha256: _Hash
    """Of the checkpoint's file."""


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Resume:
    """A run that was stopped goes on from `round`."""

    event: Literal["resume"] = "resume"
    time: AwareDatetime
    round: _Count
    lost_queries: _Count
    """Queries that were charged since the last resume and whose answers a crash lost."""
    machine: Machine


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Finish:
    """The last round is played."""

    event: Literal["finish"] = "finish"
    time: AwareDatetime
    round: _Count
    seconds: Annotated[float, Field(ge=0)]
    models_sha256: _Hash
    """Of all agents' final models, in the form that `tacit.models.hashing` documents."""


Event = Annotated[Plan | Check | Snapshot | CheckpointSaved | Resume | Finish, Field(discriminator="event")]
_EVENT: TypeAdapter[Any] = TypeAdapter(Event)


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
        """The hash that covers all events but checks of the settings after the last of the others: these may come at any time."""
        played = len(self._all)
        while played and isinstance(self._all[played - 1], Check):
            played -= 1
        return self.hashes[played - 1] if played and self.hashes else START

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def plan(self) -> Plan | None:
        """The plan; None if nothing was written yet."""
        return next((event for event in self if isinstance(event, Plan)), None)

    @cached_property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """One snapshot a round at most, in the order of rounds; of two at one round, the later."""
        found = {event.round: event for event in self if isinstance(event, Snapshot)}
        return tuple(found[number] for number in sorted(found))

    @cached_property
    def lost_before(self) -> dict[int, int]:
        """For the round of each of `snapshots`: how many queries were charged by then whose answers a crash lost."""
        lost, found = 0, {}
        for event in self:
            if isinstance(event, Resume):
                lost += event.lost_queries
            elif isinstance(event, Snapshot):
                found[event.round] = lost
        return found

    @property
    def checkpoint(self) -> CheckpointSaved | None:
        """The latest checkpoint."""
        return next((event for event in reversed(self._all) if isinstance(event, CheckpointSaved)), None)

    @property
    def resumes(self) -> tuple[Resume, ...]:
        """Every time that the run went on."""
        return tuple(event for event in self if isinstance(event, Resume))

    @property
    def lost_queries(self) -> int:
        """How many queries were charged whose answers a crash lost."""
        return sum(event.lost_queries for event in self.resumes)

    @property
    def check(self) -> Check | None:
        """The latest check of the settings."""
        return next((event for event in reversed(self._all) if isinstance(event, Check)), None)

    @property
    def finish(self) -> Finish | None:
        """The end, if the run came to it."""
        return next((event for event in reversed(self._all) if isinstance(event, Finish)), None)

    @property
    def round(self) -> int:
        """The last round that any event tells of."""
        return max((event.round for event in self if not isinstance(event, Plan | Check)), default=0)


def append(path: Path, event: Event) -> None:
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


def to_line(event: Event) -> bytes:
    """Return an event by itself as a line, without a hash."""
    return _to_json(plain(event))


def plain(event: Event) -> dict[str, Any]:
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
        told = content.pop("hash", None)
        event = _event(content, where)
        if isinstance(event, Plan) and found:
            if replace(event, time=found[0].time) != found[0]:
                raise InvalidInput(f"{where}: a second plan that differs from the first; a folder holds one run")
        elif not isinstance(event, Plan) and not found:
            raise InvalidInput(f"{where}: a {event.event} comes before the plan")
        elif isinstance(event, Snapshot):
            try:
                _check_lengths(event, ("accuracy", "loss", "bytes_sent"), found[0].agents)
            except ValueError as error:
                raise InvalidInput(f"{where}: snapshot: {error}") from None
        found.append(event)
        follows = chains.link(hashes[-1] if hashes else START, chains.digest(chains.canonical(content)))
        if told != follows:
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


def _check_lengths(event: Any, names: Sequence[str], agents: int) -> None:
    """Refuse sequences that do not hold one value for each agent."""
    for name in names:
        value = getattr(event, name)
        if value is not None and len(value) != agents:
            raise ValueError(f"{name} has {len(value)} values for {agents} agents")
