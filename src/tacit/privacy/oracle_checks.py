"""What an oracle refuses: accounts, masks or records other than its plan's, a query while it answers another, and votes."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from tacit.data import AgentData
from tacit.errors import PrivacyError
from tacit.privacy.accounts import Account
from tacit.privacy.masks import SharedMasks
from tacit.privacy.noise_kinds import Masked
from tacit.privacy.plans import Plan

_ANSWERING: set[int] = set()
"""The accounts, by id, of queries that are being answered; of all oracles, since two may have one account."""
_ANSWERING_LOCK = threading.Lock()


def refuse_votes() -> NoReturn:
    """Refuse to ask teachers: the oracle was made for sums."""
    raise PrivacyError("the rule asks for votes of teachers, which it did not when it was counted")


@contextmanager
def answer_one_at_a_time(accounts: Sequence[Account]) -> Iterator[None]:
    """Refuse a query while another is charged to the same account: with bands, what is charged so far says whose turn it is.

    It is refused rather than delayed, since the other one may wait for it: a per-sample function can ask an oracle.
    """
    keys = {id(account) for account in accounts}
    with _ANSWERING_LOCK:
        if keys & _ANSWERING:
            raise PrivacyError("this oracle is answering another query; ask one after another")
        _ANSWERING.update(keys)
    try:
        yield
    finally:
        with _ANSWERING_LOCK:
            _ANSWERING.difference_update(keys)


def check_accounts(accounts: Sequence[Account], data: AgentData, plan: Plan) -> None:
    """Refuse accounts of other owners or mechanisms: what is charged must be what is done."""
    charged = [(line.owner, line.mechanism) for account in accounts for line in account.lines]
    if charged != list(zip(data.owners * (plan.agents // data.agents), plan.mechanisms, strict=True)):
        raise PrivacyError(
            "the accounts do not belong to this data and plan; every query must be charged as it is made"
        )


def check_masks(shared: SharedMasks, plan: Plan) -> None:
    """Refuse masks other than the plan's: what is charged counts on every mask of every agent, each from a source of its own."""
    expected: list[list[tuple[tuple[int, int], int]]] = []
    for noise in (mechanism.noise for mechanism in plan.mechanisms):
        expected.append([])
        if isinstance(noise, Masked):
            expected[-1] += [
                (pair, 1 if pair[0] == noise.agent else -1) for pair in noise.masks.keys.by_agent[noise.agent]
            ]
    made = [[(shared.pairs[end.mask], end.sign) for end in ends] for ends in shared.ends]
    ends = [end for each in shared.ends for end in each]
    apart = len(set(ends)) == len(ends) and len({id(source) for source in shared.sources}) == len(shared.sources)
    if made != expected or not apart:
        raise PrivacyError("the masks are not those of the plan; every mask that is counted on must be added")


def check_held(held: Sequence[int], plan: Plan) -> None:
    """Refuse an agent that holds far more than it declares: sums are exact only for lots of about the declared size."""
    declared = [lot / rate for lot, rate in zip(plan.lot_sizes, plan.sample_rates, strict=True)]
    for agent, (there, size) in enumerate(zip([*held] * (plan.agents // len(held)), declared, strict=True)):
        if there > 2 * size + 1000:
            raise PrivacyError(
                f"agent {agent} declares {size:.0f} records and holds more than twice as many; declare about what it holds"
            )
