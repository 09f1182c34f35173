"""Against whom the ε of a run is stated: any one other agent, any two, and so on, and everybody else together.

Without masks all of these are the same, and only the last is stated. All values come from one account in the ledger.
"""

from collections.abc import Mapping, Sequence
from math import comb

from tacit.privacy.accounting import Accountant, Adjacency
from tacit.privacy.accounts import Account
from tacit.privacy.guarantees import format_epsilon, per
from tacit.privacy.mechanisms import EVERYBODY, Masked, Masks, Mechanism, Observer

_MOST_NUMBERS = 10  # of curious agents that are stated
_MOST_COALITIONS = 20_000  # that are tried for one number; where there are far more, a bound takes no longer than this


def observers_of(mechanisms: Sequence[Mechanism]) -> tuple[Observer, ...]:
    """Return against whom ε of these agents is stated, the weakest observer first and everybody else last."""
    masks = next((each.noise.masks for each in mechanisms if isinstance(each.noise, Masked)), None)
    if masks is None:
        return (EVERYBODY,)
    found: list[Observer] = []
    for curious in range(1, masks.keys.agents - 1 - masks.lost):  # one more, and nobody is left to share masks with
        if len(found) == _MOST_NUMBERS or not _is_quick(masks, curious + masks.lost):
            break
        found.append(Observer(curious))
    return (*found, EVERYBODY)


def _is_quick(masks: Masks, curious: int) -> bool:
    # Imported here: listing and reading ledgers needs no linear algebra.
    from tacit.privacy.coalitions import tries_all

    coalitions = comb(masks.keys.agents, curious)
    return coalitions <= _MOST_COALITIONS or not tries_all(masks.keys, curious)


def epsilons_against(
    account: Account,
    *,
    delta: float,
    adjacency: Adjacency,
    accountant: Accountant,
    promised: Observer = EVERYBODY,
) -> dict[str, float]:
    """Derive the highest ε of any owner against each observer, by the observer's key: "1", "2", …, "all".

    The `promised` observer is always among them.
    """
    observers = {*observers_of([line.mechanism for line in account.lines]), promised}
    numbers = sorted((each for each in observers if each.curious is not None), key=lambda each: each.curious or 0)
    return {
        observer.key: account.largest_epsilon(
            delta=delta, adjacency=adjacency, accountant=accountant, observer=observer
        )[1]
        for observer in (*numbers, EVERYBODY)
    }


def state_epsilon(unit: str, promised: Observer, epsilons: Mapping[str, float]) -> str:
    """State ε against whom it was promised and, where that is not everybody else together, against these, too."""
    stated = per(unit, format_epsilon(epsilons[promised.key]))
    if promised == EVERYBODY:
        return stated
    return f"{stated} against {promised}, and ε={format_epsilon(epsilons[EVERYBODY.key])} against {EVERYBODY}"
