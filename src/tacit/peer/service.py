"""One site at work: one event loop joins the wire, the protocol core, the session and the run's folder.

The order of a run: check what was agreed on; listen and dial; wait until all neighbours have said what they hold; play; write the model,
the report and the ledger; stay for neighbours that are late; erase secrets. SIGTERM ends it at a round boundary, a second one at once.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from tacit.data import AgentData
from tacit.errors import InvalidInput, NetworkError
from tacit.io.stopping import heard
from tacit.peer.agreement.signed import Chain, read_chain
from tacit.peer.agreement.terms import check_terms, config_of
from tacit.peer.identity import Identity, earlier_signers
from tacit.peer.observing import Observing
from tacit.peer.preparation import (
    check_code,
    check_own_data,
    load_own_data,
    parameters_of,
    peer_terms,
    training_of_site,
)
from tacit.peer.protocol.clock import LoopClock
from tacit.peer.protocol.core import Core
from tacit.peer.protocol.driver import play
from tacit.peer.protocol.interface import PeerTerms
from tacit.peer.protocol.sqlite import SQLiteJournal
from tacit.peer.public_records import KEY, check_public_records, check_votes
from tacit.peer.recording import SiteRun
from tacit.peer.records import check_unchanged
from tacit.peer.runtime import Peer, SessionPlayer
from tacit.peer.secret_files import find_passphrase
from tacit.peer.secrets import PeerSources
from tacit.peer.settings import SiteSettings
from tacit.peer.site_keys import erase_key, make_key_exchange
from tacit.peer.status_page import StatusPage
from tacit.peer.systemd import notify_systemd
from tacit.peer.views import STARTING, SiteStatus
from tacit.peer.waiting import Waiting
from tacit.peer.wire.hub import GrpcWire
from tacit.privacy import Account
from tacit.runs.folder import RunFolder
from tacit.runs.models import load_models
from tacit.training.prepared import prepare
from tacit.training.runtimes import Hosted
from tacit.training.session import Session

Outcome = Literal["finished", "stopped"]

log = logging.getLogger(__name__)


class Service:
    """A site that takes part in its run. `folder` is the site's; the process works in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.settings = folder, SiteSettings.read(folder)
        file = self.settings.passphrase_file
        passphrase = find_passphrase(None if file is None else folder / file)
        self.identity, self._earlier = Identity.load(folder, passphrase), earlier_signers(folder, passphrase)
        self.chain = read_chain(folder)
        agreement = self.chain.current
        check_terms(agreement)
        self.chain.require_in_force()
        check_code(agreement)
        self.agent = agreement.number_of(self.identity.name)
        if agreement.members[self.agent].public_key != self.identity.card.public_key:
            raise InvalidInput(f"the agreement has another key for {self.identity.name!r} than this site")
        self._stopping = asyncio.Event()
        self._core: Core | None = None
        self._key_is_needed = True
        self._plan = b""

    async def run(self) -> Outcome:
        """Take part until the run is finished, or until the process is asked to stop."""
        agreement, data = self.chain.current, None
        place = RunFolder(self.folder / self.settings.runs / agreement.run_name)
        if place.summary_file.exists():  # its records may be gone by now
            theta = load_models(place.models_file, str((place.summary() or {}).get("models_sha256")))
            self._parameters, self._dtype = theta.shape[1], theta.dtype
        else:
            data = check_own_data(load_own_data(self.settings, agreement, self.agent), agreement)
            check_public_records(self.settings.dataset, data.dataset, agreement.data.get(KEY))
            self._parameters, self._dtype = parameters_of(agreement, data)
        record = SiteRun(self.folder / self.settings.runs, self.chain, self.agent, self.settings)
        async with AsyncExitStack() as stack:
            stack.callback(record.close)
            if data is not None:
                check_unchanged(record.folder, data, agreement.members[self.agent].records)
                self._prepare(record, data)
            await self._start(stack, record)
            try:
                if data is None:
                    self._observing.recall()
                outcome = "finished" if data is None else await self._take_part(record, data)
                if outcome == "finished":
                    await self._stay()
            except BaseException:
                self._phase("failed")
                raise
            self._phase(outcome)
            return outcome

    def stop(self) -> None:
        """End at the next round boundary, or within it if neighbours keep this site waiting for `stop_seconds`."""
        log.info("stopping at the end of this round")
        self._stopping.set()
        if self._core is not None:
            self._core.stop()

    def reload(self) -> None:
        """Adopt new versions of the agreement that lie in the site's folder."""
        try:
            chain = read_chain(self.folder)
            if chain.current.version > self.chain.current.version and self._core is not None:
                self._core.renew(self._adopt(chain))
        except (InvalidInput, NetworkError) as error:
            log.error("the agreement in the folder was not adopted: %s", error)

    def _prepare(self, record: SiteRun, data: AgentData) -> None:
        """Settle the plan of all members, which is compared with the neighbours' before anything is asked."""
        log.info("settling the plan")
        agreement = self.chain.current
        self._training = training_of_site(agreement, data, record.ledger, evaluate_every=self.settings.evaluate_every)
        self._prepared = prepare(self._training, Hosted((self.agent,), len(agreement.members)))
        self._plan = bytes.fromhex(self._prepared.plan.sha256)

    async def _start(self, stack: AsyncExitStack, record: SiteRun) -> None:
        """Open the journal, make the core, listen and dial; `stack` ends all of it."""
        terms = self._terms(self.chain)
        self._wire = GrpcWire(
            self.identity, self.chain.current, most_bytes=terms.most_bytes, listen=self.settings.listen
        )
        self.status = self._first_status()
        self._observing = Observing(record, self.status, self._check_expiry)
        self._keys = make_key_exchange(self.identity, self.chain.current, self.agent, self._earlier)
        self._journal = SQLiteJournal(record.journal_file)
        stack.callback(self._close_journal)
        self._core = Core(
            terms,
            clock=LoopClock(),
            wire=self._wire,
            journal=self._journal,
            observe=self._observing,
            accept=self._accept,
            keys=self._keys,
        )
        self._wire.core = self._observing.core = self._core
        record.check_ledger(self._core.notes)
        if self.settings.status:
            page = StatusPage(self.settings.status, self.status, lambda: record.folder.events_file)
            await page.start()
            stack.push_async_callback(page.stop)
        await self._wire.start()
        stack.push_async_callback(self._wire.stop)
        watching = asyncio.create_task(Waiting(self._core, self.status, self._observing.note_wait).watch())
        stack.callback(watching.cancel)
        notify_systemd("READY=1")
        stack.callback(notify_systemd, "STOPPING=1")

    async def _take_part(self, record: SiteRun, data: AgentData) -> Outcome:
        core = self._core
        assert core is not None
        self._phase(STARTING, self._missing(core))
        if not await self._unless_stopped(core.start(), self.settings.start_seconds):
            return "stopped"
        self._phase("preparing")
        player = self._make_player(record, data, core)
        self._phase("training")
        await self._play(core, player)
        if not player.finished:
            return "stopped"
        record.finish()
        self._observing.note_spending(now_in_full=True)
        return "finished"

    async def _stay(self) -> None:
        """Answer neighbours that are not through, for the agreed time, and then erase secrets."""
        core = self._core
        assert core is not None
        self._phase("finishing")
        if await self._unless_stopped(core.linger()):
            self._erase_secrets(core)

    async def _play(self, core: Core, player: SessionPlayer) -> None:
        """Play to the end or, once asked to stop, to the end of the round.

        If neighbours have stopped before they sent what this round needs, it is left as it is: a restart continues it from the journal.
        """
        playing, stopping = asyncio.create_task(play(core, player)), asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({playing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                await asyncio.wait({playing}, timeout=self.settings.stop_seconds)
            if playing.done():
                playing.result()
        finally:
            for task in (playing, stopping):
                task.cancel()
            await asyncio.gather(playing, stopping, return_exceptions=True)

    def _make_player(self, record: SiteRun, data: AgentData, core: Core) -> SessionPlayer:
        """Settle the plan, open or reopen the account, and go to where the journal ends."""
        agreement, training = self.chain.current, self._training
        if self._keys is not None and config_of(agreement).source == "secret":
            training = replace(training, sources=PeerSources(self._keys, self.agent))
        public = agreement.data.get(KEY)

        def account_of(session: Session) -> list[Account]:
            check_votes(session, public)  # before the ledger has a line of this run
            return record.accounts() or []

        runtime = Peer(self.agent, len(agreement.members), core)
        session = Session(training, runtime, account_of, prepared=self._prepared)
        player = SessionPlayer(session, core, public)
        player.load(core.notes.state, core.position.round)
        record.begin(session, data, on_record=core.notes.count_answers())
        record.note_rounds_before(core.notes)
        self._observing.recall()
        self._observing.note_spending(now_in_full=True)
        return player

    async def _unless_stopped(self, wanted: Coroutine[Any, Any, None], seconds: float | None = None) -> bool:
        """Wait for something; return False if the process was asked to stop before. It is an error if this takes more than `seconds`."""
        waiting, stopping = asyncio.create_task(wanted), asyncio.create_task(self._stopping.wait())
        done, late = await asyncio.wait({waiting, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        if not done:
            assert self._core is not None
            names = self._missing(self._core) or "a member whose key is needed"
            raise NetworkError(f"{names} did not join within {seconds:g} s; nothing was spent")
        if waiting in done:
            waiting.result()
        return waiting in done

    def _missing(self, core: Core) -> str:
        """Name the neighbours that have not said yet what they hold of this site."""
        left = [link for link in core.links.values() if not (link.greeted or link.cut)]
        return ", ".join(self.status.members[link.neighbor] for link in left if link.neighbor not in core.terms.gone)

    def _terms(self, chain: Chain) -> PeerTerms:
        return peer_terms(chain, self.agent, self._parameters, self._dtype, self._plan)

    def _accept(self, document: bytes) -> PeerTerms:
        """Verify later versions that a neighbour sent."""
        return self._adopt(self.chain.learn(document))

    def _adopt(self, chain: Chain) -> PeerTerms:
        chain.save(self.folder)
        self.chain = chain
        self._wire.adopt(chain.current)
        return self._terms(chain)

    def _erase_secrets(self, core: Core) -> None:
        """Forget the ephemeral key; the journal's copy too, once all neighbours are through and cannot ask for it."""
        if self._keys is None:
            return
        self._keys.erase()
        self._key_is_needed = not core.all_ended
        if self._key_is_needed:
            log.warning("a neighbour is not through; the sealed key of this run stays in the journal")

    def _close_journal(self) -> None:
        (self._journal if self._core is None else self._core).close()
        if not self._key_is_needed:
            erase_key(self._journal.path)

    def _first_status(self) -> SiteStatus:
        agreement = self.chain.current
        return SiteStatus(
            name=self.identity.name,
            run=agreement.run_name,
            agreement=self.chain.run_id,
            version=agreement.version,
            rounds=config_of(agreement).total_rounds,
            members=tuple(member.name for member in agreement.members),
            links=self._wire.views,
        )

    def _check_expiry(self) -> None:
        """Stop when the agreement has expired."""
        try:
            self.chain.require_in_force()
        except InvalidInput as error:
            log.error("%s", error)
            self.stop()

    def _phase(self, phase: str, about: str = "") -> None:
        self.status.phase = phase
        words = f"{phase}: {about}" if about else phase
        notify_systemd(f"STATUS={words}")
        log.info("%s", words)


def run_site(folder: Path, *, on_start: Callable[[Service], None] = lambda _: None) -> Outcome:
    """Run a site in this process until its run is finished or it is asked to stop."""

    async def main() -> Outcome:
        service = Service(folder)
        on_start(service)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        asked = 0

        def ask() -> None:
            nonlocal asked
            asked += 1
            if asked == 1:
                service.stop()
            else:
                task.cancel()

        for number in heard():
            loop.add_signal_handler(number, ask)
        loop.add_signal_handler(signal.SIGHUP, service.reload)
        return await service.run()

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        return "stopped"
