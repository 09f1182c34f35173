"""A run in progress: count what it asks, settle the plan, open its accounts, then play it round by round.

A run that does not fit its budget is refused before its first query. Whoever drives a session calls `advance` until
`finished` and closes it; `tacit.train` does no more than that.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor

from tacit.algorithms.averaged import name_of
from tacit.data.drafting import settle
from tacit.data.schema import check_records
from tacit.errors import PrivacyError
from tacit.models import FlatModel, check_module
from tacit.networks import Topology
from tacit.privacy import (
    Account,
    Diagnostics,
    Ledger,
    Oracle,
    PlainOracle,
    Privacy,
    PrivateOracle,
    Secret,
    choose_engine,
)
from tacit.privacy.masks import share_masks
from tacit.privacy.units import UnitModel
from tacit.training.absences import Absences, WithAbsences
from tacit.training.monitor import Monitor, Work, plan_snapshots, scored_share
from tacit.training.planning import count_queries, settle_plan
from tacit.training.preparation import (
    connect,
    declared_sizes,
    example,
    fresh_label,
    make_module,
    probe,
    public_lot,
    public_units,
    starts,
)
from tacit.training.results import Result, Snapshot
from tacit.training.rounds import Play
from tacit.training.runtimes import Runtime, Stacked
from tacit.training.schedules import Schedule, as_schedule, only_rows
from tacit.training.settings import Training
from tacit.training.states import flatten, restore

_CHECKED_RECORDS = 7

log = logging.getLogger(__name__)


class Session:
    """The agents of a training that are hosted here, between two rounds.

    `runtime` says which these are and how they reach the others: all of them in this process unless given, where several
    independent trials may lie side by side. Rows of tensors, data, accounts and answers are those of hosted agents; `plan` and
    `sizes` are everybody's, and public. `accounts`, one for each trial, are those of a run that is resumed; otherwise the ledger
    opens new ones.
    """

    def __init__(
        self, training: Training, runtime: Runtime | None = None, accounts: Sequence[Account] | None = None
    ) -> None:
        self.training, self.runtime = training, runtime or Stacked()
        self.hosted, self.trials = self.runtime.host(training.data.agents), self.runtime.trials
        self.sizes = declared_sizes(training.data, training.sizes, self.hosted.total, training.unit)
        _warn_of_units(training)
        self._check_masks_are_shared()
        self._schedule = self._hosted_step_sizes()
        self._absences = Absences(training.absences, self.hosted.total)
        complete = self._connect_agents()
        self._topologies: Sequence[Topology] = complete
        if self._absences:
            self._topologies = [WithAbsences(topology, self._absences) for topology in complete]

        theta = self._make_models()
        # Calibration takes seconds, so it comes after whatever can be wrong with models and records.
        self.plan = settle_plan(
            training,
            self.sizes,
            self.cost.queries + training.spare_queries,
            complete[0],
            self._absences,
            as_schedule(training.lr),
        )
        self._hosted_plan = self.plan.of(self.hosted.agents)
        self._choose_engine(theta)
        self.network = self.runtime.connect(
            self._topologies,
            dtype=self.model.dtype,
            device=theta.device,
            taps=training.taps,
            any_order=training.any_order,
        )
        self.seconds = 0.0
        self._diverged = False
        self.monitor = self._make_monitor()
        self.monitor.take_snapshot(theta, 0, 0)

        self.ledger = Ledger() if training.ledger is None else training.ledger
        name = training.name or fresh_label(self.ledger, name_of(training.algorithm))
        self.runs = [name] if self.trials == 1 else [f"{name}/{trial}" for trial in range(self.trials)]
        self.diagnostics: list[Diagnostics] | None = [] if training.private_diagnostics else None
        self.accounts: list[Account] = list(accounts or [])
        if any(line.release != training.is_release for account in self.accounts for line in account.lines):
            raise PrivacyError("these accounts were opened for lots and noise of another kind: release or not")
        opened = len(self.accounts) == 0  # those that were handed in are not this session's to close
        try:
            if opened:
                self.accounts += self._open_accounts()
            self.real_oracle = self._make_oracle(theta.device)
            self.oracle: Oracle = self.real_oracle
            self._play = Play(
                training.algorithm,
                theta,
                rounds=training.rounds,
                schedule=self._schedule,
                network=self.network,
                oracle=self.oracle,
                seed=training.seed,
                public_loss=self.monitor.public_loss,
                gossip_rounds=training.gossip_rounds,
                absences=self._absences or None,
            )
        except BaseException:
            for account in self.accounts if opened else ():
                account.close(finished=False)
            raise

    @property
    def state(self) -> Any:
        """The rule's state after the last round."""
        return self._play.state

    @property
    def round(self) -> int:
        """How many rounds are played."""
        return self._play.round

    @property
    def finished(self) -> bool:
        """Whether all rounds are played."""
        return self._play.finished

    def wrap_oracle(self, wrap: Callable[[Oracle], Oracle]) -> None:
        """Put something between the rule and the oracle, such as one that records answers."""
        self.oracle = self._play.oracle = wrap(self.oracle)

    def state_dict(self) -> dict[str, Tensor]:
        """Return all that a session needs to continue from here, except its settings, accounts, recorded answers and histories.

        All of it is public and may be written to disk as it is: nothing of a lot or of noise is in it, only how many were drawn.
        """
        facts = {
            "round": torch.tensor(self.round),
            "queries": torch.tensor(self.oracle.queries),
            "seconds": torch.tensor(self.seconds, dtype=torch.float64),
            "evaluation_seconds": torch.tensor(self.monitor.seconds, dtype=torch.float64),
            "bytes_sent": torch.from_numpy(self.network.bytes_sent.copy()),
        }
        return facts | flatten(self.state)

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Continue where another session of the same settings was. Lots, noise and masks follow those that were drawn."""
        self._play.state = restore(self.state, saved)
        self.real_oracle.skip(int(saved["queries"]))
        self._play.round, self.seconds = int(saved["round"]), float(saved["seconds"])
        self.monitor.seconds = float(saved["evaluation_seconds"])
        self.network.bytes_sent[:] = saved["bytes_sent"].numpy()

    def restore_histories(self, histories: Sequence[Sequence[Snapshot]]) -> None:
        """Replace the snapshots, trial by trial, by those of another session of the same settings."""
        self.monitor.restore(histories)

    def advance(self) -> None:
        """Play one round, and take a snapshot of the models if one is due."""
        started = time.perf_counter()
        if isinstance(self.real_oracle, PrivateOracle):
            self.real_oracle.leave_out(self._absences.left_out(self.round))
        self._play.advance()
        self.seconds += time.perf_counter() - started
        if self.round % self.monitor.schedule.every == 0 or self.finished:
            self.take_snapshot()

    def take_snapshot(self) -> None:
        """Score the models as they are, on all validation records after the last round, and warn once if they are not finite."""
        if not self._diverged and not bool(self.state.theta.isfinite().all()):
            self._diverged = True
            log.warning(
                "the agents' models have not been finite since round %d or before; try a smaller lr", self.round
            )
        self.monitor.take_snapshot(self.state.theta, self.round, self.oracle.queries, whole=self.finished)

    def results(self) -> list[Result]:
        """Return the result of every trial so far."""
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
                sizes=tuple(self.sizes[agent] for agent in self.hosted.agents),
                plan=self._hosted_plan,
                ledger=self.ledger,
                history=list(self.monitor.histories[trial]),
                release=training.is_release,
                seconds=self.seconds / self.trials,
                evaluation_seconds=self.monitor.seconds / self.trials,
                private_diagnostics=None if seen is None else [each.of_trial(trial, self.trials) for each in seen],
                owners=training.data.owners,
            )
            for trial, run in enumerate(self.runs)
        ]

    def close(self) -> None:
        """Close the accounts: as finished if all rounds were played with exactly the queries that were counted, else as stopped.

        A rule that asks more often than was counted may do so because of the answers; it is charged its whole allowance.
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

    def _check_masks_are_shared(self) -> None:
        """Refuse masks whose two ends would be drawn under different keys: they would not cancel."""
        apart = len(self.hosted.agents) < self.hosted.total
        if apart and self.training.cancelling is not None and isinstance(self.training.chosen_sources, Secret):
            raise PrivacyError(
                f"{len(self.hosted.agents)} of {self.hosted.total} agents are hosted here, and every process with secret sources draws "
                "keys of its own, so masks would not cancel between processes. Host all agents in one process, use sources=Seeded(seed), "
                "which is not a release, or leave out noise=Cancelling(...)"
            )

    def _hosted_step_sizes(self) -> Schedule:
        everyone = self.hosted.total
        rows = [trial * everyone + agent for trial in range(self.trials) for agent in self.hosted.agents]
        return only_rows(as_schedule(self.training.lr), rows, self.trials * everyone)

    def _connect_agents(self) -> list[Topology]:
        """Return who hears whom while nobody is away."""
        training = self.training
        return connect(
            training.graph,
            training.mixing,
            allow_drift=training.allow_drift,
            agents=self.hosted.total,
            trials=self.trials,
            rounds=training.total_rounds,
            exchanges=training.exchanges_per_query,
        )

    def _make_models(self) -> Float[Tensor, "agents params"]:
        """Make and check the model, count what the rule asks of it, and return every agent's start."""
        training, data = self.training, self.training.data
        device = torch.device(training.device)
        module = make_module(training.model, training.seed)
        self.schema = settle(data.dataset, module)
        check_records(data, self.schema)  # before anything is asked, charged or sent
        check_module(module, example(data, self.schema))
        self.model = FlatModel(module, training.loss).to(device)
        self.cost = count_queries(
            training,
            self.hosted,
            self.trials,
            self._topologies,
            self._schedule,
            width=self.model.size,
            dtype=self.model.dtype,
        )
        theta = starts(
            self.model,
            training.model,
            seed=training.seed,
            trials=self.trials,
            agents=self.hosted.agents,
            same_start=training.same_start,
        ).to(device)
        probe(self.model, theta[0], data, self.schema)
        return theta

    def _choose_engine(self, theta: Float[Tensor, "agents params"]) -> None:
        """Choose how gradients are computed, for what a query is about: every record, or every unit with its records."""
        training, data, unit = self.training, self.training.data, self.training.unit
        self._shaped_for = self._hosted_plan.lot_sizes * self.trials
        if training.step_agents is not None:
            self._shaped_for = (max(self.plan.lot_sizes),) * training.step_agents
        if unit is None:
            self._queried, self._example = self.model, public_lot(data, self.schema, _CHECKED_RECORDS, theta.device)
        else:
            self._queried = UnitModel(self.model, unit, self.schema.targets.shape)
            self._example = public_units(data, self.schema, _CHECKED_RECORDS, unit, theta.device)
        self.chosen = choose_engine(
            self._queried,
            theta[0],
            self._example,
            lot_sizes=self._shaped_for,
            queries=self.cost.queries,
            private=self.plan.privacy is not None,
            compile=training.compile,
        )

    def _make_monitor(self) -> Monitor:
        data = self.training.data
        work = Work(
            rounds=self.training.total_rounds,
            trained=self.cost.queries * sum(self.plan.lot_sizes),
            agents=self.hosted.total,
            validation=0 if data.dataset.validation is None else len(data.dataset.validation),
        )
        schedule = plan_snapshots(**work, every=self.training.evaluate_every)
        self.scored_share = scored_share(schedule, **work)
        return Monitor(self.model, data, self.network, self.runtime.gather, schedule)

    def _make_oracle(self, device: torch.device) -> PrivateOracle | PlainOracle:
        training, plan = self.training, self._hosted_plan
        everyone = [training.chosen_sources.make(self.hosted.total, trial) for trial in range(self.trials)]
        stacked: dict[str, Any] = {
            "model": self._queried,
            "engine": self.chosen.engine,
            "data": training.data,
            "plan": plan.repeated(self.trials),
            "sources": [sources[agent] for sources in everyone for agent in self.hosted.agents],
            "example": self._example,
            "device": device,
            "shaped_for": self._shaped_for,
        }
        if plan.privacy is None:
            return PlainOracle(**stacked, accounts=self.accounts)
        sources, run = training.chosen_sources, self.runs[0]
        shared = share_masks(
            plan.masks, self.hosted.agents, lambda pairs, trial: sources.make_masks(pairs, run, trial), self.trials
        )
        return PrivateOracle(**stacked, accounts=self.accounts, shared=shared, diagnostics=self.diagnostics)

    def _open_accounts(self) -> list[Account]:
        training, plan = self.training, self._hosted_plan
        whose: dict[str, Any] = {
            "runs": self.runs,
            "owners": training.data.owners,
            "mechanisms": plan.mechanisms,
            "records": training.data.dataset.name,
            "partition": training.data.partition,
        }
        if plan.privacy is None:
            return self.ledger.open_without_privacy(**whose)
        return self.ledger.open_together(
            **whose,
            queries=plan.queries,
            release=training.is_release,
        )


def _warn_of_units(training: Training) -> None:
    data = training.data.dataset
    if training.unit is None and isinstance(training.privacy, Privacy) and data.train.units is not None:
        log.warning(
            "%s says whose each record is, but every record is protected by itself: someone with several loses more. Give "
            "unit=Unit(name, most=...), or --unit NAME:MOST, to protect them",
            data.name,
        )
