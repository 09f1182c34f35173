"""What `tacit peer check` looks at: all that can be wrong before a run begins. Nothing is asked of the data, and nothing is spent."""

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tacit.errors import TacitError
from tacit.networks.transports import Loopback
from tacit.peer.agreement.document import Agreement
from tacit.peer.agreement.signed import read_chain
from tacit.peer.agreement.terms import check_terms, config_of, privacy_terms
from tacit.peer.identity import Identity
from tacit.peer.preparation import check_code, check_own_data, load_own_data, training_of_site
from tacit.peer.public_records import KEY, check_public_records, check_votes
from tacit.peer.records import check_unchanged
from tacit.peer.secret_files import find_passphrase
from tacit.peer.settings import SiteSettings
from tacit.peer.wire.hub import GrpcWire, LinkView
from tacit.privacy import DurableLedger, Seeded
from tacit.privacy.guarantees import format_epsilon
from tacit.runs.folder import LEDGER, RunFolder
from tacit.training.runtimes import Wired
from tacit.training.session import Session

CLOCKS_MAY_DIFFER = 60.0


class Checked(NamedTuple):
    """What was checked; `good` is None where it could not be."""

    what: str
    good: bool | None
    words: str


class SiteCheck:
    """The checks of one site. Each returns what it found in words, or raises."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._settings = folder, SiteSettings.read(folder)

    def identity(self) -> str:
        """Read the key."""
        file = self._settings.passphrase_file
        self._identity = Identity.load(self._folder, find_passphrase(None if file is None else self._folder / file))
        return f"the key of {self._identity.name}, for its owner alone"

    def agreement(self) -> str:
        """Read the agreement with all signatures."""
        chain = read_chain(self._folder)
        check_terms(chain.current)
        chain.require_in_force()
        self._agreement: Agreement = chain.current
        self._agent = chain.current.number_of(self._identity.name)
        return f"version {chain.current.version}, signed by all who must"

    def code(self) -> str:
        """Compare the software and the source files."""
        check_code(self._agreement)
        return f"Tacit {self._agreement.software}; model, loss and rule are those of the agreement"

    def data(self) -> str:
        """Check every record against the schema and, once the run has begun, that they are those of its start."""
        agreement = self._agreement
        self._data = check_own_data(load_own_data(self._settings, agreement, self._agent), agreement)
        public = agreement.data.get(KEY)
        check_public_records(self._settings.dataset, self._data.dataset, public)
        run = RunFolder(self._folder / self._settings.runs / agreement.run_name)
        check_unchanged(run, self._data, agreement.members[self._agent].records)
        begun = ", and are those with which the run began" if run.events().plan is not None else ""
        same = (
            ""
            if public is None
            else f"; the {public['records']} public records that teachers label are those of the agreement"
        )
        return f"all records fit the schema of the agreement{begun}{same}"

    def budget(self) -> str:
        """Settle the plan with a copy of the ledger, which refuses what its budget does not allow."""
        with tempfile.TemporaryDirectory() as folder:
            before, copy = self._folder / self._settings.runs / LEDGER, Path(folder) / LEDGER
            if before.exists():
                source, target = sqlite3.connect(f"file:{before}?mode=ro", uri=True), sqlite3.connect(copy)
                with closing(source), closing(target):
                    source.backup(target)
            with closing(DurableLedger(copy)) as ledger:
                training = replace(training_of_site(self._agreement, self._data, ledger), sources=Seeded(0))
                if ledger.account(self._agreement.run_name) is not None:
                    return "the run has begun; its account is open"
                members = len(self._agreement.members)
                session = Session(training, Wired(self._agent, members, Loopback(members).end(self._agent)))
                check_votes(session, self._agreement.data.get(KEY))
                plan, account = session.plan, session.accounts[0]
                assert plan.privacy is not None
                _, charged = account.largest_epsilon(
                    delta=plan.privacy.delta,
                    adjacency=plan.privacy.adjacency,
                    accountant=plan.privacy.accountant,
                    queries=plan.queries,
                    observer=plan.observer,
                )
                session.close()
        sigma, against = plan.noise_multipliers[self._agent], privacy_terms(config_of(self._agreement))
        return f"{plan.queries:,} queries with σ = {sigma:.4g} fit: ε={format_epsilon(charged)} {against}"

    async def links(self, seconds: float) -> list[Checked]:
        """Exchange openings with all neighbours who answer in time."""
        wire = GrpcWire(self._identity, self._agreement, most_bytes=0, listen=self._settings.listen, check=True)
        try:
            await wire.start()
        except TacitError as error:
            return [Checked("listening", None, f"{error} (a site that runs is checked by its neighbours)")]
        async with asyncio.timeout(seconds + 10):
            for _ in range(max(1, int(10 * seconds))):
                if all(view.software for view in wire.views.values()):
                    break
                await asyncio.sleep(0.1)
            await wire.stop()
        return [
            line
            for number, view in wire.views.items()
            for line in self._link(self._agreement.members[number].name, view)
        ]

    def _link(self, name: str, view: LinkView) -> Iterator[Checked]:
        if not view.software:
            words = view.why if view.dials else "it has not dialled; it does while it is checked or run"
            refused = view.dials and ("refused" in view.why or "certificate" in view.why)
            yield Checked(f"link to {name}", False if refused else None, words)
            return
        same = view.agreement == self._agreement.hash
        words = "reached; same agreement" if same else "reached, but it holds another version of the agreement"
        yield Checked(f"link to {name}", same, words)
        ahead = view.clock or 0.0
        words = f"differs by {abs(ahead):.1f} s"
        yield Checked(f"clock of {name}", abs(ahead) < CLOCKS_MAY_DIFFER, words)


def check_site(folder: Path, seconds: float) -> list[Checked]:
    """Check everything at a site. After a check that fails, those that need it are left out."""
    site = SiteCheck(folder)
    found: list[Checked] = []

    def passes(what: str, check: Callable[[], str]) -> bool:
        try:
            found.append(Checked(what, True, check()))
        except TacitError as error:
            found.append(Checked(what, False, str(error)))
        return found[-1].good is True

    if passes("identity", site.identity) and passes("agreement", site.agreement):
        if passes("code", site.code) and passes("data", site.data):
            passes("budget", site.budget)
        found += asyncio.run(site.links(seconds))
    return found
