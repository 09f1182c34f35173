"""Looks at the disks of a consortium from outside, after its run: what was released, what was charged, and whether both ends of links agree.

What a site released is counted at its *neighbours*, in their journals, and compared with what its own ledger holds.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tacit.errors import TacitError
from tacit.peer.agreement.document import Agreement
from tacit.peer.protocol.interface import RecordKind, Slot
from tacit.peer.recording import JOURNAL
from tacit.privacy import DurableLedger
from tacit.runs.folder import LEDGER, RunFolder

FAULTS = ("uncounted", "two_messages", "damaged_stores", "disagreements")


class JournalView(NamedTuple):
    """What one journal says: hashes of own messages, of messages that arrived, and which links each slot used or skipped."""

    sealed: dict[Slot, bytes]
    arrived: dict[tuple[Slot, int], set[bytes]]
    used: set[tuple[Slot, int]]
    skipped: set[tuple[Slot, int]]


def count_releases(agreement: Agreement, sites: Mapping[str, Path], *, gone: Collection[str] = ()) -> dict[str, Any]:
    """Count what went wrong, which should be nothing, and what happened.

    sites: the folder of each member. gone: members whose last exchanges nobody is bound by, as they were declared gone.
    """
    names = [member.name for member in agreement.members]
    folders = [sites[name] / "runs" / agreement.run_name for name in names]
    views = [read_journal(folder / JOURNAL) for folder in folders]
    released: dict[int, dict[Slot, set[bytes]]] = defaultdict(lambda: defaultdict(set))
    for view in views:
        for (slot, sender), digests in view.arrived.items():
            released[sender][slot] |= digests
    per_site, uncounted = [], 0
    for number, name in enumerate(names):
        with closing(DurableLedger(sites[name] / "runs" / LEDGER, read_only=True)) as ledger:
            account = ledger.account(agreement.run_name)
        charged = 0 if account is None else account.spent
        rounds = {slot.round for slot in released[number]}
        uncounted += max(0, len(rounds) - charged)
        per_site.append(
            {
                "site": name,
                "released_rounds": len(rounds),
                "charged": charged,
                "links_used": len(views[number].used),
                "links_skipped": len(views[number].skipped),
            }
        )
    left = [edge for edge in agreement.edges if not {names[end] for end in edge} & {*gone}]
    return {
        "uncounted": uncounted,
        "two_messages": sum(len(each) > 1 for slots in released.values() for each in slots.values()),
        "damaged_stores": sum(_damaged(folder) for folder in folders),
        "disagreements": sum(_disagreements(views, *edge) for edge in left),
        "sites": per_site,
    }


def read_journal(path: Path) -> JournalView:
    """Read a journal that nobody has open."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT kind, round, exchange, neighbor, sha256 FROM records").fetchall()
    view = JournalView({}, {}, set(), set())
    for kind, round, exchange, neighbor, digest in rows:
        slot = Slot(round, exchange)
        if kind == RecordKind.SEAL:
            view.sealed[slot] = bytes(digest)
        if kind in (RecordKind.USED, RecordKind.HELD):
            view.arrived.setdefault((slot, neighbor), set()).add(bytes(digest))
        if kind == RecordKind.USED:
            view.used.add((slot, neighbor))
        elif kind == RecordKind.SKIPPED:
            view.skipped.add((slot, neighbor))
    return view


def _disagreements(views: list[JournalView], low: int, high: int) -> int:
    """Count exchanges of one link that one end used and the other did not, or that used other bytes than were sealed."""
    used = [{slot for slot, other in views[end].used if other == far} for end, far in ((low, high), (high, low))]
    found = len(used[0] ^ used[1])
    for end, far in ((low, high), (high, low)):
        arrived, sealed = views[end].arrived, views[far].sealed
        found += sum(arrived[slot, far] != {sealed.get(slot)} for slot in used[0] & used[1])
    return found


def _damaged(folder: Path) -> int:
    """Return how many of a site's stores are not whole."""
    found = 0
    for path in (folder / JOURNAL, folder.parent / LEDGER):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            try:
                found += database.execute("PRAGMA integrity_check").fetchone() != ("ok",)
            except sqlite3.DatabaseError:
                found += 1
    try:
        RunFolder(folder).events()  # follows the chain of hashes
    except TacitError:
        found += 1
    return found
