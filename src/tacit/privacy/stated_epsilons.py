"""ε of a run as it is stated, against each observer: any one other agent, any two, and so on, and everybody else together.

Without masks all of these are the same, and only the last is stated. All values come from one account in the ledger.
"""

from collections.abc import Mapping, Sequence
from math import comb

from tacit.privacy.accounting import Accountant, Adjacency
from tacit.privacy.accounts import Account
from tacit.privacy.guarantees import format_epsilon, per
from tacit.privacy.mechanisms import Mechanism
from tacit.privacy.noise_kinds import Masked, Masks
from tacit.privacy.observers import EVERYBODY, Observer

_MOST_NUMBERS = 10  # of curious agents that are stated
_MOST_COALITIONS = 20_000  # that are tried for one number; where there are far more, a bound takes no longer than this


def observers_of(mechanisms: Sequence[Mechanism], planned: Observer = EVERYBODY) -> tuple[Observer, ...]:
    """Return against whom ε of these agents is stated, the weakest observer first and everybody else last.

    The `planned` observer is always among them.
    """
    masks = next((each.noise.masks for each in mechanisms if isinstance(each.noise, Masked)), None)
    numbers = set() if planned.curious is None else {planned.curious}
    if masks is not None:
        # With one curious agent more, nobody is left to share masks with.
        for curious in range(1, min(masks.keys.agents - 1 - masks.lost, _MOST_NUMBERS + 1)):
            if not _is_quick(masks, curious + masks.lost):
                break
            numbers.add(curious)
    return (*map(Observer, sorted(numbers)), EVERYBODY)


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
    planned: Observer = EVERYBODY,
) -> dict[str, float]:
    """Derive the highest ε of any owner against each observer, by the observer's key: "1", "2", …, "all".

    The `planned` observer is always among them.
    """
    return {
        observer.key: account.largest_epsilon(
            delta=delta, adjacency=adjacency, accountant=accountant, observer=observer
        )[1]
        for observer in observers_of([line.mechanism for line in account.lines], planned)
    }


def find_cut_off(mechanisms: Sequence[Mechanism], observer: Observer) -> list[int]:
    """Return the agents whom masks do not protect from an observer: all with whom they share keys may be curious, or lost.

    They have their own noise alone, and so the ε that they have against everybody else together.
    """
    return [
        place
        for place, each in enumerate(mechanisms)
        if isinstance(each.noise, Masked) and each.noise_against(observer) == each.noise_multiplier
    ]


def state_epsilon(unit: str, planned: Observer, epsilons: Mapping[str, float]) -> str:
    """State ε against the planned observer and, where that is not everybody else together, against them as well."""
    stated = per(unit, format_epsilon(epsilons[planned.key]))
    if planned == EVERYBODY:
        return stated
    return f"{stated} against {planned}, and ε={format_epsilon(epsilons[EVERYBODY.key])} against {EVERYBODY}"
