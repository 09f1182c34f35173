"""The charges of a process that plays some agents of a run: a file of its own, which nobody else writes.

SQLite must not be written over a network file system, so of a run on several processes only the first writes to the ledger: it opens
the run's account for all agents, which reserves the whole plan, and charges its own agents' queries there. Every other process appends
a line to a file beside the ledger for each of its queries, synced before the answer leaves the oracle. Lines are numbered and each has a hash
that covers those before it. A lock keeps a second process of the same rank off the file. An account has made as many queries as the process that made most.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tacit.errors import StorageError
from tacit.io import chains, lock
from tacit.io.files import sync_folder
from tacit.privacy.accounts import Account, Line

_START = chains.start("tacit-charges-1")


class Charges(NamedTuple):
    """What one process has charged to an account: how many queries, and the hash of the last."""

    queries: int
    head: str


def charges_folder(ledger: Path) -> Path:
    """Return the folder of all charges beside a ledger."""
    return ledger.with_name(f"{ledger.name}.charges")


def charges_file(ledger: Path, token: str, rank: int) -> Path:
    """Return the file of one process of the run with this token."""
    return charges_folder(ledger) / f"{token}-{rank:04d}.log"


def charges_of(ledger: Path, token: str) -> dict[int, Charges]:
    """Return what the processes beside the first have charged to the run with this token, by rank."""
    found = sorted(charges_folder(ledger).glob(f"{token}-*.log"))
    return {int(path.stem.rpartition("-")[2]): read_charges(path)[0] for path in found}


def all_charges(ledger: Path) -> Iterator[tuple[str, int, Path]]:
    """Yield the token and rank of every file of charges beside a ledger."""
    for path in sorted(charges_folder(ledger).glob("*.log")):
        token, _, rank = path.stem.rpartition("-")
        if token and rank.isdecimal():
            yield token, int(rank), path


def living_rank(ledger: Path, token: str) -> int | None:
    """Return a rank beside the first that has a process working on the run with this token; None if there is none."""
    for path in sorted(charges_folder(ledger).glob(f"{token}-*.lock")):
        if lock.is_held(path):
            return int(path.stem.rpartition("-")[2])
    return None


def read_charges(path: Path) -> tuple[Charges, int]:
    """Return what a file holds, and where its last whole line ends: one that a crash cut off was not charged."""
    token, _, rank = path.stem.rpartition("-")
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
    number, head, end = 0, _START, 0
    for line in content.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        head = _next(head, token, int(rank), number + 1)
        if line != _line(number + 1, head):
            raise StorageError(f"{path} was changed or is damaged at line {number + 1}: its hash does not follow")
        number, end = number + 1, end + len(line)
    return Charges(number, head), end


def _next(head: str, token: str, rank: int, number: int) -> str:
    return chains.link(head, chains.digest(chains.canonical({"token": token, "rank": rank, "query": number})))


def _line(number: int, head: str) -> bytes:
    return f"{number} {head}\n".encode()


class ShardAccount(Account):
    """The account of one process's agents. The run's account in the ledger, which the first process holds, has the allowance."""

    def __init__(self, ledger: Path, token: str, rank: int, run: str, lines: tuple[Line, ...], allowed: int) -> None:
        self._path, self._token, self._rank = charges_file(ledger, token, rank), token, rank
        self._held = self._take_lock()
        found, end = read_charges(self._path)
        super().__init__(run, lines, allowed, found.queries)
        self._head, self._end = found.head, end
        try:
            self._file: BinaryIO = self._path.open("ab")
            self._file.truncate(end)
            sync_folder(self._path.parent)
        except OSError as error:
            raise StorageError(f"{self._path}: cannot be written: {error.strerror or error}") from error

    @property
    def charges(self) -> Charges:
        """What is in the file."""
        return Charges(self.spent, self._head)

    def _take_lock(self) -> BinaryIO:
        """Keep every other process off the file for as long as the account is open."""
        try:
            self._path.parent.mkdir(exist_ok=True)
            sync_folder(self._path.parent.parent)
        except OSError as error:
            raise StorageError(f"{self._path}: cannot be written: {error.strerror or error}") from error
        # In a file of its own: on a network file system, reading the charges and closing them again would release a lock on them.
        descriptor = lock.hold(self._path.with_suffix(".lock"))
        if descriptor is None:
            raise StorageError(f"{self._path}: another process of rank {self._rank} is charging its queries there")
        return os.fdopen(descriptor, "rb")

    def _write(self) -> None:
        head = _next(self._head, self._token, self._rank, self.spent + 1)
        line = _line(self.spent + 1, head)
        try:
            size = os.stat(self._path).st_size
        except OSError as error:
            raise StorageError(f"{self._path} cannot be read: {error.strerror or error}") from error
        if size != self._end:
            raise StorageError(f"{self._path} was changed since this process wrote to it; no more queries are made")
        try:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StorageError(f"{self._path}: cannot be written: {error.strerror or error}") from error
        self._head, self._end = head, self._end + len(line)
        self._spent += 1

    def close(self, *, finished: bool = False) -> None:
        """Allow no more queries in this process; the ledger says whether the run is finished."""
        super().close(finished=finished)
        self._file.close()
        self._held.close()


class PartAccount(Account):
    """Some agents' lines of a run's account, for the process that holds the account: what they are charged, all are."""

    def __init__(self, whole: Account, lines: tuple[Line, ...]) -> None:
        super().__init__(whole.run, lines, whole.allowed, whole.spent, whole.state, whole.together)
        self._whole = whole

    @property
    def spent(self) -> int:
        """The number of queries made."""
        return self._whole.spent

    def check(self) -> None:
        """Raise if no further query is allowed."""
        self._whole.check()

    def _write(self) -> None:
        self._whole.spend()

    def close(self, *, finished: bool = False) -> None:
        """Close the run's account."""
        super().close(finished=finished)
        self._whole.close(finished=finished)
