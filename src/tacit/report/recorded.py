"""A run as its folder records it: `config.toml`, `events.jsonl` and, once the run is finished, `summary.json`.

`events.jsonl` is the source of everything but ε, which is derived from the ledger beside the run. If the ledger is missing (the
folder was copied, say) or does not match the events, ε is unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import networkx as nx
import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput
from tacit.runs import RunFolder, events
from tacit.runs.config import RunConfig
from tacit.runs.event_types import CheckEvent, PlanEvent, SnapshotEvent
from tacit.runs.run_accounts import RunAccount, read_run_account

Values = npt.NDArray[np.float64]
Measure = Literal["accuracy", "loss"]


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedScores:
    """How good every agent's model was at each snapshot, by accuracy or, if there are no classes, by loss."""

    measure: Measure
    rounds: tuple[int, ...]
    values: Values  # [snapshots, agents]
    scored: tuple[tuple[int, int], ...]
    """On how many of how many validation records, at each snapshot."""

    @property
    def samples(self) -> set[int]:
        """The sizes of the samples of records on which models were scored, other than all records."""
        return {some for some, all_records in self.scored if some < all_records}

    @property
    def final_sample(self) -> int | None:
        """The size of the last snapshot's sample; None if all records were scored."""
        some, all_records = self.scored[-1]
        return some if some < all_records else None

    @property
    def mean(self) -> Values:
        """The mean over agents at each snapshot."""
        return np.asarray(self.values.mean(axis=1))

    @property
    def low(self) -> Values:
        """The lowest value of any agent at each snapshot."""
        return np.asarray(self.values.min(axis=1))

    @property
    def high(self) -> Values:
        """The highest value of any agent at each snapshot."""
        return np.asarray(self.values.max(axis=1))

    @property
    def final(self) -> Values:
        """Every agent's last value."""
        return np.asarray(self.values[-1])

    @property
    def worst_and_best(self) -> tuple[float, float]:
        """The last value of the worst agent and of the best."""
        ends = float(self.low[-1]), float(self.high[-1])
        return ends if self.measure == "accuracy" else ends[::-1]

    @property
    def colour_range(self) -> tuple[float, float]:
        """The values at the ends of a colour scale: at least ten points of accuracy apart, so that small differences look small."""
        low, high = float(self.final.min()), float(self.final.max())
        least = 0.1 if self.measure == "accuracy" else 0.1 * max(abs(high), 1e-9)
        if high - low < least:
            low = (low + high - least) / 2
            low = min(max(low, 0.0), 1 - least) if self.measure == "accuracy" else low
            high = low + least
        return low, high


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedRun:
    """One run as its files record it."""

    name: str
    config: Mapping[str, Any]
    plan: PlanEvent
    history: tuple[SnapshotEvent, ...]
    """At most one snapshot per round, in the order of rounds; empty if the run stopped before its first snapshot."""
    finished: bool
    seconds: float
    """How long the rounds took, without scoring models."""
    resumes: int
    lost_queries: int
    lost_before: Mapping[int, int]
    """By the round of each snapshot: how many queries had been charged whose answers were lost in a crash."""
    record: RunAccount
    """The run's account in the ledger beside it, the only source of ε."""
    summary: Mapping[str, Any] | None
    checked: CheckEvent | None = None
    """The latest check of the run's settings, if there was one."""

    @classmethod
    def load(cls, folder: Path | str) -> "RecordedRun":
        """Read a folder, or raise an error that says what is wrong with it."""
        folder = Path(folder)
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise InvalidInput(f"{folder} {what}; a run is a folder with config.toml and events.jsonl")
        for name in ("config.toml", "events.jsonl"):
            if not (folder / name).is_file():
                raise InvalidInput(f"{folder} is not a run folder: it has no {name}")
        log = events.read(folder / "events.jsonl")
        plan, history, finish = log.plan, log.snapshots, log.finish
        if plan is None:
            raise InvalidInput(f"{folder / 'events.jsonl'} has no plan event, so there is nothing to report yet")
        summary = RunFolder(folder).summary()
        return cls(
            name=folder.resolve().name,
            config=RunConfig.read(folder / "config.toml"),
            plan=plan,
            history=history,
            finished=finish is not None or summary is not None,
            seconds=finish.seconds if finish is not None else max((s.seconds for s in history), default=0.0),
            resumes=len(log.resumes),
            lost_queries=log.lost_queries,
            lost_before=log.lost_before,
            record=read_run_account(folder, log),
            summary=summary,
            checked=log.check,
        )

    @property
    def round(self) -> int:
        """The round of the last snapshot."""
        return self.history[-1].round if self.history else 0

    @property
    def queries(self) -> int:
        """How many queries of each agent's data were answered."""
        return self.history[-1].queries if self.history else 0

    @property
    def release(self) -> bool:
        """Whether both the plan and the ledger call it a release."""
        return self.plan.private and self.plan.release and self.record.release

    @property
    def spent(self) -> int:
        """How many queries of each agent's data were made: by the ledger or, if ε is unknown, by the events."""
        account = self.record.account
        return self.queries + self.lost_queries if account is None else account.spent

    @property
    def charged(self) -> int | None:
        """How many queries ε is derived from; for an unfinished run, all that were planned.

        When a run stops may depend on the answers, so an ε of the queries made until then is not proven to hold.
        """
        return None if self.record.account is None else self.record.account.charged

    def spent_at(self, snapshot: SnapshotEvent) -> int:
        """Return how many queries of each agent's data had been made by then, answered or lost."""
        return snapshot.queries + self.lost_before[snapshot.round]

    @cached_property
    def graph(self) -> nx.Graph:
        """Who talks to whom, without loops."""
        graph = nx.empty_graph(self.plan.agents)
        graph.add_edges_from((i, j) for i, j in self.plan.edges if i != j)
        return graph

    @property
    def bytes_sent(self) -> int:
        """What all agents sent together."""
        return sum(self.history[-1].bytes_sent) if self.history else 0

    @property
    def samples_per_second(self) -> float | None:
        """Throughput of training in expected samples; the true number is private. None where teachers train."""
        if self.plan.votes is not None:
            return None
        return self.queries * sum(self.plan.lot_sizes) / self.seconds if self.seconds > 0 else None

    @cached_property
    def scores(self) -> RecordedScores | None:
        """Accuracies if there are any, else losses, else None."""
        measures: tuple[Measure, ...] = ("accuracy", "loss")
        for measure in measures:
            snapshots = [s for s in self.history if getattr(s, measure) is not None]
            if snapshots:
                values = np.array([getattr(s, measure) for s in snapshots], dtype=np.float64)
                scored = tuple(s.scored for s in snapshots if s.scored is not None)
                return RecordedScores(
                    measure=measure, rounds=tuple(s.round for s in snapshots), values=values, scored=scored
                )
        return None

    @cached_property
    def distances(self) -> list[float]:
        """How far the models are apart at each snapshot; rounding errors of a common start count as zero."""
        apart = [snapshot.consensus_distance for snapshot in self.history]
        if len(apart) > 1 and self.history[0].round == 0 and apart[0] < 1e-4 * apart[1]:
            apart[0] = 0.0
        return apart
