"""All settings of a run, in one frozen object. Nothing happens here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy import sparse

from tacit.algorithms import SGD, Algorithm
from tacit.data import AgentData
from tacit.errors import InvalidInput
from tacit.models import Loss, cross_entropy
from tacit.networks import Tap
from tacit.preparation import Graphs, Model
from tacit.privacy import Fast, Ledger, NoPrivacy, Privacy, Secret, Sources
from tacit.schedules import Schedule


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """All settings of a run: `tacit.train(algorithm, **settings)` takes these."""

    algorithm: Algorithm[Any]
    """The update rule Ψ."""
    model: Model
    """A module, whose present parameters are the start, or a function that makes one, called under `seed`."""
    data: AgentData
    """Who holds which records."""
    privacy: Privacy | NoPrivacy
    """The promise, or none."""
    rounds: int
    lr: float | Sequence[float] | Schedule
    """The step size: a number, one for each agent of the stack, or a schedule such as `LogSpaced(0.06, 0.005)`."""
    graph: Graphs | None = None
    """Who talks to whom; one for all trials or one for each. Needed unless the algorithm never exchanges."""
    mixing: str | sparse.csr_array = "metropolis"
    """How neighbours are weighed: `metropolis`, `max_degree`, `uniform`, or a matrix of one's own."""
    allow_drift: bool = False
    """Let weights through that move the average: only for reproducing the published code."""
    loss: Loss = cross_entropy
    """Maps a batch of outputs and targets to one loss per record."""
    seed: int = 0
    """Drives all public chance: initialisation and `at.generator`. Lots and noise never come from it."""
    sources: Sources | None = None
    """Where lots and noise come from: `Secret()` unless given, or `Fast(seed)` for a run without privacy."""
    ledger: Ledger | None = None
    """Where queries are written, a new one unless given. Its budget, if it has one, is enforced."""
    name: str | None = None
    """The run's label in the ledger; of several trials, trial t is `<name>/<t>`."""
    sizes: Sequence[int] | None = None
    """The declared number of records of each agent, from which q = L/n follows; the true one unless given."""
    same_start: bool = True
    """Whether all agents of a trial start from one θ. If not, `model` must be a function."""
    evaluate_every: int | None = None
    """Rounds between looks at the validation records; about twenty looks unless given."""
    private_diagnostics: bool = False
    """Collect what each query saw of the private data. Such a run is not a release."""
    taps: Sequence[Tap] = ()
    """Functions that see every exchange's tensors, as an observer of all links would."""
    device: torch.device | str = "cpu"
    progress: bool = False
    """Show a progress bar, if the error stream is a terminal."""

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InvalidInput(f"rounds is {self.rounds}; at least one is needed")
        if self.evaluate_every is not None and self.evaluate_every < 1:
            raise InvalidInput(f"evaluate_every is {self.evaluate_every}; it must be at least 1")
        if type(self.algorithm) is SGD and self.data.agents > 1:
            raise InvalidInput(
                f"SGD trains one agent and the data has {self.data.agents}: pass data.pooled(), or use Local for "
                "agents that learn alone"
            )
        if self.private_diagnostics and not isinstance(self.privacy, Privacy):
            raise InvalidInput("private_diagnostics tell of clipping, and a run without privacy does not clip")

    @property
    def chosen_sources(self) -> Sources:
        """Where lots and noise come from, after defaults."""
        if self.sources is not None:
            return self.sources
        return Secret() if isinstance(self.privacy, Privacy) else Fast(self.seed)

    @property
    def is_release(self) -> bool:
        """Whether what comes of the run may be shown to others with its ε."""
        return isinstance(self.privacy, Privacy) and self.chosen_sources.secret and not self.private_diagnostics
