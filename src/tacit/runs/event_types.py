"""The events of a run: what each line of `events.jsonl` holds. `tacit.runs.events` reads and writes them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from math import isfinite, nan
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from tacit.privacy.accounting import Accountant, Adjacency
from tacit.privacy.mechanisms import RECORD, Cyclic, Mechanism, Poisson, unit_in, vote_mechanism
from tacit.privacy.noise_kinds import DiscreteGaussian, Gaussian, Masked, Masks
from tacit.privacy.observers import EVERYBODY, Observer
from tacit.privacy.rounding import Discrete
from tacit.privacy.votes import Ballot

# JSON has no word for what is not a finite number; the writer puts null there.
_Number = Annotated[float, BeforeValidator(lambda value: nan if value is None else value)]
_Count = Annotated[int, Field(ge=0)]
_Positive = Annotated[int, Field(ge=1)]
_Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_STRICT = ConfigDict(extra="forbid", strict=True)


def now() -> datetime:
    """Return the time, as events state it."""
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Machine:
    """What determines a run to the bit, besides its settings and whether it is compiled."""

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
class SiteView:
    """The site whose view of a run between peers a folder holds: one agent out of all members."""

    agent: _Count
    members: tuple[str, ...]
    """Names of all members, in the order of their agents."""
    neighbors: tuple[_Count, ...]
    agreement: _Hash
    """The identity of the run: the hash of the first version of its agreement."""

    def __post_init__(self) -> None:
        if max((self.agent, *self.neighbors)) >= len(self.members):
            raise ValueError(f"a site names an agent that is not among the {len(self.members)} members")


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class PlanEvent:
    """What was settled before the first query; sequences hold one value for each agent."""

    event: Literal["plan"] = "plan"
    time: AwareDatetime
    token: str
    """Identifies the run among others with the same settings; the ledger, the checkpoint and the answers have it as well."""
    fingerprint: str
    """Identifies the settings that the run was started with."""
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
    """The weight in the graph's file that the first agent of each edge gives the second; None if a mixing rule gives the weights."""
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
    """Against whom ε is planned: a number of curious agents, or "all"; None without privacy."""
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
    bands: tuple[float, ...] = ()
    """How noise is correlated over queries: the first column of its matrix C; empty where it is independent."""
    rounding: dict[str, float] | None = None
    """How records are rounded under discrete noise: `bits` of the grid, and `room`, how many times as long as C they then are at most."""
    votes: dict[str, float] | None = None
    """What teachers are asked in each query, see `tacit.privacy.votes.Ballot`; rates, lots and clips are then 1. None for sums over lots."""
    machine: Machine
    """With `compiled`, the run's environment: where it is the same, the same seeds give the same bits."""
    site: SiteView | None = None
    """Set where the folder is that of one site among peers: everything with a value for each agent then has one, its own."""

    @property
    def protected(self) -> str:
        """Who is protected, in a word: a record, or whoever has several."""
        return RECORD if self.unit is None else unit_in(self.unit)[0]

    @property
    def total_rounds(self) -> int:
        """All rounds, also those in which models are only mixed."""
        return self.rounds + self.gossip_rounds

    @property
    def planned_observer(self) -> Observer:
        """Against whom ε is planned."""
        return EVERYBODY if self.observer is None else Observer.of_key(self.observer)

    @property
    def discrete(self) -> Discrete | None:
        """How records are rounded; None if they are not."""
        if self.rounding is None:
            return None
        if set(self.rounding) != {"bits", "room"}:
            raise ValueError(f"rounding has bits and room, but this is {self.rounding}")
        return Discrete(int(self.rounding["bits"]), self.rounding["room"])

    @property
    def ballot(self) -> Ballot | None:
        """What teachers are asked in each query; None if they are not."""
        return None if self.votes is None else Ballot.of_json(self.votes)

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What one query of each agent does."""
        if (ballot := self.ballot) is not None:
            return tuple(vote_mechanism(ballot.votes(sigma)) for sigma in self.noise_multipliers)
        each = zip(self.sample_rates, self.clips, self.lot_sizes, self.noise_multipliers, strict=True)
        if not self.private:
            return tuple(Mechanism.plain(sample_rate=rate, lot=lot) for rate, _, lot, _ in each)
        unit, most = (RECORD, 1) if self.unit is None else unit_in(self.unit)
        masks = None if self.masks is None else Masks.of_json(self.masks)

        def noise(agent: int, sigma: float) -> Gaussian | Masked | DiscreteGaussian:
            if (discrete := self.discrete) is not None:
                return DiscreteGaussian(multiplier=sigma, bits=discrete.bits, room=discrete.bound(1.0))
            return Gaussian(multiplier=sigma) if masks is None else Masked(multiplier=sigma, agent=agent, masks=masks)

        def sampler(rate: float) -> Poisson:
            if self.bands:
                return Cyclic(rate=rate, unit=unit, most=most, groups=len(self.bands))
            return Poisson(rate=rate, unit=unit, most=most)

        first = 0 if self.site is None else self.site.agent
        return tuple(
            Mechanism(sampler=sampler(rate), clip=clip, lot=lot, noise=noise(agent, sigma), bands=self.bands)
            for agent, (rate, clip, lot, sigma) in enumerate(each, first)
        )

    def __post_init__(self) -> None:
        each = ("counts", "sizes", "owners", "sample_rates", "lot_sizes", "clips", "noise_multipliers", "epsilon")
        check_lengths(self, each, self.agents)
        if any(agent >= self.agents for edge in self.edges for agent in edge):
            raise ValueError(f"an edge leads to an agent that is not among the {self.agents}")
        if self.counts is not None and len({len(row) for row in self.counts}) > 1:
            raise ValueError("counts has rows of different lengths")
        if self.private == (self.observer is None):
            raise ValueError("a private run must say against whom ε is planned, and no other run may")
        if self.masks is not None:
            if not self.private:
                raise ValueError("a run without privacy has no masks")
            everyone = self.agents if self.site is None else len(self.site.members)
            if (sharing := Masks.of_json(self.masks).keys.agents) != everyone:
                raise ValueError(f"masks are shared by {sharing} agents, but there are {everyone}")
        elif self.planned_observer != EVERYBODY:
            raise ValueError("without masks, ε is planned against everybody else together")
        if self.bands and not self.private:
            raise ValueError("a run without privacy has no bands")
        if self.discrete is not None and (self.masks is not None or self.bands or not self.private):
            raise ValueError("rounding belongs to discrete noise, which has neither masks nor bands")
        if self.votes is not None and (self.discrete or self.masks or self.bands or self.unit or not self.private):
            raise ValueError("votes of teachers have neither masks nor bands, rounding or units, and are private")
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
class CheckEvent:
    """A check of the run's settings, by `tacit audit`."""

    event: Literal["check"] = "check"
    time: AwareDatetime
    settings: str
    """Identifies the settings that were checked, with the versions of the library and torch."""
    checked: str
    """When."""
    verdict: str
    failed: tuple[str, ...]
    false_alarm: float


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class SnapshotEvent:
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
    labels: tuple[_Count, ...] | None = None
    """How many public records each agent's teachers have labelled; None unless teachers were asked."""

    def __post_init__(self) -> None:
        if self.scored is not None and self.scored[0] > self.scored[1]:
            raise ValueError(f"scored says {self.scored[0]} of {self.scored[1]} records")
        if (self.scored is None) != (self.accuracy is None and self.loss is None):
            raise ValueError(
                "scored says of how many records accuracy and loss are means: there must be both or neither"
            )


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class CheckpointEvent:
    """The state after `round` rounds is on disk."""

    event: Literal["checkpoint"] = "checkpoint"
    time: AwareDatetime
    round: _Count
    sha256: _Hash
    """Of the checkpoint's file."""


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class ResumeEvent:
    """A run that was stopped is resumed from `round`."""

    event: Literal["resume"] = "resume"
    time: AwareDatetime
    round: _Count
    lost_queries: _Count
    """Queries that were charged since the last resume and whose answers a crash lost."""
    machine: Machine


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class FinishEvent:
    """The last round is played."""

    event: Literal["finish"] = "finish"
    time: AwareDatetime
    round: _Count
    seconds: Annotated[float, Field(ge=0)]
    models_sha256: _Hash
    """Of all agents' final models, in the form that `tacit.models.hashing` documents."""


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class LinksEvent:
    """Between peers: which links a site used in its last round, by the numbers of its neighbours. `round` rounds are played."""

    event: Literal["links"] = "links"
    time: AwareDatetime
    round: _Count
    used: tuple[_Count, ...]
    skipped: tuple[_Count, ...]
    """Links of the graph in this round that were not used; the site kept their weight for itself."""


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class NoticeEvent:
    """Between peers: what a site noticed about a neighbour, or a new version of the agreement."""

    event: Literal["notice"] = "notice"
    time: AwareDatetime
    round: _Count
    kind: Literal["lost", "back", "cut", "refused", "away", "version", "waiting"]
    neighbor: _Count | None = None
    words: str = ""


LogEvent = Annotated[
    PlanEvent | CheckEvent | SnapshotEvent | CheckpointEvent | ResumeEvent | FinishEvent | LinksEvent | NoticeEvent,
    Field(discriminator="event"),
]


def check_lengths(event: Any, names: Sequence[str], agents: int) -> None:
    """Refuse sequences that do not hold one value for each agent."""
    for name in names:
        value = getattr(event, name)
        if value is not None and len(value) != agents:
            raise ValueError(f"{name} has {len(value)} values for {agents} agents")
