"""Drives a session and keeps it on disk, so that it survives anything and never asks the data twice for one round.

The order of things makes it so: the ledger has a query before its answer leaves the oracle, the released log has the
answer before the algorithm sees it, and a checkpoint is whole before the answers that it replaces are dropped. A token,
made by chance, is in the ledger, the plan, the checkpoint and the log: files of another run are refused.
"""

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from tacit.config import RunConfig
from tacit.data import Schema
from tacit.errors import BudgetExceeded, InvalidInput, StorageError
from tacit.privacy import Budget, DurableAccount, DurableLedger
from tacit.results import Result
from tacit.runs.board import Board
from tacit.runs.budgeted import BudgetedLedger
from tacit.runs.checkpoint import Checkpoint, flatten, restore
from tacit.runs.checks import last_check
from tacit.runs.folder import RunFolder
from tacit.runs.released import RecordingOracle, ReleasedLog
from tacit.runs.telling import edges_of, plan_facts, snapshot_facts, snapshots, summary_facts
from tacit.session import Session

Say = Callable[[str], None]


def _say_nothing(step: str) -> None:
    """Tell nobody."""


class Runner:
    """A run on disk, being played. Make one with `start` or `resume`, and close it."""

    def __init__(
        self, folder: RunFolder, config: RunConfig, *, fresh: bool, budget: Budget | None, on_step: Say
    ) -> None:
        self.folder, self.config = folder, config
        self._resources = ExitStack()
        try:
            self._resources.enter_context(folder.locked())
            path = folder.ledger_file
            self.ledger = DurableLedger(path) if budget is None else BudgetedLedger(path, budget)
            self._resources.callback(self.ledger.close)
            if not fresh:
                self._check_settings()
            on_step("loading data")
            data = config.load_data()
            graph = config.load_graph(data.agents)
            plan = None if fresh else self._plan_on_record()
            compiled = None if plan is None else plan.get("compiled")
            training = config.training(name=folder.name, ledger=self.ledger, data=data, graph=graph, compiled=compiled)
            accounts = None if fresh else [self._account()]
            on_step("calibrating noise" if config.private else "preparing models")
            self.session = Session(training, accounts=accounts)
            self._graph = graph
            self._logged = 0  # snapshots that are in events.jsonl
            self._shown = 0  # private diagnostics that are in their file
            self._board: Board | None = None
            self._token = self._find_token()
            if fresh:
                self._log_plan()
                if config.private and (checked := last_check(folder.path.parent, config)) is not None:
                    folder.log("check", **checked)
                self._record(ReleasedLog(folder.released_file(0), self._token), answered=0)
            else:
                self._restore()
            if config.tensorboard:
                resumed_at = None if fresh else self.session.round
                self._board = Board(folder.board_folder, self.session.plan, resumed_at=resumed_at)
                self._resources.callback(self._board.close)
        except BaseException:
            if fresh and hasattr(self, "session"):
                self.session.close()
            self._resources.close()
            raise

    @staticmethod
    def start(
        runs: Path, name: str, config: RunConfig, *, budget: Budget | None = None, on_step: Say = _say_nothing
    ) -> "Runner":
        """Begin a new run in a folder of its own. If it cannot begin, no folder is left behind.

        `budget` is stored in the ledger and bounds what all runs there spend together. `on_step` is told what is
        being done.
        """
        folder = RunFolder.create(runs, name, config)
        try:
            return Runner(folder, config, fresh=True, budget=budget, on_step=on_step)
        except BaseException:
            if not folder.events_file.exists():
                for path in (folder.path / ".lock", folder.config_file):
                    path.unlink(missing_ok=True)
                folder.path.rmdir()
            raise

    @staticmethod
    def resume(path: Path, *, on_step: Say = _say_nothing) -> "Runner":
        """Go on with a run that stopped before its end."""
        folder = RunFolder.find(path)
        if folder.summary_file.exists():
            raise InvalidInput(f"run {folder.name!r} is finished; there is nothing to resume")
        if not folder.ledger_file.exists():
            raise StorageError(f"the ledger {folder.ledger_file} is missing; without it, nothing may be asked")
        config = folder.config()
        # Killed before it opened its account or told its plan, a run has asked nothing: it begins now.
        began = bool(folder.events()) or _account_is_open(folder)
        return Runner(folder, config, fresh=not began, budget=None, on_step=on_step)

    def play(self, *, stop: Callable[[], bool], on_round: Callable[["Runner"], None] = lambda _: None) -> Result | None:
        """Play to the end and return the result, or to the round after `stop()` says so and return nothing."""
        session, every = self.session, self.config.checkpoint_every
        self._log_snapshots()
        while not session.finished:
            session.advance()
            self._log_snapshots()
            on_round(self)
            if session.round % every == 0 or session.finished or stop():
                self.checkpoint()
                if not session.finished and stop():
                    return None
        return self._finish()

    def checkpoint(self) -> None:
        """Put the state on disk, then drop the answers that went into it."""
        session, before = self.session, self._oracle.log
        tensors = flatten(session.state)
        tensors["generator"] = session.generator.get_state()
        tensors["bytes_sent"] = torch.from_numpy(session.network.bytes_sent.copy())
        Checkpoint(
            fingerprint=self.config.fingerprint,
            token=self._token,
            round=session.round,
            answered=self._oracle.queries,
            seconds=session.seconds,
            tensors=tensors,
        ).save(self.folder.checkpoint_file)
        after = self.folder.released_file(self._oracle.queries)
        if after != before.path:
            before.close()
            self._oracle.log = ReleasedLog(after, self._token)
            before.path.unlink(missing_ok=True)
        self.folder.log("checkpoint", round=session.round)

    @property
    def lost_queries(self) -> int:
        """How many queries were charged whose answers a crash lost."""
        return self.session.accounts[0].spent - self._oracle.on_record if self.config.private else 0

    def close(self) -> None:
        """Let go of the folder. An unfinished run keeps its allowance in the ledger."""
        if hasattr(self, "_oracle"):
            self._oracle.log.close()
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _account(self) -> DurableAccount:
        """Return the run's account: open, or that of a run which was killed when all but its summary was done."""
        account = self.ledger.account(self.folder.name)
        return account if account is not None and account.state == "finished" else self.ledger.reopen(self.folder.name)

    def _record(self, log: ReleasedLog, *, answered: int) -> None:
        """Put the recording oracle before the real one, with the answers that are on record already."""
        replay = log.read(torch.device(self.config.device))
        self.session.real_oracle.skip(answered + len(replay))
        self._oracle = RecordingOracle(self.session.real_oracle, log, replay, answered)
        self.session.oracle = self._oracle

    def _check_settings(self) -> None:
        """Refuse settings that are not those the run began with."""
        plan = self._plan_on_record()
        if plan is not None and plan.get("fingerprint") != self.config.fingerprint:
            raise InvalidInput(
                f"{self.folder.config_file} was changed since the run began; put it back, or start a new run with it"
            )

    def _plan_on_record(self) -> dict[str, Any] | None:
        return next((event for event in self.folder.events() if event.get("event") == "plan"), None)

    def _find_token(self) -> str:
        """Return what tells this run from any other; the ledger knows it, and the plan must agree."""
        plan, account = self._plan_on_record(), self.session.accounts[0]
        assert isinstance(account, DurableAccount)
        if plan is None and account.spent:
            raise StorageError(
                f"{self.folder.events_file} has no plan, but {account.spent} queries of this run are on record; the run "
                "cannot go on without it"
            )
        if plan is not None and plan.get("token") != account.token:
            raise StorageError(f"{self.folder.events_file} belongs to another run than the one that the ledger knows")
        return account.token

    def _check_graph(self) -> None:
        """Refuse a graph that is not the one the run began with: a file may have changed."""
        plan = self._plan_on_record()
        if plan is not None and (plan["edges"] != edges_of(self._graph) or plan.get("weights") != self._weights()):
            raise InvalidInput(f"the graph {self.config.graph!r} was changed since the run began; put it back")

    def _check_schema(self) -> None:
        """Refuse to go on under another declaration of what a record may be."""
        plan = self._plan_on_record()
        if plan is not None and plan.get("schema") != self.session.schema.to_dict():
            began = Schema.of(plan["schema"]) if "schema" in plan else "no schema"
            raise InvalidInput(
                f"the run began with {began}, and its data and model now give {self.session.schema}; put back what was "
                "changed, or start a new run"
            )

    def _restore(self) -> None:
        session, folder = self.session, self.folder
        answered = 0
        self._check_graph()
        self._check_schema()
        if self._plan_on_record() is None:
            self._log_plan()  # it was killed before it could say so
        if folder.checkpoint_file.exists():
            saved = Checkpoint.load(folder.checkpoint_file)
            if saved.fingerprint != self.config.fingerprint:
                raise InvalidInput(f"{folder.checkpoint_file} belongs to other settings than {folder.config_file}")
            if saved.token != self._token:
                raise StorageError(f"{folder.checkpoint_file} belongs to another run; it was left alone")
            session.state = restore(session.state, saved.tensors)
            session.generator.set_state(saved.tensors["generator"])
            session.network.bytes_sent[:] = saved.tensors["bytes_sent"].numpy()
            session.round, session.seconds = saved.round, saved.seconds
            answered = saved.answered
        self._record(ReleasedLog(folder.released_file(answered), self._token), answered=answered)
        on_record = self._oracle.on_record
        lost = self.lost_queries
        missing = session.cost.queries - on_record
        if lost < 0 or missing < 0:
            charged = session.accounts[0].spent if self.config.private else session.cost.queries
            raise StorageError(
                f"{on_record} answers of run {folder.name!r} are on disk, but only {charged} queries on record: the ledger "
                f"{folder.ledger_file} is not the one that the run was charged to, or an older copy of it. Nothing was asked"
            )
        if self.config.private and session.accounts[0].remaining < missing:
            raise BudgetExceeded(
                f"{lost} answers of run {folder.name!r} were charged and lost; the {missing} queries still to make do not "
                f"fit the {session.accounts[0].remaining} that its budget has left. Nothing more was spent"
            )
        if looks := snapshots(folder.events(), until=session.round):
            session.watch.histories[0][:] = looks
            self._logged = len(looks)
        told = sum(event.get("lost_queries", 0) for event in folder.events() if event.get("event") == "resume")
        folder.log("resume", round=session.round, lost_queries=lost - told)

    def _log_plan(self) -> None:
        own = {} if (weights := self._weights()) is None else {"weights": weights}
        self.folder.log("plan", token=self._token, **plan_facts(self.config, self.session, self._graph), **own)

    def _weights(self) -> list[float] | None:
        """Return the weights that the graph's file gives its links, in their order; None if it gives none."""
        if self._graph is None or (weights := self._graph.graph.get("weights")) is None:
            return None
        return [float(weights[i, j]) for i, j in self._graph.edges]

    def _log_snapshots(self) -> None:
        history = self.session.watch.histories[0]
        for snapshot in history[self._logged :]:
            self.folder.log("snapshot", **snapshot_facts(snapshot), seconds=self.session.seconds)
            if self._board is not None:
                self._board.write(snapshot)
        self._logged = len(history)
        for seen in (self.session.diagnostics or [])[self._shown :]:
            self.folder.log_private(seen._asdict())
            self._shown += 1

    def _finish(self) -> Result:
        if self.session.watch.histories[0][-1].round != self.session.round:
            self.session.look()  # killed between its last checkpoint and its last look
            self._log_snapshots()
        result = self.session.results()[0]
        self.folder.log("finish", round=self.session.round, seconds=result.seconds)
        self.session.close()  # before the summary, whose ε is that of a finished run
        self.folder.summarise(summary_facts(self.config, result))
        self._oracle.log.close()
        self._oracle.log.path.unlink(missing_ok=True)
        return result


def _account_is_open(folder: RunFolder) -> bool:
    with closing(DurableLedger(folder.ledger_file)) as ledger:
        account = ledger.account(folder.name)
        return account is not None and account.state == "open"
