"""Drives a session and keeps it on disk, so that it survives anything and never asks the data twice for one round.

The order of things makes it so: the ledger has a query before it is made, the released log has its answer before the
algorithm sees it, and a checkpoint is whole before the answers that it replaces are dropped.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from tacit.config import RunConfig
from tacit.errors import BudgetExceeded, InvalidInput, StorageError
from tacit.privacy import DurableLedger
from tacit.results import Result, Snapshot
from tacit.runs.board import Board
from tacit.runs.checkpoint import Checkpoint, flatten, restore
from tacit.runs.folder import RunFolder
from tacit.runs.released import RecordingOracle, ReleasedLog
from tacit.session import Session


class Runner:
    """A run on disk, being played. Make one with `start` or `resume`, and close it."""

    def __init__(self, folder: RunFolder, config: RunConfig, *, fresh: bool) -> None:
        self.folder, self.config = folder, config
        self._resources = ExitStack()
        try:
            self._resources.enter_context(folder.locked())
            self._ledger = DurableLedger(folder.ledger_file)
            self._resources.callback(self._ledger.close)
            if not fresh:
                self._check_settings()
            data = config.load_data()
            graph = config.load_graph(data.agents)
            ledger = self._ledger if config.private else None
            training = config.training(name=folder.name, ledger=ledger, data=data, graph=graph)
            accounts = None if fresh or not config.private else [self._ledger.reopen(folder.name)]
            self.session = Session(training, accounts=accounts)
            self._graph = graph
            self._logged = 0  # snapshots that are in events.jsonl
            self._shown = 0  # private diagnostics that are in their file
            self._board: Board | None = None
            if fresh:
                self._log_plan()
                self._record(ReleasedLog(folder.released_file(0)), answered=0)
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
    def start(runs: Path, name: str, config: RunConfig) -> "Runner":
        """Begin a new run in a folder of its own. If it cannot begin, no folder is left behind."""
        folder = RunFolder.create(runs, name, config)
        try:
            return Runner(folder, config, fresh=True)
        except BaseException:
            if not folder.events_file.exists():
                for path in (folder.path / ".lock", folder.config_file):
                    path.unlink(missing_ok=True)
                folder.path.rmdir()
            raise

    @staticmethod
    def resume(path: Path) -> "Runner":
        """Go on with a run that stopped before its end."""
        folder = RunFolder.find(path)
        if folder.summary_file.exists():
            raise InvalidInput(f"run {folder.name!r} is finished; there is nothing to resume")
        if not folder.ledger_file.exists():
            raise StorageError(f"the ledger {folder.ledger_file} is missing; without it, nothing may be asked")
        return Runner(folder, folder.config(), fresh=False)

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
            round=session.round,
            answered=self._oracle.queries,
            seconds=session.seconds,
            tensors=tensors,
        ).save(self.folder.checkpoint_file)
        after = self.folder.released_file(self._oracle.queries)
        if after != before.path:
            before.close()
            self._oracle.log = ReleasedLog(after)
            before.path.unlink(missing_ok=True)
        self.folder.log("checkpoint", round=session.round)

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

    def _record(self, log: ReleasedLog, *, answered: int) -> None:
        """Put the recording oracle before the real one, with the answers that are on record already."""
        replay = log.read(torch.device(self.config.device))
        self.session.real_oracle.skip(answered + len(replay))
        self._oracle = RecordingOracle(self.session.real_oracle, log, replay, answered)
        self.session.oracle = self._oracle

    def _check_settings(self) -> None:
        """Refuse settings that are not those the run began with."""
        began = [event.get("fingerprint") for event in self.folder.events() if event["event"] == "plan"]
        if began and began[0] != self.config.fingerprint:
            raise InvalidInput(
                f"{self.folder.config_file} was changed since the run began; put it back, or start a new run with it"
            )

    def _restore(self) -> None:
        session, folder = self.session, self.folder
        answered = 0
        if not folder.events():
            self._log_plan()  # it was killed before it could say so
        if folder.checkpoint_file.exists():
            saved = Checkpoint.load(folder.checkpoint_file)
            if saved.fingerprint != self.config.fingerprint:
                raise InvalidInput(f"{folder.checkpoint_file} belongs to other settings than {folder.config_file}")
            session.state = restore(session.state, saved.tensors)
            session.generator.set_state(saved.tensors["generator"])
            session.network.bytes_sent[:] = saved.tensors["bytes_sent"].numpy()
            session.round, session.seconds = saved.round, saved.seconds
            answered = saved.answered
        self._record(ReleasedLog(folder.released_file(answered)), answered=answered)
        on_record = self._oracle.on_record
        lost = session.accounts[0].spent - on_record if session.accounts else 0
        missing = session.cost.queries - on_record
        if session.accounts and session.accounts[0].remaining < missing:
            raise BudgetExceeded(
                f"{lost} answers of run {folder.name!r} were charged and lost; the {missing} queries still to make do not "
                f"fit the {session.accounts[0].remaining} that its budget has left. Nothing more was spent"
            )
        self._logged = len(session.watch.histories[0])
        told = sum(event["lost_queries"] for event in folder.events() if event["event"] == "resume")
        folder.log("resume", round=session.round, lost_queries=lost - told)

    def _log_plan(self) -> None:
        session = self.session
        data, plan = session.training.data, session.plan
        promise = plan.privacy
        self.folder.log(
            "plan",
            fingerprint=self.config.fingerprint,
            algorithm=type(session.training.algorithm).__name__,
            dataset=data.data.name,
            agents=data.agents,
            rounds=session.training.rounds,
            edges=[] if self._graph is None else [list(map(int, edge)) for edge in self._graph.edges],
            counts=data.counts.tolist(),
            sizes=list(data.sizes),
            owners=list(data.owners),
            sample_rates=list(plan.sample_rates),
            lot_sizes=list(plan.lot_sizes),
            clips=list(plan.clips) if promise else None,
            noise_multipliers=list(plan.noise_multipliers),
            queries=plan.queries,
            private=promise is not None,
            epsilon=[promise.epsilon] * data.agents if promise and promise.epsilon else None,
            delta=promise.delta if promise else None,
            adjacency=promise.adjacency if promise else None,
            accountant=promise.accountant if promise else None,
            release=session.training.is_release,
            params=session.model.size,
        )

    def _log_snapshots(self) -> None:
        history = self.session.watch.histories[0]
        for snapshot in history[self._logged :]:
            self.folder.log("snapshot", **_facts(snapshot), seconds=self.session.seconds)
            if self._board is not None:
                self._board.write(snapshot)
        self._logged = len(history)
        for seen in (self.session.diagnostics or [])[self._shown :]:
            self.folder.log_private(seen._asdict())
            self._shown += 1

    def _finish(self) -> Result:
        result = self.session.results()[0]
        privacy = result.plan.privacy
        accuracy = result.history[-1].accuracy
        spent = [guarantee.epsilon for guarantee in result.guarantees()]
        self.folder.log("finish", round=self.session.round, seconds=result.seconds)
        self.folder.summarise(
            {
                "algorithm": self.config.algorithm,
                "dataset": self.config.dataset,
                "accuracy_mean": None if accuracy is None else float(accuracy.mean()),
                "accuracy_min": None if accuracy is None else float(accuracy.min()),
                "accuracy_max": None if accuracy is None else float(accuracy.max()),
                "accuracy_per_agent": None if accuracy is None else accuracy.tolist(),
                "consensus_distance": result.consensus_distance,
                "epsilon_per_agent": spent or None,
                "delta": privacy.delta if privacy else None,
                "adjacency": privacy.adjacency if privacy else None,
                "accountant": privacy.accountant if privacy else None,
                "release": result.release,
                "rounds": self.session.round,
                "bytes_sent": result.bytes_sent,
                "seconds": result.seconds,
                "samples_per_second": result.samples_per_second,
            }
        )
        self.session.close()
        self._oracle.log.close()
        self._oracle.log.path.unlink(missing_ok=True)
        return result


def _facts(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "round": snapshot.round,
        "queries": snapshot.queries,
        "accuracy": _listed(snapshot.accuracy),
        "loss": _listed(snapshot.loss),
        "consensus_distance": snapshot.consensus_distance,
        "bytes_sent": _listed(snapshot.bytes_sent),
    }


def _listed(values: "np.ndarray[Any, Any] | None") -> list[float] | None:
    return None if values is None else values.tolist()
