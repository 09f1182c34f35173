"""Choices among computed numbers that do not depend on the last bit.

Two numbers that are equal but for rounding, such as the protection against an agent and against its mirror image, come out in one order on
one processor and in the other on the next. So whoever chooses among results of linear algebra, of long sums or of library functions, and
shows the choice, chooses here: numbers that differ by at most `relative` of their size are equal, and among equals the lowest place wins.

A tolerance only moves the line at which two numbers become different; but numbers that are equal in theory are nowhere near this one.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

RELATIVE = 1e-9
"""Far more than what rounding does to a float64, and far less than what makes one choice better than another."""


def first_largest(values: Iterable[float], *, relative: float = RELATIVE, scale: float = 0.0) -> int:
    """Return the place of the first value that equals the largest.

    scale: the size of the numbers that the values were computed from, where this may be more than the size of the values, as it is of
    differences: values that differ by at most `relative` of it are equal, too.

    NaN is chosen only where there is nothing else. Without any values this is an error, as with `max`.
    """
    numbers = _array(values)
    if not len(numbers):
        raise ValueError("there is nothing to choose from")
    return int(np.argmax(_equal(numbers, np.fmax.reduce(numbers), relative, scale)))


def first_smallest(values: Iterable[float], *, relative: float = RELATIVE, scale: float = 0.0) -> int:
    """Return the place of the first value that equals the smallest; see `first_largest`."""
    return first_largest(-_array(values), relative=relative, scale=scale)


def in_order(
    values: Iterable[float], *, descending: bool = False, relative: float = RELATIVE, scale: float = 0.0
) -> list[int]:
    """Return the places of all values from the smallest to the largest, or `descending`; equal ones by place, and NaN last.

    Equality within a tolerance is not transitive, so the values are cut into groups: a new group begins where the next larger value does not
    equal the one before. Values that differ by rounding are then never apart. Rounding every value to some digits would separate two that lie
    on both sides of a middle, however close they are.
    """
    numbers = _array(values)
    if descending:
        numbers = -numbers
    order = np.argsort(numbers, kind="stable")
    rising = numbers[order]
    group = np.cumsum(~_equal(rising[:-1], rising[1:], relative, scale))
    return order[np.lexsort((order, np.append(0, group)[: len(order)]))].tolist()


def _array(values: Iterable[float]) -> NDArray[np.float64]:
    return np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)


def _equal(some: NDArray[np.float64], others: NDArray[np.float64], relative: float, scale: float) -> NDArray[np.bool_]:
    """Say where numbers are equal; an infinity equals itself, and NaN every NaN."""
    with np.errstate(over="ignore"):  # of the difference of two huge numbers
        return np.isclose(some, others, rtol=relative, atol=relative * scale, equal_nan=True)
