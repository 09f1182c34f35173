"""Takes snapshots of the agents' models while they are trained: their scores on public records, and how far they are apart.

Scoring is planned to take at most a tenth of a run's work, in records: all validation records after the last round, and a fixed public
sample of them before. A score on few records is worth little, so a short run has fewer snapshots instead. The end is scored in full
however short a run is, which can be more than the tenth by itself.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from tacit.data import AgentData, Records
from tacit.errors import InvalidInput
from tacit.models import FlatModel
from tacit.networks import Network
from tacit.training.evaluation import consensus_distance, evaluate
from tacit.training.results import Snapshot

SCORED_SHARE = 0.1
"""How many records are scored, at most, for each one that a run trains on, unless its end alone takes more."""
_SNAPSHOTS, _LEAST_SAMPLE = 20, 100
_SAMPLE_SEED = 0  # the same for all runs, so that their curves can be compared


class Work(TypedDict):
    """What a run does: its rounds, the records that all agents train on, how many agents these are, and the validation records."""

    rounds: int
    trained: float
    agents: int
    validation: int


class SnapshotSchedule(NamedTuple):
    """How many rounds lie between two snapshots, and how many validation records are scored at each but the last."""

    every: int
    sample: int


def plan_snapshots(*, rounds: int, every: int | None, trained: float, agents: int, validation: int) -> SnapshotSchedule:
    """Plan snapshots that score at most a tenth as many records as are trained on, by `agents` models in all.

    All validation records are scored in the end. What that leaves of the tenth, but at least half of it, is for
    the snapshots before: one in `every` rounds if that is given, else twenty or fewer, each on a hundred records or more.
    """
    if not validation:
        return SnapshotSchedule(every or -(-rounds // _SNAPSHOTS), 0)
    allowed = SCORED_SHARE * trained / agents
    left = max(allowed - validation, allowed / 2)
    least = min(_LEAST_SAMPLE, validation)
    if every is None:
        snapshots = min(_SNAPSHOTS, max(1, int(left / least)))
        every = -(-rounds // snapshots)
    snapshots = -(-rounds // every)  # at the start, and then at regular intervals before the end
    return SnapshotSchedule(every, max(least, min(validation, int(left / snapshots))))


def scored_share(schedule: SnapshotSchedule, *, rounds: int, trained: float, agents: int, validation: int) -> float:
    """Return how many records a run scores for each one that it trains on; more than a tenth if its end alone takes more."""
    before = len(range(0, rounds, schedule.every)) * schedule.sample
    return agents * (before + validation) / trained if trained else 0.0


class Monitor:
    """Takes snapshots of the hosted agents of every trial; `histories` holds them, trial by trial.

    `seconds` is how long that took. `gather` returns the rows of all agents, or None if no process has them: then scores are those
    of the hosted agents, and the distance between models is unknown, NaN.
    """

    def __init__(
        self,
        model: FlatModel,
        data: AgentData,
        network: Network,
        gather: Callable[[Tensor], Tensor | None],
        schedule: SnapshotSchedule,
    ) -> None:
        self._model, self._network, self._gather = model, network, gather
        # What is public, and not the data set: a monitor must not be able to read training records.
        self._validation, self._prepare = data.dataset.validation, data.dataset.prepare
        self._classification = data.dataset.classes is not None
        self.schedule = schedule
        self._sample = None if self._validation is None else public_sample(self._validation, schedule.sample)
        self._histories: list[list[Snapshot]] = [[] for _ in range(network.trials)]
        self.seconds = 0.0

    @property
    def histories(self) -> Sequence[Sequence[Snapshot]]:
        """The snapshots of every trial so far; each list grows while a run is played."""
        return self._histories

    def restore(self, histories: Sequence[Sequence[Snapshot]]) -> None:
        """Replace all snapshots, trial by trial, by those of another session."""
        for own, other in zip(self._histories, histories, strict=True):
            own[:] = other

    def public_loss(self, theta: Float[Tensor, "agents params"]) -> Float[Tensor, " agents"]:
        """Return every model's mean loss on the validation records, which are public: the same wherever it is hosted."""
        if self._validation is None:
            raise InvalidInput("the rule asks for the loss on public records, but the data has no validation records")
        score = evaluate(self._model, theta, self._validation, self._prepare, classification=False, one_by_one=True)
        return torch.from_numpy(score.loss).to(theta)

    def take_snapshot(
        self,
        theta: Float[Tensor, "agents params"],
        round: int,
        queries: int,
        *,
        labels: Int[Tensor, " agents"] | None = None,
        whole: bool = False,
    ) -> None:
        """Score all models on a sample of the validation records, or on the whole of them, and measure how far they are apart.

        `labels` is how many public records each agent's teachers have labelled, if they were asked.
        """
        trials, started = len(self._histories), time.perf_counter()
        loss = accuracy = scored = None
        records = self._validation if whole else self._sample
        if records is not None and self._validation is not None:
            score = evaluate(self._model, theta, records, self._prepare, classification=self._classification)
            loss, accuracy = score.loss, score.accuracy
            scored = len(records), len(self._validation)
        with torch.no_grad():
            everyone = self._gather(theta)
            apart = np.full(trials, np.nan)
            if everyone is not None:
                apart = consensus_distance(everyone.unflatten(0, (trials, -1)))
        loss = None if loss is None else self._collect(loss)
        accuracy = None if accuracy is None else self._collect(accuracy)
        sent = self._collect(self._network.bytes_sent)
        labelled = None if labels is None else self._collect(labels.cpu().numpy())
        for trial, history in enumerate(self._histories):
            history.append(
                Snapshot(
                    round=round,
                    queries=queries,
                    loss=None if loss is None else loss[trial],
                    accuracy=None if accuracy is None else accuracy[trial],
                    consensus_distance=float(apart[trial]),
                    bytes_sent=sent[trial],
                    scored=scored,
                    labels=None if labelled is None else labelled[trial],
                )
            )
        self.seconds += time.perf_counter() - started

    def _collect(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return one value for each agent, trial by trial: of all agents where they are collected, else of those hosted here."""
        everyone = self._gather(torch.from_numpy(values))
        found = values.copy() if everyone is None else everyone.numpy().copy()
        return found.reshape(len(self._histories), -1)


def public_sample(records: Records, count: int) -> Records:
    """Return `count` of these public records: always the same ones, so that a larger sample contains a smaller one."""
    if count >= len(records):
        return records
    order = torch.randperm(len(records), generator=torch.Generator().manual_seed(_SAMPLE_SEED))
    return records.take(order[:count].sort().values.to(records.targets.device))
