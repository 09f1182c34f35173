"""A run in progress: count what it asks, settle the plan, open the ledger, then play it round by round.

A run that does not fit its budget is refused before its first query. Whoever drives a session calls `advance` until
`finished` and closes it; `tacit.train` does no more than that.
"""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from tacit.algorithms.averaged import name_of
from tacit.counting import Cost, check_rows_apart, count
from tacit.data.drafting import settle
from tacit.data.schema import check_records
from tacit.errors import GraphError, InvalidInput, PrivacyError
from tacit.models import FlatModel, check_module
from tacit.networks import SimulatedInbox, SimulatedNetwork, Tap
from tacit.preparation import connect, declared_sizes, example, fresh_label, make_module, probe, public_lot, starts
from tacit.privacy import Account, Diagnostics, Ledger, Oracle, PerSample, PlainOracle, PrivateOracle, choose_engine
from tacit.results import Result
from tacit.schedules import as_schedule, step_size
from tacit.settings import Training
from tacit.watching import Watch

_CHECKED_RECORDS = 7
_LEAST_NOISE = 0.02


class Round:
    """What an algorithm sees of one round; see `tacit.algorithms.At`. Everything else is out of its reach."""

    def __init__(
        self, round: int, lr: float | Tensor, generator: torch.Generator, oracle: Oracle, network: SimulatedNetwork
    ) -> None:
        self.round, self.lr, self.generator = round, lr, generator
        self.__oracle, self.__network = oracle, network

    def gradient(self, theta: Tensor) -> Tensor:
        """Ask the oracle for every agent's gradient."""
        return self.__oracle.gradient(theta)

    def query(self, per_sample: PerSample, *public: Tensor, width: int | None = None) -> Tensor:
        """Ask the oracle for the mean of any per-sample vector."""
        return self.__oracle.query(per_sample, *public, width=width)

    def exchange(self, *tensors: Tensor) -> SimulatedInbox:
        """Send one message to every neighbour and return theirs."""
        return self.__network.exchange(*tensors)


