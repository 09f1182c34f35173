"""The folder of a run at one site: the same files as `tacit train` writes, with this site's own view in them.

The journal of the protocol, `journal.sqlite`, lies beside them and takes the place of checkpoints: it has every round's state, answers and messages.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tacit.data import AgentData
from tacit.errors import InvalidInput, StorageError
from tacit.io.files import write_atomically
from tacit.models.hashing import models_sha256
from tacit.peer.agreement.signed import Chain
from tacit.peer.preparation import config_of_site
from tacit.peer.protocol.notes import Notes
from tacit.peer.records import keep_fingerprint
from tacit.peer.settings import SiteSettings
from tacit.privacy import Account, DurableAccount, DurableLedger
from tacit.privacy.observers import Observer
from tacit.report import RecordedRun, write_report
from tacit.runs.describe import plan_event, snapshot_event, snapshot_of, summary_facts
from tacit.runs.environment import machine_of
from tacit.runs.event_types import (
    FinishEvent,
    LinksEvent,
    LogEvent,
    NoticeEvent,
    ResumeEvent,
    SiteView,
    now,
)
from tacit.runs.events import Events
from tacit.runs.folder import RunFolder
from tacit.runs.models import save_models
from tacit.runs.resuming import how_to_load
from tacit.training.results import Result
from tacit.training.session import Session

JOURNAL = "journal.sqlite"


class SiteRun:
    """A run on disk at one site. Opens a new folder, or the one that is there; close it."""

    def __init__(self, runs: Path, chain: Chain, agent: int, settings: SiteSettings) -> None:
        agreement = chain.versions[0]
        self.chain, self.agent = chain, agent
        self.config = config_of_site(agreement, settings)
        self._resources = ExitStack()
        try:
            path = runs / agreement.run_name
            self.folder = RunFolder.find(path) if path.exists() else RunFolder.create(runs, path.name, self.config)
            self._resources.enter_context(self.folder.locked())
            if self.folder.config().fingerprint != self.config.fingerprint:
                raise InvalidInput(
                    f"{self.folder.config_file} is not that of this agreement and data set; use another folder of runs"
                )
            self.ledger = DurableLedger(self.folder.ledger_file)
            self._resources.callback(self.ledger.close)
        except BaseException:
            self._resources.close()
            raise
        self._session: Session | None = None
        self._logged = 0

    @property
    def journal_file(self) -> Path:
        """Where the protocol keeps what survives a crash."""
        return self.folder.path / JOURNAL

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.folder.summary_file.exists()

    @property
    def session(self) -> Session:
        """The session that was begun."""
        assert self._session is not None
        return self._session

    def accounts(self) -> list[Account] | None:
        """Return the account that this run has in the ledger, to continue with it; None if it has none yet."""
        account = self.ledger.account(self.folder.name)
        if account is None:
            return None
        return [account if account.state == "finished" else self.ledger.reopen(self.folder.name)]

    def check_ledger(self, notes: Notes) -> None:
        """Refuse a ledger or events that are older than the journal, or the reverse. Call it before anybody is told anything."""
        before, account, file = self.folder.events(), self.ledger.account(self.folder.name), self.folder.ledger_file
        if before.plan is None:
            if notes.times_asked or (account is not None and account.spent):
                raise StorageError(
                    f"{self.folder.events_file} has no plan, but queries of this run were made; the run cannot continue without it"
                )
            return
        if account is None:
            raise StorageError(
                f"the ledger {file} does not know run {self.folder.name!r}, which has begun: it is another ledger, or an older copy. "
                "Put back the newest one. Nothing was asked"
            )
        self._check_journal(notes, account, before)
        self._count_lost(account, notes.count_answers(), before)

    def _check_journal(self, notes: Notes, account: Account, before: Events) -> None:
        """Refuse a journal that lacks queries. They are in it before they are charged, and long before their round is in the events."""
        assert before.plan is not None
        rounds, begun = before.plan.rounds, notes.times_asked
        unknown = sorted(played for played in before.links if played <= rounds and not notes.has_begun(played - 1))
        if account.spent > begun or unknown:
            lacks = f"round {unknown[0]}, which the events have" if unknown else f"{account.spent - begun} of them"
            raise StorageError(
                f"the ledger has {account.spent} queries of this run, and the journal {self.journal_file} lacks {lacks}: it is an older copy, or "
                "another one, and would answer again under masks that were used. Put back the newest one. Nothing was asked"
            )

    def _count_lost(self, account: Account, on_record: int, before: Events) -> int:
        """Return how many queries were charged since the last resume and have no answer; refuse a ledger that lacks charges."""
        lost = account.spent - on_record - before.lost_queries if self.config.private else 0
        if lost < 0:
            raise StorageError(
                f"the ledger has {account.spent} queries of this run, but {on_record + before.lost_queries} were answered or lost: "
                "the ledger is older than the journal. Put back the newest one. Nothing was asked"
            )
        return lost

    def begin(self, session: Session, data: AgentData, *, on_record: int) -> None:
        """Write the plan, or that the run is resumed. `data` are all records of the site, `on_record` answers of earlier processes are in the journal."""
        self._session = session
        account, before = session.accounts[0], self.folder.events()
        assert isinstance(account, DurableAccount)
        if before.plan is not None and before.plan.token != account.token:
            raise InvalidInput(f"{self.folder.events_file} belongs to another run than the one in the ledger")
        lost = self._count_lost(account, on_record, before)
        if before.plan is None:
            agreement = self.chain.versions[0]
            keep_fingerprint(self.folder, data)
            write_atomically(self.folder.agreement_file, agreement.canonical.encode() + b"\n")
            view = SiteView(
                agent=self.agent,
                members=tuple(member.name for member in agreement.members),
                neighbors=tuple(agreement.links_of(self.agent)),
                agreement=self.chain.run_id,
            )
            self._log(plan_event(self.config, session, None, account.token, site=view))
            self.ledger.anchor(self.folder.name, self.folder.events_head)
        else:
            self._log(ResumeEvent(time=now(), round=session.round, lost_queries=lost, machine=machine_of(session)))
            if seen := [snapshot_of(event) for event in before.snapshots if event.round <= session.round]:
                session.restore_histories([seen])
                self._logged = len(seen)
        self.note_snapshots()

    def note_links(self, played: int, used: Sequence[int], skipped: Sequence[int]) -> None:
        """Write which links the last round used."""
        self._log(LinksEvent(time=now(), round=played, used=tuple(used), skipped=tuple(skipped)))

    def note_rounds_before(self, notes: Notes) -> None:
        """Write the links of rounds that are complete in the journal, where the last process ended before it had written them."""
        known = self.folder.events().links
        for round in range(notes.position.round):
            if notes.has_begun(round) and round + 1 not in known:
                self.note_links(round + 1, *notes.links_in(round))

    def notice(self, notice: NoticeEvent) -> None:
        """Write what was noticed about a neighbour; before the plan there is nowhere to write it, and the end is the last line."""
        if self._session is not None and not self.finished:
            self._log(notice)

    def note_snapshots(self) -> int:
        """Write the snapshots that are new, and return how many there were."""
        history = self.session.monitor.histories[0]
        new = history[self._logged :]
        for snapshot in new:
            self._log(snapshot_event(snapshot, self.session.seconds))
        self._logged = len(history)
        return len(new)

    def epsilon(self, queries: int, observer: Observer | None = None) -> float | None:
        """Derive ε of so many queries from the run's account in the ledger, against the planned observer unless another is given."""
        plan = self.session.plan
        if plan.privacy is None:
            return None
        account, terms = self.session.accounts[0], plan.privacy
        return account.largest_epsilon(
            delta=terms.delta,
            adjacency=terms.adjacency,
            accountant=terms.accountant,
            queries=queries,
            observer=observer or plan.observer,
        )[1]

    def finish(self) -> Result:
        """Write the model, the summary and the report of a run whose rounds are all played."""
        session, folder = self.session, self.folder
        if session.monitor.histories[0][-1].round != session.round:
            session.take_snapshot()
        self.note_snapshots()
        result = replace(session.results()[0], folder=folder.path, loaded_by=how_to_load(folder.path, self.config))
        save_models(folder.models_file, result)
        models = models_sha256(result.theta)
        if folder.events().finish is None:
            self._log(FinishEvent(time=now(), round=session.round, seconds=result.seconds, models_sha256=models))
        self.ledger.anchor(folder.name, folder.events_head)
        session.close()
        head = self.ledger.head
        heads = {"ledger": head.hash, "ledger_rows": head.number, "events": folder.events_head}
        folder.summarise(summary_facts(self.config, result, heads) | folder.events().links_used)
        write_report(RecordedRun.load(folder.path), folder.path / "report.html")
        return result

    def close(self) -> None:
        """Release the folder. A run that is not finished keeps its allowance in the ledger."""
        self._resources.close()

    def _log(self, event: LogEvent) -> None:
        self.folder.log(event)
