"""What noise with bands means for accounting: how often a record's group has its turn, and how long a column of C may be.

See `bands` for the theorem. This is a module of its own because reading a ledger needs only this much of it.
"""

import math
from collections.abc import Sequence

from tacit.errors import PrivacyError

MOST_BANDS = 128
ROOM = 2.0**-16
"""How much shorter than 1 a column of C is: room for the rounding of Σ c_k S_{t-k}, see `bands.check_rounding`."""


def turns_of(queries: int, groups: int) -> int:
    """Return how often a record's group has its turn in this many queries, at most."""
    return -(-queries // groups)


def check_column(column: Sequence[float], groups: int) -> None:
    """Refuse coefficients with which a record would count for more than one query, or beyond its group's next turn."""
    if not 2 <= len(column) <= groups:
        raise PrivacyError(
            f"noise has {len(column)} bands and records have {groups} groups; there must be at least two bands, and no more bands than groups"
        )
    if not all(0 <= each < math.inf for each in column) or not column[0] > 0:
        raise PrivacyError("the coefficients of bands are numbers that are not negative, the first of them positive")
    if math.sqrt(math.fsum(each * each for each in column)) > 1 - ROOM:
        raise PrivacyError(
            f"the coefficients of bands have a norm above {1 - ROOM:.6f}, so that a record would count for more than is charged"
        )
