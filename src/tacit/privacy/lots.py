"""Poisson lots: every record is in the lot independently with the same fixed, public probability."""

import numpy as np
import numpy.typing as npt

from tacit.privacy.randomness import Stream


def draw_lot(stream: Stream, records: int, rate: float) -> npt.NDArray[np.int64]:
    """Return the positions of the records that are in the lot; there may be none, or all.

    A record is in when its 64-bit word lies below ⌊q·2⁶⁴⌋, so its chance is q or a hair (2⁻⁶⁴) less, never more.
    """
    if rate >= 1:
        return np.arange(records, dtype=np.int64)
    return np.flatnonzero(stream.words(records) < np.uint64(int(rate * 2.0**64)))
