"""Plays a session and keeps it on disk, so that it can be resumed after any failure and no round queries the data twice.

The order of writes ensures that: the ledger has a query before its answer leaves the oracle, the log of answers has the
answer before the algorithm sees it, and a checkpoint is whole before the answers that it replaces are dropped. A token,
chosen at random, is in the ledger, the plan, the checkpoint and the log: files of another run are refused.
"""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from tacit.errors import InvalidInput, StorageError
from tacit.models.hashing import models_sha256
from tacit.privacy import Account, Budget, DurableAccount, DurableLedger, Observer
from tacit.privacy.charges import charges_of
from tacit.privacy.guarantees import terms
from tacit.privacy.mechanisms import RECORD
from tacit.privacy.observers import EVERYBODY
from tacit.privacy.stated_epsilons import state_epsilon
from tacit.runs.answers import AnswerLog, RecordingOracle
from tacit.runs.budgeted import BudgetedLedger
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.checks import last_check
from tacit.runs.config import RunConfig
from tacit.runs.describe import plan_event, snapshot_event, snapshot_of, summary_facts
from tacit.runs.environment import machine_of
from tacit.runs.event_types import CheckpointEvent, FinishEvent, ResumeEvent, now
from tacit.runs.folder import RunFolder
from tacit.runs.models import save_models
from tacit.runs.python_config import AnyConfig
from tacit.runs.python_training import maker
from tacit.runs.recorded_parts import the_graph
from tacit.runs.resume_checks import (
    check_charges,
    check_checkpoint_is_ours,
    check_same_data,
    check_same_graph,
    check_same_keys,
    check_same_schema,
    check_same_settings,
    check_token,
    check_unfinished,
    needs_others,
)
from tacit.runs.resuming import how_to_load
from tacit.runs.team import Alone, Holdings, Team
from tacit.runs.tensorboard import Board
from tacit.training.preparation import declared_sizes
from tacit.training.results import Result, Snapshot
from tacit.training.session import Session
from tacit.training.settings import Training

Say = Callable[[str], None]
Make = Callable[[Say], Training]
"""Makes what a run trains, except its name and ledger, and says what it is doing."""


def _say_nothing(step: str) -> None:
    """Report nothing."""


