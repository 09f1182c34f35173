"""Turns what the protocol core says into the run's events, the site's status and its logs."""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Literal

from tacit.peer.agreement.terms import privacy_terms
from tacit.peer.protocol.core import Core
from tacit.peer.protocol.interface import (
    Equivocation,
    FrameRefused,
    LinkSkipped,
    LinkUsed,
    PeerBack,
    PeerEvent,
    PeerLost,
    RoundDone,
    RoundsAway,
    VersionAdopted,
)
from tacit.peer.recording import SiteRun
from tacit.peer.views import SiteStatus
from tacit.privacy.observers import EVERYBODY
from tacit.runs.event_types import NoticeEvent, now

_AHEAD = 8
_FOREIGN = ("another agreement", "a version of the agreement that is not valid")

log = logging.getLogger(__name__)


def is_foreign(why: str) -> bool:
    """Whether a frame was refused as its sender holds a version of the agreement that is not known here, or is not valid."""
    return why.startswith(_FOREIGN)


class Observing:
    """Receives every event of the core. Set `core` before anything happens. `on_round` is called after each round."""

    core: Core

    def __init__(self, record: SiteRun, status: SiteStatus, on_round: Callable[[], None]) -> None:
        self._record, self._status, self._on_round = record, status, on_round
        self._refused: Counter[int] = Counter()
        self._covered = -1  # queries that the shown ε is of

    def __call__(self, event: PeerEvent) -> None:
        """Take note of an event."""
        status = self._status
        if isinstance(event, LinkUsed):
            status.foreign.discard(event.neighbor)
        elif isinstance(event, LinkSkipped):
            about = {"neighbor": status.members[event.neighbor], "round": event.slot.round + 1}
            log.warning("a link was skipped: %s", event.why, extra=about)
        elif isinstance(event, RoundDone):
            self._end_round(event)
        elif isinstance(event, PeerLost):
            status.lost.add(event.neighbor)
            self._notice("lost", event.neighbor)
        elif isinstance(event, PeerBack):
            status.lost.discard(event.neighbor)
            self._notice("back", event.neighbor)
        elif isinstance(event, Equivocation):
            self._notice("cut", event.neighbor, "it sent two different messages for one round; the link was cut")
        elif isinstance(event, FrameRefused):
            self._note_refusal(event)
        elif isinstance(event, RoundsAway):
            self._notice("away", None, f"this site took no part in rounds {event.first + 1} to {event.until}")
        elif isinstance(event, VersionAdopted):
            status.version = event.version
            status.foreign.clear()
            self._notice("version", None, f"version {event.version} of the agreement is in force")

    def note_wait(self, neighbor: int, why: str) -> None:
        """Write down whom the open round waits for, where no deadline ends that."""
        self._notice("waiting", neighbor, why)

    def recall(self) -> None:
        """Take over what earlier processes of this run have written down."""
        status, events = self._status, self._record.folder.events()
        for event in events.links.values():
            status.used.update(event.used)
            status.skipped.update(event.skipped)
            status.last_used = len(event.used), len(event.used) + len(event.skipped)
        status.round = max(self.core.position.round, 0)
        if events.snapshots and events.snapshots[-1].accuracy:
            status.accuracy = events.snapshots[-1].accuracy[0]

    def note_spending(self, *, now_in_full: bool = False) -> None:
        """Count queries, and show an ε that is never less than theirs: of an eighth more, so that it is not derived in every round, which takes a moment."""
        account, plan, status = self._record.session.accounts[0], self._record.session.plan, self._status
        status.queries = account.spent
        if not now_in_full and account.spent <= self._covered:
            return
        ahead = 0 if now_in_full else account.spent // _AHEAD
        self._covered = max(account.spent, min(account.spent + ahead, plan.queries))
        status.epsilon_made = self._record.epsilon(self._covered)
        if now_in_full:  # what is charged changes at the end alone
            status.epsilon_charged = self._record.epsilon(account.charged)
            if plan.masks is not None:
                status.epsilon_against_all = self._record.epsilon(account.charged, EVERYBODY)
        if plan.privacy is not None:
            targets = plan.privacy.targets(len(status.members))
            status.epsilon_allowed = None if targets is None else targets[self._record.agent]
            status.epsilon_terms = privacy_terms(self._record.config)

    def _end_round(self, event: RoundDone) -> None:
        record, status, played = self._record, self._status, event.round + 1
        used, links = len(event.used), len(event.used) + len(event.skipped)
        record.note_links(played, event.used, event.skipped)
        status.used.update(event.used)
        status.skipped.update(event.skipped)
        status.round, status.last_used = played, (used, links)
        if record.note_snapshots():
            latest = record.session.monitor.histories[0][-1]
            status.accuracy = None if latest.accuracy is None else float(latest.accuracy.mean())
        self.note_spending()
        if used < links:
            log.warning("round %d used %d of %d links", played, used, links)
        self._on_round()

    def _note_refusal(self, event: FrameRefused) -> None:
        """Write down the 1st, 2nd, 4th, 8th refused frame of a neighbour and so on, so that one that sends rubbish does not fill the disk."""
        if is_foreign(event.why):
            self._status.foreign.add(event.neighbor)
        self._refused[event.neighbor] += 1
        count = self._refused[event.neighbor]
        if count.bit_count() == 1:
            self._notice("refused", event.neighbor, event.why if count == 1 else f"{event.why}; {count} frames so far")

    def _notice(
        self,
        kind: Literal["lost", "back", "cut", "refused", "away", "version", "waiting"],
        neighbor: int | None,
        words: str = "",
    ) -> None:
        played = max(self.core.position.round, 0)
        about = {} if neighbor is None else {"neighbor": self._status.members[neighbor]}
        log.warning("%s%s", kind, f": {words}" if words else "", extra={"round": played, **about})
        self._record.notice(NoticeEvent(time=now(), round=played, kind=kind, neighbor=neighbor, words=words))
