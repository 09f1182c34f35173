"""A run folder, read from its files alone: `config.toml`, `events.jsonl` and, once it is there, `summary.json`.

`events.jsonl` is the truth for everything but ε, which is derived from the ledger beside the run. Where that is not there, as beside a folder that was
copied, or does not fit the events, ε is not known.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import networkx as nx
import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput
from tacit.runs import events
from tacit.runs.event_types import CheckEvent, PlanEvent, SnapshotEvent
from tacit.runs.run_accounts import RunAccount, read_run_account

Values = npt.NDArray[np.float64]
Measure = Literal["accuracy", "loss"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """How good every agent's model was at each look, by accuracy or, where there are no classes, by loss."""

    measure: Measure
    rounds: tuple[int, ...]
    values: Values  # [looks, agents]
    scored: tuple[tuple[int, int], ...]
    """On how many of how many validation records, at each look."""

    @property
    def samples(self) -> set[int]:
        """How many records the samples have on which models were scored, where not on all."""
        return {some for some, all_records in self.scored if some < all_records}

    @property
    def final_sample(self) -> int | None:
        """How many records the last look's sample has; None if all were scored."""
        some, all_records = self.scored[-1]
        return some if some < all_records else None

    @property
    def mean(self) -> Values:
        """The mean over agents at each look."""
        return np.asarray(self.values.mean(axis=1))

    @property
    def low(self) -> Values:
        """The smallest over agents at each look."""
        return np.asarray(self.values.min(axis=1))

    @property
    def high(self) -> Values:
        """The largest over agents at each look."""
        return np.asarray(self.values.max(axis=1))

    @property
    def final(self) -> Values:
        """Every agent's last."""
        return np.asarray(self.values[-1])

    @property
    def worst_and_best(self) -> tuple[float, float]:
        """The last value of the worst agent and of the best."""
        ends = float(self.low[-1]), float(self.high[-1])
        return ends if self.measure == "accuracy" else ends[::-1]


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One run as its folder tells it."""

    name: str
    config: Mapping[str, Any]
    plan: PlanEvent
    history: tuple[SnapshotEvent, ...]
    """One snapshot a round at most, in the order of rounds; empty if the run was stopped before its first look."""
    finished: bool
    seconds: float
    """How long the rounds took, without scoring models."""
    resumes: int
    lost_queries: int
    lost_before: Mapping[int, int]
    """For the round of each snapshot: how many queries were charged by then whose answers a crash lost."""
    record: RunAccount
    """What the ledger beside the run holds of it, from which alone ε is derived."""
    summary: Mapping[str, Any] | None
    checked: CheckEvent | None = None
    """The latest check of the run's settings, if there was one."""

    @classmethod
    def load(cls, folder: Path | str) -> "Run":
        """Read a folder, or say what is wrong with it."""
        folder = Path(folder)
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise InvalidInput(f"{folder} {what}; a run is a folder with config.toml and events.jsonl")
        for name in ("config.toml", "events.jsonl"):
            if not (folder / name).is_file():
                raise InvalidInput(f"{folder} is not a run folder: it has no {name}")
        story = events.read(folder / "events.jsonl")
        plan, history, finish = story.plan, story.snapshots, story.finish
        if plan is None:
            raise InvalidInput(f"{folder / 'events.jsonl'} has no plan event, so there is nothing to report yet")
        summary = _read_summary(folder / "summary.json")
        return cls(
            name=folder.resolve().name,
            config=_read_config(folder / "config.toml"),
            plan=plan,
            history=history,
            finished=finish is not None or summary is not None,
            seconds=finish.seconds if finish is not None else max((s.seconds for s in history), default=0.0),
            resumes=len(story.resumes),
            lost_queries=story.lost_queries,
            lost_before=story.lost_before,
            record=read_run_account(folder, story),
            summary=summary,
            checked=story.check,
        )

    @property
    def round(self) -> int:
        """The last round that was looked at."""
        return self.history[-1].round if self.history else 0

    @property
    def queries(self) -> int:
        """How many queries of each agent's data were answered."""
        return self.history[-1].queries if self.history else 0

    @property
    def release(self) -> bool:
        """Whether it is a release, by its own plan and by the ledger."""
        return self.plan.private and self.plan.release and self.record.release

    @property
    def spent(self) -> int:
        """How many queries each agent's data was asked: what the ledger holds or, where ε is not known, what the events tell."""
        account = self.record.account
        return self.queries + self.lost_queries if account is None else account.spent

    @property
    def charged(self) -> int | None:
        """How many queries ε is derived from; of a run that was not played to its end, all that were planned.

        When to stop may depend on the answers, and so ε of what was asked until then is not proven to hold.
        """
        return None if self.record.account is None else self.record.account.charged

    def spent_at(self, snapshot: SnapshotEvent) -> int:
        """How many queries each agent's data was asked until then: answered and lost."""
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
        """Throughput of training in expected samples; the true number is private."""
        return self.queries * sum(self.plan.lot_sizes) / self.seconds if self.seconds > 0 else None

    @cached_property
    def scores(self) -> Scores | None:
        """Accuracies if there are any, else losses, else nothing."""
        measures: tuple[Measure, ...] = ("accuracy", "loss")
        for measure in measures:
            looks = [s for s in self.history if getattr(s, measure) is not None]
            if looks:
                values = np.array([getattr(s, measure) for s in looks], dtype=np.float64)
                scored = tuple(s.scored for s in looks if s.scored is not None)
                return Scores(measure=measure, rounds=tuple(s.round for s in looks), values=values, scored=scored)
        return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from error


def _read_config(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(_read(path).decode())
    except ValueError as error:  # not UTF-8, or not TOML
        raise InvalidInput(f"{path} is not TOML: {error}") from error


def _read_summary(path: Path) -> Mapping[str, Any] | None:
    if not path.is_file():
        return None
    try:
        summary = json.loads(_read(path))
    except ValueError as error:
        raise InvalidInput(f"{path} is not JSON: {error}") from error
    if not isinstance(summary, dict):
        raise InvalidInput(f"{path} holds {type(summary).__name__}; an object with a summary was expected")
    return summary
