"""A run in progress: count what it asks, settle the plan, open its accounts, then play it round by round.

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
from tacit.errors import InvalidInput, PrivacyError
from tacit.privacy import (
    Account,
    Diagnostics,
    Ledger,
    NoPrivacy,
    Oracle,
    Plan,
    Privacy,
    PrivateOracle,
)
from tacit.privacy.plans import side_by_side
from tacit.privacy.teacher_oracle import TeacherOracle
from tacit.training.checks import check_masks_are_shared
from tacit.training.monitor import Monitor, Work, plan_snapshots, scored_share
from tacit.training.oracles import choose_queried, make_oracle
from tacit.training.pool import LabelledPool
from tacit.training.preparation import fresh_label
from tacit.training.prepared import Prepared, TrialShare, prepare
from tacit.training.results import Result, Snapshot
from tacit.training.rounds import LabelledGradient, Play, no_labelled_gradient
from tacit.training.runtimes import NetworkSettings, Runtime, Stacked
from tacit.training.settings import Training
from tacit.training.states import flatten, restore

log = logging.getLogger(__name__)


class Session:
    """The agents of a training that are hosted here, between two rounds.

    `runtime` says which these are and how they reach the others: all of them in this process unless given, where several
    independent trials may lie side by side. Rows of tensors, data, accounts and answers are those of hosted agents; `plan` and
    `sizes` are everybody's, and public. `accounts`, one for each trial, are those of a run that is resumed, or a function
    that opens or finds them once the plan is settled; otherwise the ledger opens new ones. `privacies`, one for each trial, take the place
    of the training's privacy settings where trials differ in lots, clipping norms or noise. With a `share`, these are some of more trials, of
    which others are played elsewhere: each has the start, lots, noise and public chance that follow from its number there. What was `prepared`
    before, of this training, these agents and trials, is not prepared again.
    """

    def __init__(
        self,
        training: Training,
        runtime: Runtime | None = None,
        accounts: Sequence[Account] | Callable[["Session"], Sequence[Account]] | None = None,
        privacies: Sequence[Privacy | NoPrivacy] = (),
        share: TrialShare | None = None,
        prepared: Prepared | None = None,
    ) -> None:
        self.training, self.runtime = training, runtime or Stacked()
        self.hosted, self.trials = self.runtime.host(training.data.agents), self.runtime.trials
        check_masks_are_shared(training, self.hosted)
        if prepared is None:
            prepared = prepare(training, self.hosted, self.trials, privacies, share)
        self.sizes, self.model, self.schema, self.cost = prepared.sizes, prepared.model, prepared.schema, prepared.cost
        self._first, self._absences, theta = prepared.first, prepared.absences, prepared.theta
        self.plan = prepared.plan
        self._set_pool_aside()
        training = self.training
        plans = prepared.plans[:1] if prepared.one_plan else prepared.plans
        hosted = [plan.of(self.hosted.agents) for plan in plans]
        self._hosted_plans = hosted * self.trials if prepared.one_plan else hosted
        self._stacked_plan = side_by_side(self._hosted_plans)
        shaped_for = self._stacked_plan.full_lots
        if training.step_agents is not None:
            shaped_for = (max(max(plan.full_lots) for plan in plans),) * training.step_agents
        queried = choose_queried(
            training,
            self.model,
            self.schema,
            theta,
            shaped_for=shaped_for,
            plan=self.plan,
            queries=self.cost.queries,
        )
        self.chosen = queried.chosen
        wanted = NetworkSettings(
            dtype=self.model.dtype, device=theta.device, taps=training.taps, any_order=training.any_order
        )
        self.network = self.runtime.connect(prepared.topologies, wanted)
        self.left_out: frozenset[int] = frozenset()
        """Agents without whom masks are shared from now on, besides those of planned absences."""
        self.seconds = 0.0
        self._diverged = False
        self.monitor = self._make_monitor()
        self.monitor.take_snapshot(theta, 0, 0)

        self.ledger = Ledger() if training.ledger is None else training.ledger
        name = training.name or fresh_label(self.ledger, name_of(training.algorithm))
        alone = self.trials == 1 and share is None
        self.runs = [name] if alone else [f"{name}/{self._first + trial}" for trial in range(self.trials)]
        self.diagnostics: list[Diagnostics] | None = [] if training.private_diagnostics else None
        self.accounts: list[Account] = list(accounts(self) if callable(accounts) else accounts or [])
        if any(line.release != training.is_release for account in self.accounts for line in account.lines):
            raise PrivacyError("these accounts were opened for lots and noise of another kind: release or not")
        opened = len(self.accounts) == 0  # accounts that were passed in are closed by their owner
        try:
            if opened:
                self.accounts += self._open_own_accounts()
            self.real_oracle = make_oracle(
                training,
                self.model,
                queried,
                self._stacked_plan,
                self.hosted,
                trials=range(self._first, self._first + self.trials),
                run=self.runs[0],
                accounts=self.accounts,
                diagnostics=self.diagnostics,
                device=theta.device,
            )
            self.oracle: Oracle = self.real_oracle
            self._play = Play(
                training.algorithm,
                theta,
                rounds=training.rounds,
                schedule=prepared.schedule,
                network=self.network,
                oracle=self.oracle,
                seed=training.seed,
                first_trial=self._first,
                public_loss=self.monitor.public_loss,
                labelled_gradient=self._labelled_gradient(theta.device),
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

    def withhold_public_loss(self, why: str) -> None:
        """Refuse the rule the loss on validation records, since not all agents have the same ones."""

        def refuse(theta: Tensor) -> Tensor:
            raise InvalidInput(why)

        self._play.public_loss = refuse

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
        if self._play.labels is not None:
            facts["labels"] = self._play.labels
        return facts | flatten(self.state)

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Continue where another session of the same settings was. Lots, noise and masks follow those that were drawn."""
        self._play.state = restore(self.state, saved)
        self.real_oracle.skip(int(saved["queries"]))
        self._play.round, self.seconds = int(saved["round"]), float(saved["seconds"])
        self._play.labels = saved.get("labels")
        self.monitor.seconds = float(saved["evaluation_seconds"])
        self.network.bytes_sent[:] = saved["bytes_sent"].numpy()

    def restore_histories(self, histories: Sequence[Sequence[Snapshot]]) -> None:
        """Replace the snapshots, trial by trial, by those of another session of the same settings."""
        self.monitor.restore(histories)

    def advance(self) -> None:
        """Play one round, and take a snapshot of the models if one is due."""
        started = time.perf_counter()
        if isinstance(self.real_oracle, PrivateOracle):
            self.real_oracle.leave_out(self._absences.left_out(self.round) | self.left_out)
        self._play.advance()
        self.seconds += time.perf_counter() - started
        if self.round % self.monitor.schedule.every == 0 or self.finished:
            self.take_snapshot()

    def take_snapshot(self, *, whole: bool = False) -> None:
        """Score the models as they are, and warn once if they are not finite.

        All validation records are scored after the last round or where `whole` asks for it, and a sample of them otherwise.
        """
        if not self._diverged and not bool(self.state.theta.isfinite().all()):
            self._diverged = True
            log.warning(
                "the agents' models have not been finite since round %d or before; try a smaller lr", self.round
            )
        asked, labels = self.oracle.queries, self._play.labels
        self.monitor.take_snapshot(self.state.theta, self.round, asked, labels=labels, whole=whole or self.finished)

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
                plan=self._hosted_plans[trial],
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

        A rule that makes more queries than were counted may do so because of the answers; it is charged its whole allowance.
        """
        private = self.plan.privacy is not None
        needed = self.cost.queries if private else 0
        as_counted = self.finished and (not private or self.oracle.queries == needed)
        for account in self.accounts:
            account.close(finished=as_counted and account.spent >= needed)
        if isinstance(self.real_oracle, PrivateOracle | TeacherOracle):
            self.real_oracle.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _set_pool_aside(self) -> None:
        """Take the public records that teachers are asked about out of those that models are scored on."""
        if self.cost.ballot is None:
            return
        if self._absences:
            raise InvalidInput("an agent that is away cannot ask its teachers in the first round; leave out absences")
        data = self.training.data
        asked = data.dataset.with_pool(self.cost.ballot.records)
        self.training = replace(self.training, data=replace(data, dataset=asked))

    def _labelled_gradient(self, device: torch.device) -> LabelledGradient:
        """Return what students learn from: the public records that were set aside, if there are any."""
        data = self.training.data.dataset
        if self.cost.ballot is None or data.pool is None:
            return no_labelled_gradient
        return LabelledPool(self.model, data.pool, data.prepare, device).gradient

    def _make_monitor(self) -> Monitor:
        data = self.training.data
        work = Work(
            rounds=self.training.total_rounds,
            trained=self._trained_records(),
            agents=self.hosted.total,
            validation=0 if data.dataset.validation is None else len(data.dataset.validation),
        )
        schedule = plan_snapshots(**work, every=self.training.evaluate_every)
        self.scored_share = scored_share(schedule, **work)
        return Monitor(self.model, data, self.network, self.runtime.gather, schedule)

    def _trained_records(self) -> float:
        """Return how many records all agents train on, students at most: what scoring is measured against."""
        if self.cost.ballot is not None:
            return float(self.training.rounds * self.cost.ballot.answers * self.hosted.total)
        return self.cost.queries * sum(self.plan.lot_sizes)

    def _open_own_accounts(self) -> list[Account]:
        """Open an account for each trial: together where all make the same queries, otherwise one after another, and all or none."""
        owners = self.training.data.owners
        first, *others = self._hosted_plans
        if all(plan is first or plan.mechanisms == first.mechanisms for plan in others):
            return self.open_accounts(owners, first)
        opened: list[Account] = []
        try:
            for run, plan in zip(self.runs, self._hosted_plans, strict=True):
                opened += self.open_accounts(owners, plan, [run])
        except BaseException:
            for account in opened:
                account.close(finished=False)
            raise
        return opened

    def open_accounts(self, owners: Sequence[str], plan: Plan, runs: Sequence[str] | None = None) -> list[Account]:
        """Open the accounts of this session's runs for these owners by a plan of theirs; a run that does not fit its budget is refused.

        `runs` are some of the session's runs, all unless given.
        """
        training = self.training
        whose: dict[str, Any] = {
            "runs": self.runs if runs is None else runs,
            "owners": owners,
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
