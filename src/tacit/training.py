"""The loop: count what a run asks, settle the plan, open the ledger, play the rounds, look at the models now and then.

`train` runs once; `train_trials` runs several independent systems side by side on one stacked axis. A run that does not
fit its budget is refused before its first query.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from scipy import sparse
from torch import Tensor

from tacit.algorithms import SGD, Algorithm
from tacit.counting import count
from tacit.data import AgentData
from tacit.errors import InvalidInput, choose
from tacit.models import FlatModel, Loss, check_module, cross_entropy
from tacit.networks import SimulatedInbox, SimulatedNetwork, Tap
from tacit.preparation import (
    Graphs,
    Model,
    declared_sizes,
    example,
    fresh_label,
    make_module,
    starts,
    weights,
)
from tacit.privacy import (
    Diagnostics,
    Fast,
    Ledger,
    NoPrivacy,
    Oracle,
    PlainOracle,
    Plan,
    Privacy,
    PrivateOracle,
    Secret,
    Sources,
    VmapEngine,
)
from tacit.results import Result
from tacit.schedules import Schedule, as_schedule
from tacit.watching import Watch


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """All settings of a run. `Training(...).run()` is what `tacit.train(...)` does."""

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

    def run(self) -> Result:
        """Train once."""
        return self.run_trials(1)[0]

    def run_trials(self, trials: int) -> list[Result]:
        """Train several independent systems side by side; trial t starts from the public seed `seed + t`."""
        if trials < 1:
            raise InvalidInput(f"trials is {trials}; at least one is needed")
        data, device = self.data, torch.device(self.device)
        schedule = as_schedule(self.lr)
        cost = count(self.algorithm, self.rounds, schedule)
        plan = self.privacy.plan(declared_sizes(data, self.sizes), cost.queries)

        module = make_module(self.model, self.seed)
        check_module(module, example(data))
        model = FlatModel(module, self.loss).to(device)
        theta = starts(
            model, self.model, seed=self.seed, trials=trials, agents=data.agents, same_start=self.same_start
        ).to(device)
        matrices = weights(
            self.graph,
            self.mixing,
            allow_drift=self.allow_drift,
            agents=data.agents,
            trials=trials,
            needed=cost.messages > 0,
        )
        network = SimulatedNetwork(matrices, trials=trials, dtype=theta.dtype, device=device, taps=self.taps)

        ledger = Ledger() if self.ledger is None else self.ledger
        name = self.name or fresh_label(ledger, type(self.algorithm).__name__)
        runs = [name] if trials == 1 else [f"{name}/{trial}" for trial in range(trials)]
        watch = Watch(model, data, network)
        seen: list[Diagnostics] | None = [] if self.private_diagnostics else None
        with self._oracle(model, plan, runs, ledger, device, seen) as oracle:
            started = time.perf_counter()
            theta = self._play(theta, schedule, oracle, network, watch)
            seconds = time.perf_counter() - started
        return [
            Result(
                algorithm=self.algorithm,
                run=run,
                theta=theta.unflatten(0, (trials, -1))[trial],
                model=model,
                data=data,
                plan=plan,
                ledger=ledger,
                history=watch.histories[trial],
                release=self._is_release(),
                seconds=seconds / trials,
                private_diagnostics=None if seen is None else [each.of_trial(trial, trials) for each in seen],
            )
            for trial, run in enumerate(runs)
        ]

    def _play(
        self, theta: Tensor, schedule: Schedule, oracle: Oracle, network: SimulatedNetwork, watch: Watch
    ) -> Tensor:
        algorithm, rounds = self.algorithm, self.rounds
        every = self.evaluate_every or max(1, rounds // 20)
        generator = torch.Generator(theta.device).manual_seed(self.seed)
        with torch.no_grad(), _progress(self.progress, type(algorithm).__name__, rounds) as advance:
            state = algorithm.init(theta)
            watch.look(theta, 0, 0)
            for number in range(rounds):
                lr = _column(schedule(number, rounds), theta)
                state = algorithm.round(state, Round(number, lr, generator, oracle, network))
                if state.theta.shape != theta.shape:
                    raise InvalidInput(
                        f"{type(algorithm).__name__}.round returned theta of shape {tuple(state.theta.shape)}; "
                        f"it must stay {tuple(theta.shape)}"
                    )
                if (number + 1) % every == 0 or number + 1 == rounds:
                    watch.look(state.theta, number + 1, oracle.queries)
                advance()
        final: Tensor = state.theta
        return final

    @contextmanager
    def _oracle(
        self,
        model: FlatModel,
        plan: Plan,
        runs: Sequence[str],
        ledger: Ledger,
        device: torch.device,
        diagnostics: list[Diagnostics] | None,
    ) -> Iterator[Oracle]:
        """Open the accounts, hand out the oracle, and close them whatever happens."""
        trials, agents = len(runs), self.data.agents
        chosen = self._sources()
        stacked: dict[str, Any] = {
            "model": model,
            "engine": VmapEngine(model),
            "data": self.data,
            "plan": plan.repeated(trials),
            "sources": [source for trial in range(trials) for source in chosen.make(agents, trial)],
            "device": device,
            "dropout_seed": self.seed,
        }
        if not isinstance(self.privacy, Privacy):
            yield PlainOracle(**stacked)
            return
        accounts = []
        try:
            for run in runs:
                accounts.append(
                    ledger.open(
                        run=run,
                        owners=self.data.owners,
                        sample_rates=plan.sample_rates,
                        noise_multipliers=plan.noise_multipliers,
                        queries=plan.queries,
                        release=self._is_release(),
                    )
                )
            yield PrivateOracle(**stacked, accounts=accounts, diagnostics=diagnostics)
        finally:
            for account in accounts:
                account.close()

    def _sources(self) -> Sources:
        if self.sources is not None:
            return self.sources
        return Secret() if isinstance(self.privacy, Privacy) else Fast(self.seed)

    def _is_release(self) -> bool:
        return isinstance(self.privacy, Privacy) and self._sources().secret and not self.private_diagnostics


def train(algorithm: Algorithm[Any], **settings: Any) -> Result:
    """Train once. The settings are the fields of `Training`, which documents them."""
    return _settle(algorithm, settings).run()


def train_trials(trials: int, algorithm: Algorithm[Any], **settings: Any) -> list[Result]:
    """Train several independent systems side by side. The settings are the fields of `Training`."""
    return _settle(algorithm, settings).run_trials(trials)


def _settle(algorithm: Algorithm[Any], settings: dict[str, Any]) -> Training:
    for key in settings:
        choose("setting", key, [field.name for field in fields(Training)])
    return Training(algorithm=algorithm, **settings)


@dataclass(frozen=True)
class Round:
    """What an algorithm sees of one round; see `tacit.algorithms.At`."""

    round: int
    lr: float | Tensor
    generator: torch.Generator
    oracle: Oracle
    network: SimulatedNetwork

    def gradient(self, theta: Tensor) -> Tensor:
        """Ask the oracle for every agent's gradient."""
        return self.oracle.gradient(theta)

    def query(self, per_sample: Callable[..., Tensor], *public: Tensor, width: int | None = None) -> Tensor:
        """Ask the oracle for the mean of any per-sample vector."""
        return self.oracle.query(per_sample, *public, width=width)

    def exchange(self, *tensors: Tensor) -> SimulatedInbox:
        """Send one message to every neighbour and return theirs."""
        return self.network.exchange(*tensors)


def _column(lr: float | Tensor, theta: Tensor) -> float | Tensor:
    """Return a number as it is, and one number per agent as a column beside θ."""
    if not isinstance(lr, Tensor) or lr.numel() == 1:
        return float(lr)
    if lr.numel() != len(theta):
        raise InvalidInput(f"the step size has {lr.numel()} values for {len(theta)} agents (of all trials together)")
    return lr.to(theta).reshape(-1, 1)


@contextmanager
def _progress(shown: bool, name: str, rounds: int) -> Iterator[Callable[[], None]]:
    """Yield what to call after every round. Nothing is drawn where there is no terminal to draw on."""
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield lambda: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name, total=rounds)
        yield lambda: progress.advance(task)
