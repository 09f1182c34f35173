"""A run in progress: count what it asks, settle the plan, open the ledger, then play it round by round.

A run that does not fit its budget is refused before its first query. Whoever drives a session calls `advance` until
`finished` and closes it; `tacit.train` does no more than that.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from tacit.algorithms.averaged import name_of
from tacit.data.drafting import settle
from tacit.data.schema import check_records
from tacit.errors import GraphError, PrivacyError
from tacit.models import FlatModel, check_module
from tacit.networks import EchoNetwork, Topology
from tacit.networks.topology import edges_over
from tacit.privacy import Account, Diagnostics, Ledger, Oracle, PlainOracle, Plan, Privacy, PrivateOracle, choose_engine
from tacit.privacy.oracle import shared_masks
from tacit.privacy.units import UnitModel
from tacit.training.absences import Absences, WithAbsences
from tacit.training.counting import Cost, check_rows_apart, count, rows_to_check
from tacit.training.monitor import Watch, plan_looks
from tacit.training.noise_response import noise_response
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
from tacit.training.schedules import as_schedule, only_rows
from tacit.training.settings import Training
from tacit.training.states import flatten, restore

_CHECKED_RECORDS = 7
_LEAST_NOISE = 0.02

log = logging.getLogger(__name__)


class Session:
    """The agents of a training that are hosted here, between two rounds.

    `runtime` says which these are and how they reach the others: all of them in this process unless given, where several
    independent trials may lie side by side. Rows of tensors, data, accounts and answers are those of hosted agents; `plan` and
    `sizes` are everybody's, and public. `accounts`, one for each trial, are those of a run that goes on; otherwise the ledger opens
    new ones.
    """

    def __init__(
        self, training: Training, runtime: Runtime | None = None, accounts: Sequence[Account] | None = None
    ) -> None:
        self.runtime = runtime or Stacked()
        trials = self.runtime.trials
        data, device = training.data, torch.device(training.device)
        self.hosted = self.runtime.host(data.agents)
        self.training, self.trials = training, trials
        everyone = self.hosted.total
        rows = [trial * everyone + agent for trial in range(trials) for agent in self.hosted.agents]
        self._everyones_lr = as_schedule(training.lr)
        self._schedule = only_rows(self._everyones_lr, rows, trials * everyone)
        unit = training.unit
        if unit is None and isinstance(training.privacy, Privacy) and data.data.train.units is not None:
            log.warning(
                "%s says whose each record is, but every record is protected by itself: someone with several loses more. Give "
                "unit=Unit(name, most=...), or --unit NAME:MOST, to protect them",
                data.data.name,
            )
        self.sizes = declared_sizes(data, training.sizes, everyone, unit)
        self._absences = Absences(training.absences, everyone)
        self._whole = self._connected()
        self._topologies: Sequence[Topology] = self._whole
        if self._absences:
            self._topologies = [WithAbsences(topology, self._absences) for topology in self._whole]

        module = make_module(training.model, training.seed)
        self.schema = settle(data.data, module)
        check_records(data, self.schema)  # before anything is asked, charged or sent
        check_module(module, example(data, self.schema))
        self.model = FlatModel(module, training.loss).to(device)
        self.cost = self._count()
        theta = starts(
            self.model,
            training.model,
            seed=training.seed,
            trials=trials,
            agents=self.hosted.agents,
            same_start=training.same_start,
        ).to(device)
        probe(self.model, theta[0], data, self.schema)
        # Calibration takes seconds, so that it comes after whatever can be wrong with models and records.
        self.plan = self._settle()

        if self.plan.privacy is not None and min(self.plan.noise_multipliers) < _LEAST_NOISE:
            raise PrivacyError(
                f"the noise multiplier is {min(self.plan.noise_multipliers):g}; below {_LEAST_NOISE} a single query costs "
                "thousands of ε, which nobody could derive in the end. Use NoPrivacy for none"
            )

        self._hosted_plan = self.plan.of(self.hosted.agents)
        if training.step_agents is None:
            self._shaped_for = self._hosted_plan.lot_sizes * trials
        else:
            self._shaped_for = (max(self.plan.lot_sizes),) * training.step_agents
        if unit is None:
            self._asked, self._example = self.model, public_lot(data, self.schema, _CHECKED_RECORDS, device)
        else:
            self._asked = UnitModel(self.model, unit, self.schema.targets.shape)
            self._example = public_units(data, self.schema, _CHECKED_RECORDS, unit, device)
        self.chosen = choose_engine(
            self._asked,
            theta[0],
            self._example,
            lot_sizes=self._shaped_for,
            queries=self.cost.queries,
            private=self.plan.privacy is not None,
            compile=training.compile,
        )
        self.network = self.runtime.connect(
            self._topologies,
            dtype=self.model.dtype,
            device=device,
            taps=training.taps,
            any_order=training.any_order,
        )
        looks = plan_looks(
            rounds=training.total_rounds,
            every=training.evaluate_every,
            trained=self.cost.queries * sum(self.plan.lot_sizes),
            agents=everyone,
            validation=0 if data.data.validation is None else len(data.data.validation),
        )
        self.watch = Watch(self.model, data, self.network, self.runtime.gather, looks)
        self.seconds = 0.0
        self.watch.look(theta, 0, 0)

        self.ledger = Ledger() if training.ledger is None else training.ledger
        name = training.name or fresh_label(self.ledger, name_of(training.algorithm))
        self.runs = [name] if trials == 1 else [f"{name}/{trial}" for trial in range(trials)]
        self.diagnostics: list[Diagnostics] | None = [] if training.private_diagnostics else None
        self.accounts: list[Account] = list(accounts or [])
        self._lost = False
        if any(line.release != training.is_release for account in self.accounts for line in account.lines):
            raise PrivacyError("these accounts were opened for lots and noise of another kind: release or not")
        opened = len(self.accounts) == 0  # those that were handed in are not this session's to close
        try:
            if opened:
                self.accounts += self._open_accounts()
            self.real_oracle = self._make_oracle(device)
            self.oracle: Oracle = self.real_oracle
            self._play = Play(
                training.algorithm,
                theta,
                rounds=training.rounds,
                schedule=self._schedule,
                network=self.network,
                oracle=self.oracle,
                seed=training.seed,
                public_loss=self.watch.public_loss,
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
        """Return all that a session needs to go on from here, but its settings, accounts, answers on record and histories.

        All of it is public and may be written to disk as it is: nothing of a lot or of noise is in it, only how many were drawn.
        """
        facts = {
            "round": torch.tensor(self.round),
            "queries": torch.tensor(self.oracle.queries),
            "seconds": torch.tensor(self.seconds, dtype=torch.float64),
            "evaluation_seconds": torch.tensor(self.watch.seconds, dtype=torch.float64),
            "bytes_sent": torch.from_numpy(self.network.bytes_sent.copy()),
        }
        return facts | flatten(self.state)

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Go on from where another session of the same settings was. Lots and noise go on after those that were drawn."""
        self._play.state = restore(self.state, saved)
        self.real_oracle.skip(int(saved["queries"]))
        self._play.round, self.seconds = int(saved["round"]), float(saved["seconds"])
        self.watch.seconds = float(saved["evaluation_seconds"])
        self.network.bytes_sent[:] = saved["bytes_sent"].numpy()

    def restore_histories(self, histories: Sequence[Sequence[Snapshot]]) -> None:
        """Put what another session of the same settings saw, trial by trial, in the place of what was seen here."""
        self.watch.restore(histories)

    def advance(self) -> None:
        """Play one round, and look at the models if it is time."""
        started = time.perf_counter()
        if isinstance(self.real_oracle, PrivateOracle):
            self.real_oracle.leave_out(self._absences.left_out(self.round))
        self._play.advance()
        self.seconds += time.perf_counter() - started
        if self.round % self.watch.looks.every == 0 or self.finished:
            self.look()

    def look(self) -> None:
        """Score the models as they are, on all validation records after the last round, and say once if they are no numbers any more."""
        if not self._lost and not bool(self.state.theta.isfinite().all()):
            self._lost = True
            log.warning(
                "the agents' models are no longer finite since round %d or before; try a smaller lr", self.round
            )
        self.watch.look(self.state.theta, self.round, self.oracle.queries, whole=self.finished)

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
                sizes=tuple(self.sizes[agent] for agent in self.hosted.agents),
                plan=self._hosted_plan,
                ledger=self.ledger,
                history=list(self.watch.histories[trial]),
                release=training.is_release,
                seconds=self.seconds / self.trials,
                evaluation_seconds=self.watch.seconds / self.trials,
                private_diagnostics=None if seen is None else [each.of_trial(trial, self.trials) for each in seen],
                owners=training.data.owners,
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
        """Play the rule through for the hosted agents, along the run's own graph and without links."""
        training, hosted, everyone = self.training, self.hosted.agents, self.hosted.total
        rule, rounds, seed = training.algorithm, training.rounds, training.seed
        shape: dict[str, Any] = {"width": self.model.size, "dtype": self.model.dtype}

        def echo(device: torch.device) -> EchoNetwork:
            return EchoNetwork(self._topologies, hosted, trials=self.trials, device=device)

        cost = count(rule, rounds, self._schedule, echo, seed, **shape, gossip_rounds=training.gossip_rounds)
        if cost.messages and training.graph is None and everyone > 1:
            raise GraphError(f"the algorithm exchanges messages among {everyone} agents; say along which graph")
        if len(hosted) * self.trials > 1:
            agents, trials = rows_to_check(len(hosted), self.trials, self.model.size)
            rows = [trial * len(hosted) + agent for trial in range(trials) for agent in range(agents)]
            schedule = only_rows(self._schedule, rows, len(hosted) * self.trials)
            nobody = connect(None, "", allow_drift=False, agents=everyone, trials=1, rounds=rounds)

            def alone(device: torch.device) -> EchoNetwork:
                return EchoNetwork(nobody, hosted[:agents], trials=trials, device=device)

            check_rows_apart(rule, rounds, schedule, alone, seed, **shape)
        return cost

    def _settle(self) -> Plan:
        """Settle every agent's mechanism. Masks are chosen for the graph, and where they are to be the best, for the rule on it."""
        training, queries = self.training, self.cost.queries + self.training.spare_queries
        if not isinstance(training.privacy, Privacy) or training.privacy.noise is None:
            return training.privacy.plan(self.sizes, queries)
        topology, noise = self._whole[0], training.privacy.noise
        if self._absences.lost > noise.lost:
            raise PrivacyError(
                f"masks are to be shared without {self._absences.lost} agents that leave, and the noise is planned for {noise.lost}; give "
                f"Cancelling(lost={self._absences.lost})"
            )
        pairs = edges_over(topology, training.rounds)
        response = None
        if noise.ratio == "auto":
            keys = noise.keys_of(self.hosted.total, pairs)
            response = noise_response(
                training.algorithm, topology, keys, training.rounds, self._everyones_lr, training.seed
            )
            if response is None:
                log.warning(
                    "%s is not linear in its gradients, so masks would not cancel in it: every agent keeps noise of its own alone",
                    name_of(training.algorithm),
                )
                return replace(training.privacy, noise=None).plan(self.sizes, queries)
        plan = training.privacy.plan(self.sizes, queries, pairs=pairs, response=response)
        if plan.masks is None:
            log.warning(
                "masks would move the agents' models of %s on this graph more than the noise that they save: every agent keeps noise of its own alone",
                name_of(training.algorithm),
            )
        return plan

    def _connected(self) -> list[Topology]:
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

    def _make_oracle(self, device: torch.device) -> PrivateOracle | PlainOracle:
        training, plan = self.training, self._hosted_plan
        everyone = [training.chosen_sources.make(self.hosted.total, trial) for trial in range(self.trials)]
        stacked: dict[str, Any] = {
            "model": self._asked,
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
        shared = shared_masks(
            plan.masks, self.hosted.agents, lambda pairs, trial: sources.make_masks(pairs, run, trial), self.trials
        )
        return PrivateOracle(**stacked, accounts=self.accounts, shared=shared, diagnostics=self.diagnostics)

    def _open_accounts(self) -> list[Account]:
        training, plan = self.training, self._hosted_plan
        whose: dict[str, Any] = {
            "runs": self.runs,
            "owners": training.data.owners,
            "mechanisms": plan.mechanisms,
            "records": training.data.data.name,
            "partition": training.data.partition,
        }
        if plan.privacy is None:
            return self.ledger.open_without_privacy(**whose)
        return self.ledger.open_together(
            **whose,
            queries=plan.queries,
            release=training.is_release,
        )
