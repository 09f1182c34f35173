"""Every other rank of a cluster: it plays and saves its own agents when rank 0 says so.

It asks in the same order of writes as rank 0: a query is in its file of charges before the answer leaves the oracle, the answer is on disk
before the rule sees it, and a state is on disk before what it replaces is dropped, which is when all ranks have saved theirs.
"""

import logging
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tacit.cluster.agreeing import facts_of, plan_facts
from tacit.cluster.commands import Command
from tacit.cluster.dividing import take_part
from tacit.cluster.group import Group
from tacit.errors import BudgetExceeded, InvalidInput, StorageError
from tacit.privacy import Account
from tacit.privacy.accounts import Line
from tacit.privacy.charges import ShardAccount
from tacit.runs.answers import AnswerLog, RecordingOracle
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.config import RunConfig
from tacit.runs.folder import RunFolder
from tacit.runs.python_training import maker
from tacit.training.session import Session

_PATIENCE = 60.0  # seconds until a network file system shows what another machine wrote


def _sees(folder: RunFolder, meeting: str) -> bool:
    """Return whether this process sees the folder that rank 0 writes to, and not one of the same name on another machine.

    There it would save its answers and charges where no later attempt finds them, and the same queries would be made again.
    """
    until = time.monotonic() + _PATIENCE
    while True:
        with suppress(OSError):
            if folder.meeting_file.read_text(encoding="utf-8") == meeting:
                return True
        if not folder.path.is_dir() or time.monotonic() > until:
            return False
        time.sleep(0.1)


class Follower:
    """One rank's agents of a run, being played."""

    def __init__(self, group: Group, config: RunConfig) -> None:
        self._group, self._config = group, config
        training = maker(config, Path())(lambda _: None)
        group.agree("ready", facts_of(config, training))
        begin = group.hear("begin")
        self._folder = RunFolder(Path(begin["folder"]))
        if not _sees(self._folder, begin["meeting"]):
            raise InvalidInput(
                f"this rank does not see the run's folder {self._folder.path}, where it saves its agents' states; put runs on a file "
                "system that all ranks share"
            )
        training = replace(training, name=self._folder.name)  # masks follow from it: all ranks need the same
        part, runtime = take_part(training, group, tuple(tuple(own) for own in begin["shards"]))
        self._token = ""
        self._session = Session(part, runtime, accounts=self._charged_accounts)
        self._restore()

    def play(self) -> None:
        """Do what rank 0 says until it ends the run."""
        session, rank = self._session, self._group.rank
        while True:
            command = self._group.next_command()
            if command == Command.ADVANCE:
                session.advance()
            elif command == Command.SAVE:
                self._save()
                self._group.wait_for_all()
            elif command == Command.COMMIT:
                self._commit()
            elif command == Command.SNAPSHOT:
                session.take_snapshot()
            elif command == Command.COLLECT:
                session.runtime.gather(session.state.theta)
            elif command in (Command.FINISH, Command.STOP):
                self._oracle.log.close()
                if command == Command.FINISH:
                    self._oracle.log.path.unlink(missing_ok=True)
                session.close()
                return
            else:
                raise StorageError(f"rank {rank} got command {command} from rank 0, which it does not know")

    def _charged_accounts(self, session: Session) -> list[Account]:
        """Open this rank's file of charges, once rank 0 has opened the run's account, which covers all agents."""
        self._group.tell(f"planned/{self._group.rank}", plan_facts(session.plan))
        self._token = self._group.hear("account")["token"]
        training, plan = session.training, session.plan.of(session.hosted.agents)
        data, private = training.data, plan.privacy is not None
        lines = tuple(
            Line(owner, data.dataset.name, data.partition, mechanism, training.is_release)
            for owner, mechanism in zip(data.owners, plan.mechanisms, strict=True)
        )
        ledger, allowed = self._folder.ledger_file, plan.queries if private else 1
        self._account = ShardAccount(ledger, self._token, self._group.rank, session.runs[0], lines, allowed)
        return [self._account]

    def _restore(self) -> None:
        """Continue from the checkpoint of the round that rank 0 names, and from the answers after it."""
        session, group, folder = self._session, self._group, self._folder
        round = group.hear("restore")["round"]
        answered = 0
        if round is not None:
            path = folder.rank_checkpoint_file(group.rank, round)
            saved = Checkpoint.load(path)
            if (saved.fingerprint, saved.token) != (self._config.fingerprint, self._token):
                raise StorageError(f"{path} belongs to another run or to other settings; it was left alone")
            session.load_state_dict(saved.tensors)
            answered = saved.answered
        self._drop_states(keep=round)
        log = AnswerLog(folder.rank_answers_file(group.rank, answered), self._token)
        replay = log.read(session.state.theta.device)
        session.real_oracle.skip(answered + len(replay))
        self._oracle = RecordingOracle(session.real_oracle, log, replay, answered)
        session.wrap_oracle(lambda _: self._oracle)
        lost = self._account.spent - self._oracle.on_record if self._config.private else 0
        missing = session.cost.queries - self._oracle.on_record
        if lost < 0 or missing < 0:
            raise StorageError(
                f"rank {group.rank} has {self._oracle.on_record} answers on disk, but {self._account.spent} queries in its file of charges: "
                "one of them is an older copy, or was changed. No query was made"
            )
        if self._config.private and self._account.remaining < missing:
            raise BudgetExceeded(
                f"{lost} answers of rank {group.rank} were charged and lost, and the {missing} queries still to make do not fit the "
                f"{self._account.remaining} that the run's budget has left. Nothing more was spent"
            )
        sent = session.cost.bytes_sent
        group.agree("restored", {"lost": lost, "sent": int(sent.max()), "all_sent": int(sent.sum())})

    def _save(self) -> None:
        session, folder = self._session, self._folder
        saved = Checkpoint(fingerprint=self._config.fingerprint, token=self._token, tensors=session.state_dict())
        saved.save(folder.rank_checkpoint_file(self._group.rank, session.round))

    def _commit(self) -> None:
        """Drop the state before, and the answers that went into the new one."""
        before = self._oracle.log
        after = self._folder.rank_answers_file(self._group.rank, self._oracle.queries)
        if after != before.path:
            before.close()
            self._oracle.log = AnswerLog(after, self._token)
            before.path.unlink(missing_ok=True)
        self._drop_states(keep=self._session.round)

    def _drop_states(self, keep: int | None) -> None:
        kept = None if keep is None else self._folder.rank_checkpoint_file(self._group.rank, keep)
        for path in self._folder.path.glob(f"ranks/{self._group.rank:04d}-checkpoint-*.safetensors"):
            if path != kept:
                path.unlink(missing_ok=True)


def follow(group: Group, config: RunConfig) -> None:
    """Play one rank other than the first. Its log is silent: rank 0 reports the same."""
    logging.getLogger("tacit").setLevel(logging.ERROR)
    Follower(group, config).play()
