"""The ephemeral key that a site has for masks: made for one run, sealed in the journal, and overwritten at the end."""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from tacit.peer.agreement.document import Agreement
from tacit.peer.agreement.terms import config_of, key_partners
from tacit.peer.identity import Identity
from tacit.peer.protocol.clock import SystemRandomness
from tacit.peer.protocol.interface import RecordKind
from tacit.peer.recording import JOURNAL
from tacit.peer.sealing import Seal
from tacit.peer.secrets import KeyExchange
from tacit.runs.folder import RunFolder


def make_key_exchange(
    identity: Identity, agreement: Agreement, agent: int, earlier: Iterable[Callable[[bytes], bytes]] = ()
) -> KeyExchange | None:
    """Return the exchange of keys for masks, if the agreement has masks. `earlier` signs with keys that the site had before."""
    if config_of(agreement).noise != "cancelling":
        return None
    run = bytes.fromhex(agreement.run_id)
    cards = [member.card for member in agreement.members]
    seal = Seal(identity.sign, run, earlier)

    def verify(member: int, message: bytes, signature: bytes) -> bool:
        return member < len(cards) and cards[member].verify(signature, message)

    return KeyExchange(
        run,
        agent,
        key_partners(agreement, agent),
        sign=identity.sign,
        verify=verify,
        randomness=SystemRandomness(),
        seal=seal.seal,
        unseal=seal.unseal,
    )


def erase_key(journal: Path) -> None:
    """Overwrite the sealed key in a journal that no process uses.

    The file is written anew before: pages from which the key was moved to others may still have it.
    """
    unerased = "kind = ? AND body <> zeroblob(LENGTH(body))"
    with closing(sqlite3.connect(journal)) as database:
        if not database.execute(f"SELECT 1 FROM bodies WHERE {unerased}", (int(RecordKind.KEY),)).fetchall():
            return
        database.execute("PRAGMA secure_delete = ON")
        database.execute("VACUUM")
        database.execute(f"UPDATE bodies SET body = zeroblob(LENGTH(body)) WHERE {unerased}", (int(RecordKind.KEY),))
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def erase_left_key(folder: RunFolder) -> None:
    """Erase the key of a run that is over for everybody, where its process was killed before it could."""
    if (folder.path / JOURNAL).exists() and not folder.is_running:
        erase_key(folder.path / JOURNAL)
