"""Accounts to open in a ledger."""

from tampering import gaussians

from tacit.privacy import Mechanism
from tacit.privacy.store import DurableLedger

OPEN = Mechanism.plain(sample_rate=0.5, lot=5)


def open_account(ledger, *, run="run", owners=("a", "b"), rate=0.1, sigma=2.0, queries=5, release=True):
    return ledger.open(
        run=run,
        owners=owners,
        mechanisms=gaussians([rate] * len(owners), [sigma] * len(owners)),
        queries=queries,
        release=release,
    )


def with_three_queries(path):
    account = open_account(DurableLedger(path))
    for _ in range(3):
        account.spend()
    account.close(finished=True)


def play(account, queries):
    for _ in range(queries):
        account.spend()
    account.close(finished=True)