class Runner:
    """A run on disk, being played. Make one with `start` or `resume`, and close it."""

    def __init__(
        self,
        folder: RunFolder,
        config: AnyConfig,
        make: Make,
        *,
        fresh: bool,
        budget: Budget | None,
        on_step: Say,
        team: Team | None = None,
    ) -> None:
        self.folder, self.config, self.team = folder, config, team or Alone()
        self._fresh = fresh
        self._resources = ExitStack()
        try:
            self._resources.enter_context(folder.locked())
            path = folder.ledger_file
            if isinstance(self.team, Alone) and folder.shards_file.exists():
                raise needs_others(folder.name)
            self.ledger = DurableLedger(path) if budget is None else BudgetedLedger(path, budget)
            self._resources.callback(self.ledger.close)
            if not fresh:
                check_same_settings(folder, config)
            training = replace(make(on_step), name=folder.name, ledger=self.ledger)
            if not fresh and (plan := self.folder.events().plan) is not None:
                training = replace(training, compile=plan.compiled)
                held, sizes = training.data, training.sizes
                check_same_data(folder.name, plan, held, declared_sizes(held, sizes, held.agents, training.unit))
                check_same_keys(plan, training.cancelling, config.keys)
            self._graph, everyone = the_graph(training), training.data
            self._owners = tuple(everyone.owners)
            training = self.team.divide(training, folder, fresh=fresh)
            on_step("calibrating noise" if config.private else "preparing models")
            self.session = Session(training, self.team.runtime, accounts=self._charged_accounts)
            self._holdings = Holdings.of(everyone)  # after a session has checked the records
            self._logged = 0  # snapshots that are in events.jsonl
            self._shown = 0  # private diagnostics that are in their file
            self._board: Board | None = None
            self._token = check_token(folder, self.account)
            if fresh:
                self._log_plan()
                if config.private and (checked := last_check(folder.path.parent, config)) is not None:
                    folder.log(replace(checked, time=now()))
                self._record(AnswerLog(folder.answers_file(0), self._token), answered=0)
                self.team.restore(None)
            else:
                self._restore()
            if config.tensorboard:
                resumed_at = None if fresh else self.session.round
                self._board = Board(folder.board_folder, self.epsilon_at, self._terms, resumed_at=resumed_at)
                self._resources.callback(self._board.close)
        except BaseException:
            if fresh and hasattr(self, "account"):
                self.account.close(finished=False)
            self._resources.close()
            raise

    @staticmethod
    def start(
        runs: Path,
        name: str,
        config: AnyConfig,
        *,
        make: Make | None = None,
        budget: Budget | None = None,
        on_step: Say = _say_nothing,
        team: Team | None = None,
    ) -> "Runner":
        """Begin a new run in a folder of its own. If it cannot begin, no folder is left behind.

        `budget` is stored in the ledger and bounds what all runs there spend together. `on_step` is called with what is
        being done. `make` makes the training where the configuration alone cannot. `team` are the processes that play it together.
        """
        if isinstance(config, RunConfig):
            config = config.pinned()
        folder = RunFolder.create(runs, name, config, budget)
        try:
            make = make or maker(config, folder.path)
            return Runner(folder, config, make, fresh=True, budget=budget, on_step=on_step, team=team)
        except BaseException:
            if not folder.events_file.exists():
                folder.remove()
            raise

    @staticmethod
    def resume(
        path: Path,
        *,
        given: Mapping[str, Any] | None = None,
        on_step: Say = _say_nothing,
        team: Team | None = None,
    ) -> "Runner":
        """Resume a run that stopped before its end; `given` are objects of a run from Python that cannot be made again."""
        folder = RunFolder.find(path)
        check_unfinished(folder)
        if not folder.ledger_file.exists():
            raise StorageError(f"the ledger {folder.ledger_file} is missing; without it, no query may be made")
        config = folder.config()
        if (plan := folder.events().plan) is not None and plan.site is not None:
            raise InvalidInput(
                f"run {folder.name!r} is one site's part in a run between peers; continue with `tacit peer run`"
            )
        # A run that was killed before it opened its account or wrote its plan has made no query: it begins now.
        began = bool(folder.events()) or _account_is_open(folder)
        make = maker(config, path, given)
        budget = None if began else folder.budget()
        return Runner(folder, config, make, fresh=not began, budget=budget, on_step=on_step, team=team)

    def play(self, *, stop: Callable[[], bool], on_round: Callable[["Runner"], None] = lambda _: None) -> Result | None:
        """Play to the end and return the result, or until `stop()` is true after a round, and return None."""
        session, every = self.session, self.config.checkpoint_every
        self._log_snapshots()
        while not session.finished:
            self.team.advance()
            session.advance()
            self._log_snapshots()
            on_round(self)
            if session.round % every == 0 or session.finished or stop():
                self.checkpoint()
                if not session.finished and stop():
                    self.team.end(finished=False)
                    return None
        return self._finish()

    def checkpoint(self) -> None:
        """Put the state on disk, then drop the answers that went into it."""
        session, before = self.session, self._oracle.log
        self.team.save()
        sha256 = Checkpoint(
            fingerprint=self.config.fingerprint,
            token=self._token,
            tensors=session.state_dict(),
        ).save(self.folder.checkpoint_file)
        after = self.folder.answers_file(self._oracle.queries)
        if after != before.path:
            before.close()
            self._oracle.log = AnswerLog(after, self._token)
            before.path.unlink(missing_ok=True)
        self.team.commit()
        self.folder.log(CheckpointEvent(time=now(), round=session.round, sha256=sha256))
        self._anchor()

    @property
    def lost_queries(self) -> int:
        """How many queries were charged whose answers a crash lost."""
        return self.account.spent - self._oracle.on_record if self.config.private else 0

    @property
    def bytes_sent(self) -> int:
        """What all agents have sent so far. Between snapshots, that of agents hosted elsewhere is estimated from progress here."""
        session = self.session
        here, planned = int(session.network.bytes_sent.sum()), int(session.cost.bytes_sent.sum())
        last = session.monitor.histories[0][-1]
        if last.round == session.round:
            return int(last.bytes_sent.sum())
        return here + round(self.team.sent_elsewhere * here / planned) if planned else here

    @property
    def protected(self) -> str:
        """Who is protected, in a word: a record, or whoever has several."""
        unit = self.session.training.unit
        return RECORD if unit is None else unit.name

    @property
    def _terms(self) -> str:
        """What every ε of the run is stated with; nothing for a run without privacy."""
        plan = self.session.plan
        if plan.privacy is None:
            return ""
        words = terms(plan.privacy.delta, plan.privacy.adjacency, plan.privacy.accountant)
        return f"per {self.protected} at {words}, against {plan.observer}"

    def epsilon(self, queries: int | None = None, observer: Observer | None = None) -> float | None:
        """Derive the highest ε of any agent from the run's account in the ledger; None for a run without privacy.

        It is that of what is charged or, if `queries` is given, of that many queries. It holds against `observer`, by
        default the planned one.
        """
        plan = self.session.plan
        if plan.privacy is None:
            return None
        return self.account.largest_epsilon(
            delta=plan.privacy.delta,
            adjacency=plan.privacy.adjacency,
            accountant=plan.privacy.accountant,
            queries=queries,
            observer=plan.observer if observer is None else observer,
        )[1]

    def epsilon_at(self, snapshot: Snapshot, observer: Observer | None = None) -> float | None:
        """Derive ε, as `epsilon` does, of all queries that were made until a snapshot, lost ones too."""
        return self.epsilon(snapshot.queries + self.lost_queries, observer)

    def state_epsilon_at(self, snapshot: Snapshot) -> str | None:
        """State ε at a snapshot in words: against the planned observer and, with masks, against everybody else together."""
        plan = self.session.plan
        if plan.privacy is None:
            return None
        found = {each.key: self.epsilon_at(snapshot, each) or 0.0 for each in (plan.observer, EVERYBODY)}
        privacy = plan.privacy
        words = terms(privacy.delta, privacy.adjacency, privacy.accountant)
        return f"{state_epsilon(self.protected, plan.observer, found)} at {words}"

    def close(self) -> None:
        """Release the folder. An unfinished run keeps its allowance in the ledger."""
        if hasattr(self, "_oracle"):
            self._oracle.log.close()
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _charged_accounts(self, session: Session) -> list[Account]:
        """Open or find the run's account, which is that of all agents, and return what the hosted ones are charged to."""
        self.team.check_plan(session.plan)
        self.account = self._open_account(session) if self._fresh else self._find_account()
        return [self.team.charged_account(self.account, self.account.token)]

    def _open_account(self, session: Session) -> DurableAccount:
        (account,) = session.open_accounts(self._owners, session.plan)
        assert isinstance(account, DurableAccount)
        self.folder.budget_file.unlink(missing_ok=True)  # the ledger has it, since the account was opened
        return account

    def _find_account(self) -> DurableAccount:
        """Return the run's account: open, or that of a run which was killed when all but its summary was done."""
        account = self.ledger.account(self.folder.name)
        return account if account is not None and account.state == "finished" else self.ledger.reopen(self.folder.name)

    def _record(self, log: AnswerLog, *, answered: int) -> None:
        """Put a recording oracle in front of the real one, with the answers that are on record already."""
        replay = log.read(torch.device(self.config.device))
        self.session.real_oracle.skip(answered + len(replay))
        self._oracle = RecordingOracle(self.session.real_oracle, log, replay, answered)
        self.session.wrap_oracle(lambda _: self._oracle)

    def _restore(self) -> None:
        session, folder = self.session, self.folder
        answered, round = 0, None
        if isinstance(self.team, Alone) and charges_of(folder.ledger_file, self._token):
            raise needs_others(folder.name)
        if (plan := folder.events().plan) is None:
            self._log_plan()  # it was killed before that
        else:
            check_same_graph(plan, self._graph, session.training.link_rounds, self.config.graph)
            check_same_schema(plan, session.schema)
        if folder.checkpoint_file.exists():
            saved = Checkpoint.load(folder.checkpoint_file)
            check_checkpoint_is_ours(folder, saved, self.config.fingerprint, self._token)
            session.load_state_dict(saved.tensors)
            answered, round = saved.answered, session.round
        self._record(AnswerLog(folder.answers_file(answered), self._token), answered=answered)
        on_record = self._oracle.on_record
        elsewhere = self.team.restore(round)
        while self.config.private and 0 <= self.lost_queries < elsewhere:
            self.account.spend()  # another process was charged for an answer that it lost
        lost = self.lost_queries
        charged = self.account.spent if self.config.private else session.cost.queries
        remaining = self.account.remaining if self.config.private else None
        check_charges(
            folder, on_record, lost, missing=session.cost.queries - on_record, charged=charged, remaining=remaining
        )
        events = folder.events()
        if seen := [snapshot_of(event) for event in events.snapshots if event.round <= session.round]:
            session.restore_histories([seen])
            self._logged = len(seen)
        lost -= events.lost_queries
        folder.log(ResumeEvent(time=now(), round=session.round, lost_queries=lost, machine=machine_of(session)))
        if folder.checkpoint_file.exists():
            sha256 = hashlib.sha256(folder.checkpoint_file.read_bytes()).hexdigest()
            if events.checkpoint is None or events.checkpoint.sha256 != sha256:  # killed before it logged that
                folder.log(CheckpointEvent(time=now(), round=session.round, sha256=sha256))
                self._anchor()

    def _log_plan(self) -> None:
        self.folder.log(plan_event(self.config, self.session, self._graph, self._token, self._holdings))
        self._anchor()

    def _anchor(self) -> None:
        """Write the head of the events to the ledger, so that its own head covers them."""
        self.ledger.anchor(self.folder.name, self.folder.events_head)

    def _log_snapshots(self) -> None:
        history = self.session.monitor.histories[0]
        for snapshot in history[self._logged :]:
            self.folder.log(snapshot_event(snapshot, self.session.seconds))
            if self._board is not None:
                self._board.write(snapshot)
        self._logged = len(history)
        for seen in (self.session.diagnostics or [])[self._shown :]:
            self.folder.log_private(seen._asdict())
            self._shown += 1

    def _finish(self) -> Result:
        if self.session.monitor.histories[0][-1].round != self.session.round:
            self.team.take_snapshot()
            self.session.take_snapshot()  # killed between its last checkpoint and its last snapshot
            self._log_snapshots()
        result = replace(
            self.session.results()[0],
            theta=self.team.collect(self.session.state.theta),
            sizes=self.session.sizes,
            plan=self.session.plan,
            owners=self._owners,
            folder=self.folder.path,
            loaded_by=how_to_load(self.folder.path, self.config),
        )
        save_models(self.folder.models_file, result)
        models = models_sha256(result.theta)
        self.folder.log(FinishEvent(time=now(), round=self.session.round, seconds=result.seconds, models_sha256=models))
        self._anchor()
        self.team.end(finished=True)
        self.session.close()  # before the summary, whose ε is that of a finished run
        ledger = self.ledger.head
        heads = {"ledger": ledger.hash, "ledger_rows": ledger.number, "events": self.folder.events_head}
        self.folder.summarise(summary_facts(self.config, result, heads))
        self._oracle.log.close()
        self._oracle.log.path.unlink(missing_ok=True)
        return result


def _account_is_open(folder: RunFolder) -> bool:
    with closing(DurableLedger(folder.ledger_file)) as ledger:
        account = ledger.account(folder.name)
        return account is not None and account.state == "open"
