"""Whom a site waits for, and what would end that.

Three waits have no deadline: that of a voter for its decider's word, that of a round for the fewest links that it needs, and that of a start for a
word of every neighbour. All are shown while they last, and written to the log and the events once no deadline can end them any more.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from tacit.peer.protocol.core import Core
from tacit.peer.protocol.interface import Slot
from tacit.peer.protocol.link import Link
from tacit.peer.views import STARTING, SiteStatus, WaitView

EVERY = 1.0
"""Seconds between two looks."""
_ENDS = "ends when it answers, or when a new version of the agreement declares it gone"


class _Begun(NamedTuple):
    slot: Slot
    since: float


class Waiting:
    """Keeps `status.waits` as the core's links are. `notice` is called once for each wait that no deadline ends.

    A wait is shown from the second look on: most are over before that.
    """

    def __init__(self, core: Core, status: SiteStatus, notice: Callable[[int, str], None]) -> None:
        self._core, self._status, self._notice = core, status, notice
        self._begun: dict[int, _Begun] = {}
        self._noticed: dict[int, Slot] = {}

    async def watch(self) -> None:
        """Look again and again, until this is cancelled."""
        while True:
            self.look(self._core.clock.now())
            await asyncio.sleep(EVERY)

    def look(self, now: float) -> None:
        """See which links are waited for, and since when."""
        core, found = self._core, {}
        longest = core.terms.deadline(core.terms.most_bytes)
        for neighbor, link in core.links.items():
            begun = self._begun.get(neighbor)
            if not self._is_waited_for(link):
                self._begun.pop(neighbor, None)
                continue
            if begun is None or begun.slot != core.position:
                self._begun[neighbor] = _Begun(core.position, now)
                continue
            late = now - begun.since > longest
            found[neighbor] = WaitView(now - begun.since, self._why(link, late))
            if late and self._noticed.get(neighbor) != begun.slot:
                self._noticed[neighbor] = begun.slot
                self._notice(neighbor, found[neighbor].why)
        self._status.waits = found

    def _is_waited_for(self, link: Link) -> bool:
        if self._status.phase == STARTING:
            return not (link.greeted or link.cut or link.neighbor in self._core.terms.gone)
        return not link.settled

    def _why(self, link: Link, late: bool) -> str:
        if link.bound:
            return f"it has this site's message and has not said whether it used it; this {_ENDS}"
        if link.neighbor in self._status.foreign:
            return "it holds another version of the agreement, which has not arrived here; compare the two"
        starting, fewest = self._status.phase == STARTING, self._core.terms.fewest
        lacks = "said what it holds of this site" if starting else "sent its message of this round"
        words = f"it is there and has not {lacks}" if link.connected else "the link is down"
        if not late:
            return words
        need = "a start needs all neighbours" if starting else f"a round needs {fewest} of its links"
        return f"{words}; {need}, so this {_ENDS}"
