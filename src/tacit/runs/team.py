"""The processes that play one run together, as seen by the one that keeps its folder and the ledger.

By itself, that process hosts all agents (`Alone`). In a cluster it leads the others, which play and save their own agents when it says so;
`tacit.cluster` has the team for that.
"""

from typing import NamedTuple, Protocol

from torch import Tensor

from tacit.data import AgentData
from tacit.privacy import Account, Plan
from tacit.runs.folder import RunFolder
from tacit.training.runtimes import Runtime
from tacit.training.settings import Training


class Holdings(NamedTuple):
    """Who holds how many records, of all agents. Numbers of classes are shown only where the data set is published."""

    owners: tuple[str, ...]
    sizes: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...] | None

    @staticmethod
    def of(data: AgentData) -> "Holdings":
        """Return what agents hold."""
        counts = tuple(tuple(row) for row in data.counts.tolist()) if data.dataset.published else None
        return Holdings(tuple(data.owners), tuple(data.sizes), counts)


class Team(Protocol):
    """What the leading process asks of the others, if there are any."""

    @property
    def runtime(self) -> Runtime | None:
        """Which agents are hosted here and how they reach the others; None where all are."""

    @property
    def description(self) -> str | None:
        """How agents are divided among processes, in words; None where there is one process."""

    @property
    def most_sent(self) -> int:
        """How many bytes an agent that is hosted elsewhere sends in the run, at most."""

    @property
    def sent_elsewhere(self) -> int:
        """How many bytes all agents that are hosted elsewhere send in the run."""

    def divide(self, training: Training, folder: RunFolder, *, fresh: bool) -> Training:
        """Return the training of the agents hosted here, after all others have theirs."""

    def check_plan(self, plan: Plan) -> None:
        """Raise unless all others have the same plan for all agents: the run's account is opened by it."""

    def charged_account(self, whole: Account, token: str) -> Account:
        """Return the part of the run's account that the hosted agents are charged to, and let the others open theirs."""

    def restore(self, round: int | None) -> int:
        """Let the others continue from their checkpoints of this round; return how many answers one of them has lost at most."""

    def advance(self) -> None:
        """Let the others play the next round, too."""

    def save(self) -> None:
        """Return once the others' states are on disk; what they replace is kept."""

    def commit(self) -> None:
        """Let the others drop what their states replace: this process's is on disk."""

    def take_snapshot(self) -> None:
        """Let the others take a snapshot, too."""

    def collect(self, theta: Tensor) -> Tensor:
        """Return all agents' models."""

    def end(self, *, finished: bool) -> None:
        """Let the others end: the run is finished, or stopped."""


class Alone:
    """A process that hosts all agents by itself."""

    runtime = None
    description = None
    most_sent = 0
    sent_elsewhere = 0

    def divide(self, training: Training, folder: RunFolder, *, fresh: bool) -> Training:
        """Return the training: all agents are hosted here."""
        return training

    def check_plan(self, plan: Plan) -> None:
        """Nobody else has a plan."""

    def charged_account(self, whole: Account, token: str) -> Account:
        """Return the run's account."""
        return whole

    def restore(self, round: int | None) -> int:
        """Nobody else has lost an answer."""
        return 0

    def advance(self) -> None:
        """Nobody else plays."""

    def save(self) -> None:
        """Nobody else has a state."""

    def commit(self) -> None:
        """Nobody else has a state."""

    def take_snapshot(self) -> None:
        """Nobody else has models."""

    def collect(self, theta: Tensor) -> Tensor:
        """Return the models: all are here."""
        return theta

    def end(self, *, finished: bool) -> None:
        """Nobody else has to end."""
