"""Whether the log of a ledger is whole: every row follows from those before it, and no process charged more than the log has."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tacit.errors import PrivacyError, StorageError
from tacit.io import chains
from tacit.privacy.charges import all_charges, read_charges
from tacit.privacy.ledger import Ledger
from tacit.privacy.log import START, Reader, read_row


def check_rows(rows: Sequence[tuple[int, int | None, str, str]], path: Path) -> list[str]:
    """Return what is wrong with the rows (number, account, text, hash) of the ledger at `path`, in sentences, up to the first wrong row."""
    previous, reader = START, Reader(Ledger())
    for place, (number, account, text, found) in enumerate(rows, 1):
        if number != place:
            return [f"the row after {place - 1} is number {number}: some are missing"]
        previous = chains.link(previous, chains.digest(text))
        if found != previous:
            return [f"row {number} was changed, or one before it was: its hash does not follow"]
        try:
            row = read_row(text)
            if account != (row["account"] if row["kind"] == "query" else None):
                raise PrivacyError(f"row {number} is counted for another account than it names")
            reader.apply(row)
        except PrivacyError as error:
            return [f"row {number}: {error}"]
    return list(_wrong_charges(reader, path))


def _wrong_charges(reader: Reader, ledger: Path) -> Iterator[str]:
    """Yield what is wrong with the files of processes that charged some agents of a run."""
    numbers = {token: number for number, token in reader.tokens.items()}
    for token, rank, path in all_charges(ledger):
        if token not in numbers:
            yield f"{path} holds charges of a run that the ledger does not know"
            continue
        account = reader.accounts[numbers[token]]
        try:
            charged = read_charges(path)[0].queries
        except StorageError as error:
            yield str(error)
            continue
        # While a run is open it is charged its whole plan, and one process may be ahead of the first.
        most = account.allowed if account.state == "open" else account.spent
        if charged > most:
            yield (
                f"rank {rank} of run {account.run!r} has charged {charged} queries, but the ledger has {most} for the run, "
                f"which is {account.state}"
            )
