"""What a site's folder says about its run, whether or not a process is working on it."""

from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tacit.peer.agreement.document import version_file
from tacit.peer.agreement.signed import read_chain
from tacit.peer.agreement.terms import config_of, privacy_terms
from tacit.peer.cards import CARD_FILE, read_card
from tacit.peer.protocol.interface import RecordKind
from tacit.peer.protocol.sqlite import SQLiteJournal
from tacit.peer.recording import JOURNAL
from tacit.peer.settings import SiteSettings
from tacit.report import RecordedRun
from tacit.report.spending import derive_spending
from tacit.runs.event_types import NoticeEvent
from tacit.runs.events import Events
from tacit.runs.folder import RunFolder


class FinishedRun(NamedTuple):
    """A run that is finished at a site."""

    folder: RunFolder
    waiting: tuple[str, ...]
    """Neighbours who are not known to be through, and whom no process is answering: they may still need messages of the last rounds."""


def find_finished(site: Path) -> FinishedRun | None:
    """Return the run of a site if it is finished here; None while there is something left to do."""
    if not version_file(site, 1).exists():
        return None
    agreement, name = read_chain(site).current, read_card(site / CARD_FILE).name
    folder = RunFolder(site / SiteSettings.read(site).runs / agreement.run_name)
    journal = folder.path / JOURNAL
    if not folder.summary_file.exists():
        return None
    if folder.is_running or not journal.exists() or agreement.is_expired(datetime.now(UTC)):
        return FinishedRun(folder, ())
    with closing(SQLiteJournal(journal)) as opened:
        ended = {record.neighbor for record in opened.read() if record.kind == RecordKind.ENDED}
    left = [number for number in agreement.links_of(agreement.number_of(name)) if not agreement.members[number].gone]
    return FinishedRun(folder, tuple(agreement.members[number].name for number in left if number not in ended))


def status_in_folder(site: Path) -> dict[str, Any]:
    """Return the state of a site's run, with the keys of its status page."""
    chain, settings = read_chain(site), SiteSettings.read(site)
    agreement, name = chain.current, read_card(site / CARD_FILE).name
    members = [member.name for member in agreement.members]
    neighbors = agreement.links_of(agreement.number_of(name))
    found: dict[str, Any] = {
        "name": name,
        "run": agreement.run_name,
        "agreement": chain.run_id,
        "version": agreement.version,
        "rounds": config_of(agreement).total_rounds,
        "phase": "not started",
        "round": 0,
        "queries": 0,
        "epsilon_charged": None,
        "epsilon_made": None,
        "epsilon_against_all": None,
        "epsilon_allowed": None,
        "epsilon_terms": privacy_terms(config_of(agreement)),
        "accuracy": None,
        "last_used": None,
    }
    used: Counter[int] = Counter()
    skipped: Counter[int] = Counter()
    folder = RunFolder(site / settings.runs / agreement.run_name)
    events = folder.events() if folder.path.is_dir() else None
    if events is not None:
        found["phase"] = "finished" if folder.summary_file.exists() else "running" if folder.is_running else "stopped"
    if events is not None and events.plan is not None:
        rounds = events.links
        for event in rounds.values():
            used.update(event.used)
            skipped.update(event.skipped)
        if rounds:
            last = rounds[max(rounds)]
            found |= {"round": last.round, "last_used": [len(last.used), len(last.used) + len(last.skipped)]}
        if events.snapshots and events.snapshots[-1].accuracy:
            found["accuracy"] = events.snapshots[-1].accuracy[0]
        recorded = RecordedRun.load(folder.path)
        if (spent := derive_spending(recorded)) is not None:
            kept = spent.guarantee
            account = recorded.record.account
            assert account is not None
            _, made = account.largest_epsilon(
                delta=kept.delta,
                adjacency=kept.adjacency,
                accountant=kept.accountant,
                queries=account.spent,
                observer=kept.observer,
            )
            found |= {"epsilon_charged": kept.epsilon, "epsilon_made": made, "epsilon_allowed": spent.budget}
            found["epsilon_against_all"] = spent.everybody.epsilon if spent.masked else None
            found["queries"] = account.spent
    waits = _open_waits(events, found["round"]) if events is not None and found["phase"] == "running" else {}
    state = "running; see its log" if found["phase"] == "running" else "no process is running"
    found["links"] = [
        {
            "neighbor": members[number],
            "used": used[number],
            "skipped": skipped[number],
            "state": waits.get(number, state),
        }
        for number in neighbors
    ]
    return found


def _open_waits(events: Events, played: int) -> dict[int, str]:
    """Return the neighbours whom the open round was seen to wait for, in words."""
    return {
        event.neighbor: f"waiting since {event.time.astimezone(UTC):%Y-%m-%d %H:%M} UTC: {event.words}"
        for event in events
        if isinstance(event, NoticeEvent) and event.kind == "waiting" and event.round >= played
        if event.neighbor is not None
    }
