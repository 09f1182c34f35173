"""Choices among computed numbers that do not depend on the last bit.

Two numbers that are equal but for rounding, such as the protection against an agent and against its mirror image, come out in one order on
one processor and in the other on the next. So whoever chooses among results of linear algebra, of long sums or of library functions, and
shows the choice, chooses here: numbers that differ by at most `relative` of their size are equal, and among equals the lowest place wins.

A tolerance only moves the line at which two numbers become different; but numbers that are equal in theory are nowhere near this one.
"""

import math
from collections.abc import Iterable

RELATIVE = 1e-9
"""Far more than what rounding does to a float64, and far less than what makes one choice better than another."""


def first_largest(values: Iterable[float], *, relative: float = RELATIVE, scale: float = 0.0) -> int:
    """Return the place of the first value that equals the largest.

    scale: the size of the numbers that the values were computed from, where this may be more than the size of the values, as it is of
    differences: values that differ by at most `relative` of it are equal, too.

    NaN is chosen only where there is nothing else. Without any values this is an error, as with `max`.
    """
    numbers = [float(value) for value in values]
    if not numbers:
        raise ValueError("there is nothing to choose from")
    largest = max((number for number in numbers if not math.isnan(number)), default=math.nan)
    return next((place for place, number in enumerate(numbers) if _equal(number, largest, relative, scale)), 0)


def first_smallest(values: Iterable[float], *, relative: float = RELATIVE, scale: float = 0.0) -> int:
    """Return the place of the first value that equals the smallest; see `first_largest`."""
    return first_largest((-value for value in values), relative=relative, scale=scale)


def in_order(
    values: Iterable[float], *, descending: bool = False, relative: float = RELATIVE, scale: float = 0.0
) -> list[int]:
    """Return the places of all values from the smallest to the largest, or `descending`; equal ones by place, and NaN last.

    Equality within a tolerance is not transitive, so the values are cut into groups: a new group begins where the next larger value does not
    equal the one before. Values that differ by rounding are then never apart. Rounding every value to some digits would separate two that lie
    on both sides of a middle, however close they are.
    """
    numbers = [-float(value) if descending else float(value) for value in values]
    groups: list[list[int]] = []
    for place in sorted(range(len(numbers)), key=lambda place: (math.isnan(numbers[place]), numbers[place])):
        if groups and _equal(numbers[groups[-1][-1]], numbers[place], relative, scale):
            groups[-1].append(place)
        else:
            groups.append([place])
    return [place for group in groups for place in sorted(group)]


def _equal(one: float, other: float, relative: float, scale: float) -> bool:
    return math.isclose(one, other, rel_tol=relative, abs_tol=relative * scale)
