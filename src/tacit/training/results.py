"""The result of a run: models, their scores over the rounds, and the ledger to derive ε from."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tacit.algorithms.averaged import Averaged, name_of
from tacit.data import AgentData, Records, Schema
from tacit.data.records import RecordsLike
from tacit.errors import DataError, InvalidInput
from tacit.models import FlatModel
from tacit.privacy import Diagnostics, Guarantee, Ledger, Observer, Plan
from tacit.privacy.observers import EVERYBODY
from tacit.privacy.stated_epsilons import epsilons_against
from tacit.training.evaluation import Score, evaluate


class Absent:
    """Stands for an object that a run's folder does not hold and that could not be made again. Using it raises an error that says why."""

    def __init__(self, why: str, shown: str = "absent") -> None:
        self._why, self._shown = why, shown

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise InvalidInput(self._why)

    def __call__(self, *given: Any, **named: Any) -> NoReturn:
        """Say why it is not there."""
        raise InvalidInput(self._why)

    def __repr__(self) -> str:
        return self._shown


Values = npt.NDArray[np.float64]
_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """The system after `round` rounds. All of it is public; arrays hold one value for each agent."""

    round: int
    queries: int
    loss: Values | None
    accuracy: Values | None
    consensus_distance: float
    bytes_sent: npt.NDArray[np.int64]
    scored: tuple[int, int] | None
    """On how many of how many validation records loss and accuracy are means; None where there are none."""
    labels: npt.NDArray[np.int64] | None = None
    """How many public records each agent's teachers have labelled; None unless teachers were asked."""

    @property
    def sample(self) -> int | None:
        """How many records the sample has on which models were scored; None if all were scored."""
        return None if self.scored is None or self.scored[0] == self.scored[1] else self.scored[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """One finished run. `theta` holds the agents' models as rows."""

    algorithm: Any
    run: str
    theta: Float[Tensor, "agents params"]
    model: FlatModel
    data: AgentData
    schema: Schema
    sizes: tuple[int, ...]
    """How many records each agent declares; `data.sizes` are the true numbers."""
    plan: Plan
    ledger: Ledger
    history: list[Snapshot]
    release: bool
    seconds: float
    """How long the rounds took, without scoring models."""
    evaluation_seconds: float
    """How long scoring models took."""
    private_diagnostics: list[Diagnostics] | None
    owners: tuple[str, ...]
    """For each agent, the label under which the ledger counts what was asked of its records."""
    folder: Path | None = None
    """Where the run is kept, if it is."""
    loaded_by: str = ""
    """The line of Python that loads a run that is kept, with the objects that its folder does not hold."""

    def module(self, agent: int) -> nn.Module:
        """Return one agent's model as an ordinary module."""
        if not isinstance(agent, int | np.integer) or not -len(self.theta) <= agent < len(self.theta):
            raise InvalidInput(f"agent is {agent!r}; there are {len(self.theta)}, numbered from 0")
        return self.model.module(self.theta[agent])

    @property
    def accuracy(self) -> Values:
        """Every agent's accuracy after the last round: on all validation records if the run was played to its end."""
        accuracy = self.history[-1].accuracy
        if accuracy is None:
            raise DataError(
                f"{self.data.dataset.name} has no validation records with class labels, so there is no accuracy"
            )
        return accuracy

    @property
    def consensus_distance(self) -> float:
        """Root mean square distance of the agents' models from their average, after the last round."""
        return self.history[-1].consensus_distance

    @property
    def bytes_sent(self) -> int:
        """What all agents sent together."""
        return int(self.history[-1].bytes_sent.sum())

    @property
    def samples_per_second(self) -> float:
        """Throughput of training in *expected* samples; the true number is private."""
        return self.history[-1].queries * sum(self.plan.lot_sizes) / self.seconds

    def evaluate(self, records: RecordsLike | None = None) -> Score:
        """Score every agent's model on other public records, the test records unless given.

        They are given as `Records`, as a pair of inputs and targets, or as a data set of such pairs, not yet prepared, and must
        be of the shapes and types that the run's records have.
        """
        if records is None and self.data.dataset.test is None:
            raise DataError(f"{self.data.dataset.name} has no test records; give some")
        records = self.data.dataset.test if records is None else _public(records, self.schema)
        assert records is not None
        if not len(records):
            raise DataError("there are no records to score models on")
        classification = self.data.dataset.classes is not None
        return evaluate(self.model, self.theta, records, self.data.dataset.prepare, classification=classification)

    def guarantees(self, observer: Observer | None = None) -> list[Guarantee]:
        """Derive every agent's ε from the ledger's record of this run; ε=∞ for a run without privacy.

        It holds against `observer`, by default the planned one: everybody else together or, with masks, the planned number of
        curious agents.

        A run that was not played to its end counts with all queries that it was planned for.
        """
        if observer is not None and self.plan.masks is not None:  # without masks, ε is the same against all
            observer.require_among(self.plan.masks.keys.agents)
        privacy = self.plan.privacy
        if privacy is None:
            nothing = Guarantee(
                epsilon=math.inf,
                delta=0.0,
                adjacency="add_remove",
                accountant="pld",
                release=False,
                basis="nothing",
                exposed=True,
            )
            return [nothing] * len(self.owners)
        return self.ledger.guarantees(
            self.owners,
            delta=privacy.delta,
            run=self.run,
            adjacency=privacy.adjacency,
            accountant=privacy.accountant,
            observer=self.plan.observer if observer is None else observer,
        )

    def epsilons_against(self) -> dict[str, float]:
        """Derive the highest ε of any agent from the ledger, by the number of curious agents: "1", "2", …, and "all" others together.

        Only masks make a difference between them: without masks there is "all" alone.
        """
        privacy = self.plan.privacy
        if privacy is None:
            return {EVERYBODY.key: math.inf}
        account = next(account for account in self.ledger.accounts if account.run == self.run)
        return epsilons_against(
            account,
            delta=privacy.delta,
            adjacency=privacy.adjacency,
            accountant=privacy.accountant,
            planned=self.plan.observer,
        )

    def epsilons_over_time(self) -> Float[np.ndarray, "snapshots agents"]:
        """Derive every agent's ε after each snapshot's queries, in the plan's δ, adjacency and accountant.

        Rows before the last are ε of part of the plan's queries. They are not a guarantee for a run that was stopped there. The last
        row is that of `guarantees`; with many points, those before it are upper bounds within some percent.
        """
        spent = self.plan.epsilons([snapshot.queries for snapshot in self.history[:-1]])
        last = np.array([guarantee.epsilon for guarantee in self.guarantees()])
        return np.vstack([np.minimum(spent, last), last])

    def __repr__(self) -> str:
        last = self.history[-1]
        scored = "" if last.accuracy is None else f", accuracy {last.accuracy.mean():.1%} on {_scored_on(last)}"
        kind = "a release" if self.release else "not a release"
        rule = repr(self.algorithm) if isinstance(self.algorithm, Absent) else name_of(self.algorithm)
        rule += ", averaged" if isinstance(self.algorithm, Averaged) else ""
        data = f"{len(self.owners)} agents"
        if isinstance(self.data, AgentData):
            data = self.data.described(self.sizes, self.plan.mechanism(0).sampler.unit)
        return f"Result({self.run!r}: {rule}, {last.round} rounds, {data}{scored}; {kind})"

    def __reduce__(self) -> NoReturn:
        if self.folder is not None:
            raise DataError(
                f"a result holds the agents' records and is not pickled; this run is kept in {self.folder}: "
                f"{self.loaded_by or f'tacit.load({str(self.folder)!r})'} loads it"
            )
        raise DataError(
            "a result holds the agents' records and is not pickled; save what you need of it, such as module(0).state_dict(), or "
            'keep the run in a folder with tacit.train(..., run="NAME")'
        )


def _scored_on(snapshot: Snapshot) -> str:
    return "validation" if snapshot.sample is None else f"a sample of {snapshot.sample:,} validation records"


def _public(source: RecordsLike, schema: Schema) -> Records:
    """Return public records as a table that fits the run's schema in shapes and types, or say what they should be."""
    records = Records.of(source)
    if schema.targets.is_integer and not schema.targets.shape and records.targets.dtype in _WHOLE:
        records = Records(records.inputs, records.targets.to(schema.targets.dtype))
    schema.check_kind(records, "the records to score")
    return records