class Session:
    """Several independent trials of one training, side by side on the agents' axis, between two rounds.

    `accounts`, one for each trial, are those of a run that goes on; otherwise the ledger opens new ones.
    """

    def __init__(self, training: Training, trials: int = 1, accounts: Sequence[Account] | None = None) -> None:
        if not isinstance(trials, int) or trials < 1:
            raise InvalidInput(f"trials is {trials!r}; it must be a whole number, at least 1")
        data, device = training.data, torch.device(training.device)
        self.training, self.trials = training, trials
        self._schedule = as_schedule(training.lr)
        self.cost = self._count()
        self.sizes = declared_sizes(data, training.sizes)

        module = make_module(training.model, training.seed)
        self.schema = settle(data.data, module)
        check_records(data, self.schema)  # before anything is asked, charged or sent
        check_module(module, example(data, self.schema))
        self.model = FlatModel(module, training.loss).to(device)
        theta = starts(
            self.model,
            training.model,
            seed=training.seed,
            trials=trials,
            agents=data.agents,
            same_start=training.same_start,
        ).to(device)
        probe(self.model, theta[0], data, self.schema)
        # Calibration takes seconds, so that it comes after whatever can be wrong with models and records.
        self.plan = training.privacy.plan(self.sizes, self.cost.queries + training.spare_queries)

        if self.plan.privacy is not None and min(self.plan.noise_multipliers) < _LEAST_NOISE:
            raise PrivacyError(
                f"the noise multiplier is {min(self.plan.noise_multipliers):g}; below {_LEAST_NOISE} a single query costs "
                "thousands of ε, which nobody could derive in the end. Use NoPrivacy for none"
            )

        self._example = public_lot(data, self.schema, _CHECKED_RECORDS, device)
        self.chosen = choose_engine(
            self.model,
            theta[0],
            self._example,
            lot_sizes=self.plan.lot_sizes * trials,
            queries=self.cost.queries,
            private=self.plan.privacy is not None,
            compile=training.compile,
        )
        self.network = self._connect(theta.dtype, device, taps=training.taps)
        self.watch = Watch(self.model, data, self.network)
        self.watch.look(theta, 0, 0)

        self.ledger = Ledger() if training.ledger is None else training.ledger
        name = training.name or fresh_label(self.ledger, name_of(training.algorithm))
        self.runs = [name] if trials == 1 else [f"{name}/{trial}" for trial in range(trials)]
        self.generator = torch.Generator(device).manual_seed(training.seed)
        self.diagnostics: list[Diagnostics] | None = [] if training.private_diagnostics else None
        self.accounts: list[Account] = list(accounts or [])
        self.state: Any = training.algorithm.init(theta)
        self.round, self.seconds = 0, 0.0
        self.real_oracle = self._open_oracle(device)
        self.oracle: Oracle = self.real_oracle

    @property
    def finished(self) -> bool:
        """Whether all rounds are played."""
        return self.round >= self.training.rounds

    def advance(self) -> None:
        """Play one round, and look at the models if it is time."""
        training, started = self.training, time.perf_counter()
        shape = self.state.theta.shape
        with torch.no_grad():
            lr = step_size(self._schedule, self.round, training.rounds, self.state.theta)
            at = Round(self.round, lr, self.generator, self.oracle, self.network)
            state = training.algorithm.round(self.state, at)
        if state.theta.shape != shape:
            raise InvalidInput(
                f"{type(training.algorithm).__name__}.round returned theta of shape {tuple(state.theta.shape)}; "
                f"it must stay {tuple(shape)}"
            )
        self.state, self.round = state, self.round + 1
        every = training.evaluate_every or max(1, training.rounds // 20)
        if self.round % every == 0 or self.finished:
            self.look()
        self.seconds += time.perf_counter() - started

    def look(self) -> None:
        """Score the models as they are."""
        self.watch.look(self.state.theta, self.round, self.oracle.queries)

    def results(self) -> list[Result]:
        """Return what came of every trial so far."""
        training, seen = self.training, self.diagnostics
        thetas = self.state.theta.unflatten(0, (self.trials, -1))
        return [
            Result(
                algorithm=training.algorithm,
                run=run,
                theta=thetas[trial],
                model=self.model,
                data=training.data,
                schema=self.schema,
                sizes=self.sizes,
                plan=self.plan,
                ledger=self.ledger,
                history=self.watch.histories[trial],
                release=training.is_release,
                seconds=self.seconds / self.trials,
                private_diagnostics=None if seen is None else [each.of_trial(trial, self.trials) for each in seen],
            )
            for trial, run in enumerate(self.runs)
        ]

    def close(self) -> None:
        """Close the accounts: as finished if all rounds were played and just what was counted was asked, else as stopped.

        A rule that asks more often than it was counted may do so by the answers; it is charged its whole allowance.
        """
        private = self.plan.privacy is not None
        needed = self.cost.queries if private else 0
        as_counted = self.finished and (not private or self.oracle.queries == needed)
        for account in self.accounts:
            account.close(finished=as_counted and account.spent >= needed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _count(self) -> Cost:
        """Play the rule through, on the run's own graph and on one without links."""
        training, rule = self.training, (self.training.algorithm, self.training.rounds, self._schedule)
        cost = count(*rule, self._connect(), training.seed)
        if cost.messages and training.graph is None and training.data.agents > 1:
            raise GraphError(
                f"the algorithm exchanges messages among {training.data.agents} agents; say along which graph"
            )
        if training.data.agents * self.trials > 1:
            alone, links = connect(None, "", allow_drift=False, agents=training.data.agents, trials=self.trials)
            network = SimulatedNetwork(alone, links=links, trials=self.trials)
            check_rows_apart(*rule, network, training.seed)
        return cost

    def _connect(
        self, dtype: torch.dtype = torch.float32, device: torch.device | None = None, taps: Sequence[Tap] = ()
    ) -> SimulatedNetwork:
        training = self.training
        mixing, links = connect(
            training.graph,
            training.mixing,
            allow_drift=training.allow_drift,
            agents=training.data.agents,
            trials=self.trials,
        )
        return SimulatedNetwork(mixing, links=links, trials=self.trials, dtype=dtype, device=device, taps=taps)

    def _open_oracle(self, device: torch.device) -> PrivateOracle | PlainOracle:
        training, plan = self.training, self.plan
        agents, sources = training.data.agents, training.chosen_sources
        stacked: dict[str, Any] = {
            "model": self.model,
            "engine": self.chosen.engine,
            "data": training.data,
            "plan": plan.repeated(self.trials),
            "sources": [source for trial in range(self.trials) for source in sources.make(agents, trial)],
            "example": self._example,
            "device": device,
        }
        if any(line.release != training.is_release for account in self.accounts for line in account.lines):
            raise PrivacyError("these accounts were opened for lots and noise of another kind: release or not")
        opened = len(self.accounts) == 0  # those that were handed in are not this session's to close
        try:
            if opened:
                self.accounts += self._open_accounts()
            if plan.privacy is None:
                return PlainOracle(**stacked, accounts=self.accounts)
            return PrivateOracle(**stacked, accounts=self.accounts, diagnostics=self.diagnostics)
        except BaseException:
            if opened:
                self.close()
            raise

    def _open_accounts(self) -> list[Account]:
        training, plan = self.training, self.plan
        whose: dict[str, Any] = {
            "runs": self.runs,
            "owners": training.data.owners,
            "sample_rates": plan.sample_rates,
            "records": training.data.data.name,
            "partition": training.data.partition,
        }
        if plan.privacy is None:
            return self.ledger.open_without_privacy(**whose)
        return self.ledger.open_together(
            **whose,
            noise_multipliers=plan.noise_multipliers,
            queries=plan.queries,
            release=training.is_release,
        )
