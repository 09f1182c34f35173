"""Choices among computed numbers: the same whatever their last bits are."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.ties import RELATIVE, first_largest, first_smallest, in_order

NAN, INF = math.nan, math.inf
LEVELS = st.lists(
    st.integers(-50, 50).map(lambda level: math.copysign(1.7 ** abs(level) - 1, level)), min_size=1, max_size=12
)


def _shaken(data, values):
    """Move every value by up to 50 units in the last place."""
    steps = data.draw(st.lists(st.integers(-50, 50), min_size=len(values), max_size=len(values)))
    return [value + step * math.ulp(value) for value, step in zip(values, steps, strict=True)]


@given(st.data(), LEVELS)
def test_the_last_bits_decide_nothing(data, values):
    shaken = _shaken(data, values)
    assert first_largest(shaken) == values.index(max(values))
    assert first_smallest(shaken) == values.index(min(values))
    assert in_order(shaken) == sorted(range(len(values)), key=lambda place: (values[place], place))
    assert in_order(shaken, descending=True) == sorted(range(len(values)), key=lambda place: (-values[place], place))


def test_the_pair_of_the_red_test_is_a_tie_in_both_orders():
    one, other = 0.5917159679397281, 0.5917159679397282
    assert one != other
    assert first_largest([one, other]) == first_largest([other, one]) == 0
    assert first_smallest([one, other]) == first_smallest([other, one]) == 0


@pytest.mark.parametrize("values", list(permutations([1.0, 1.0 + 2**-52, 1.0 - 2**-53, 2.0])))
def test_among_equals_the_lowest_place_wins_in_every_permutation(values):
    equal = [place for place, value in enumerate(values) if value != 2]
    assert first_smallest(values) == equal[0]
    assert first_largest(values) == values.index(2.0)
    assert in_order(values) == [*equal, values.index(2.0)]
    assert in_order(values, descending=True) == [values.index(2.0), *equal]


@given(st.lists(st.floats(), min_size=1, max_size=12))
def test_what_is_chosen_is_within_the_tolerance_of_the_extreme(values):
    order = in_order(values)
    assert sorted(order) == list(range(len(values)))
    known = [value for value in values if not math.isnan(value)]
    if not known:
        assert first_largest(values) == first_smallest(values) == 0
        return
    assert math.isclose(values[first_largest(values)], max(known), rel_tol=RELATIVE)
    assert math.isclose(values[first_smallest(values)], min(known), rel_tol=RELATIVE)
    assert first_smallest(values) in order[: len(known)]


def test_a_real_difference_decides():
    assert first_largest([1.0, 1.0 + 1e-8]) == 1
    assert first_largest([1.0, 1.0 + 1e-8], relative=1e-6) == 0
    assert in_order([1.0, 1.0 - 1e-8]) == [1, 0]


def test_differences_of_large_numbers_tie_by_the_scale_of_these():
    assert first_smallest([1e-16, 0.0]) == 1
    assert first_smallest([1e-16, 0.0], scale=1.0) == 0
    assert in_order([1e-16, 0.0, -1.0], scale=1.0) == [2, 0, 1]


def test_an_infinity_ties_with_itself_alone():
    assert first_largest([1e300, INF, INF]) == 1
    assert first_smallest([1e300, -INF, INF, -INF]) == 1
    assert in_order([INF, 1.0, -INF, INF]) == [2, 1, 0, 3]


def test_nan_is_chosen_only_where_there_is_nothing_else():
    assert first_largest([NAN, 1.0, NAN, 2.0]) == 3
    assert first_smallest([NAN, 1.0, NAN, 2.0]) == 1
    assert first_largest([NAN, NAN]) == first_smallest([NAN, NAN]) == 0
    assert in_order([NAN, 1.0, NAN, -1.0]) == [3, 1, 0, 2]
    assert in_order([NAN, 1.0, NAN, -1.0], descending=True) == [1, 3, 0, 2]


def test_nothing_to_choose_from_is_an_error_and_nothing_to_sort_is_none():
    for choose in (first_largest, first_smallest):
        with pytest.raises(ValueError, match="nothing to choose"):
            choose([])
    assert in_order([]) == []


def test_values_of_a_dict_and_of_an_array_may_be_given():
    assert first_largest({"a": 1.0, "b": 3.0}.values()) == 1
    assert first_smallest(np.array([3.0, 1.0], dtype=np.float32)) == 1
    assert in_order(value for value in (3, 1, 2)) == [1, 2, 0]
