"""Normals from words: the error of the fast ones is measured, and the exact ones are compared digit by digit."""

import math

import mpmath
import numpy as np
import pytest
import torch
from ideal import ideal, signed

from tacit.errors import PrivacyError
from tacit.privacy import normals
from tacit.privacy.distances import LEVELS, LOG2_UNDECIDED
from tacit.privacy.normals import ERROR, RADII, Normal, box_muller, nearest
from tacit.privacy.randomness import Seeded

ULP = 2.0**-52


def radius_word(u, negative=False):
    word = round(u * 2**63)
    return -word % 2**64 if negative else min(word, 2**63 - 1)


def odd_pairs():
    """Words at the ends of what is trusted, and angles at and beside every quarter of a circle."""
    smallest = math.exp(-(RADII[1] ** 2) / 2)
    largest = 1 - RADII[0] ** 2 / 2
    radii = [smallest * f for f in (1.0 + 1e-9, 1.001, 1.1, 2, 7)] + [
        1 - (1 - largest) * f for f in (1.0001, 1.1, 3, 50)
    ]
    radii += [0.1, 0.5, 0.9]
    words = [radius_word(u, negative) for u in radii for negative in (False, True)]
    angles = [
        (quarter * 2**62 + beside) % 2**64 for quarter in range(4) for beside in (-(2**20), -3, -1, 0, 1, 2, 2**9)
    ]
    return np.array([[r, a] for r in words for a in angles], dtype=np.uint64).T


def drawn_pairs(count):
    return Seeded(5).make(1)[0].next().words(2 * count).reshape(2, count)


@pytest.mark.parametrize("pairs", [drawn_pairs(20_000), odd_pairs()], ids=["drawn", "odd"])
def test_fast_normals_keep_to_their_error_whatever_the_bits_behind_the_point(pairs):
    """Against the ideal normal with all further bits 0 and all 1: an error is largest at one of them."""
    values, radius = box_muller(pairs.reshape(1, -1))
    trusted = ((radius >= RADII[0]) & (radius <= RADII[1]))[0].tolist()
    assert sum(trusted) > 0.99 * len(trusted)
    halves = values.reshape(2, -1)
    context, worst = mpmath.MPContext(), 0.0
    context.prec = 160
    for place, inside in enumerate(trusted):
        if not inside:
            continue
        for more in (0, 1):
            u = abs(context.mpf(signed(pairs[0, place]) + more)) / 2**63
            r = context.sqrt(-2 * context.log(u))
            angle = context.mpf(signed(pairs[1, place]) + more) / 2**63 * context.pi
            for half, wave in zip(halves, (context.cos, context.sin), strict=True):
                worst = max(worst, abs(float(float(half[place]) - r * wave(angle))))
    assert 2.0**-60 < worst <= ERROR


def test_library_functions_are_within_a_quarter_of_what_is_allowed():
    """The bound takes 8 ulps of logarithm and square root and 2⁻⁴⁹ of sine and cosine; two and 2⁻⁵¹ are seen at most."""
    words = torch.from_numpy(drawn_pairs(10_000).view("<i8").copy()).double()
    u = torch.cat([words[0].abs() * 2.0**-63, 1 - torch.logspace(-12, -1, 2_000, dtype=torch.float64)])
    angle = words[1] * (2.0**-64 * 2 * math.pi)
    context = mpmath.MPContext()
    context.prec = 120

    def worst(fast, slow, points, relative):
        pairs = zip(fast(points).tolist(), points.tolist(), strict=True)
        errors = ((abs(value - slow(context.mpf(point))), abs(value)) for value, point in pairs)
        return max(float(error / (size if relative else 1)) for error, size in errors)

    assert worst(torch.log, context.log, u, relative=True) < 2 * ULP
    assert worst(torch.sqrt, context.sqrt, -2 * u.log(), relative=True) < 2 * ULP
    assert worst(torch.cos, context.cos, angle, relative=False) < 2.0**-51
    assert worst(torch.sin, context.sin, angle, relative=False) < 2.0**-51


def test_a_row_of_words_gives_the_same_normals_alone_and_beside_others():
    words = drawn_pairs(3 * 1001).reshape(3, -1)
    together = box_muller(words)
    for row in range(3):
        alone = box_muller(words[row : row + 1])
        torch.testing.assert_close(together.values[row], alone.values[0], rtol=0, atol=2.0**-46)


def test_exact_rounding_agrees_with_two_hundred_digits():
    stream = Seeded(1).make(1)[0].next()
    words = stream.words(2 * 1_000).reshape(2, -1)
    for place in range(1_000):
        pair = (int(words[0, place]), int(words[1, place]))
        shift, sine = (place % 97) / 97 - 0.5, place % 2 == 1

        def more(level, place=place):
            return stream.more(place, level)

        expected = shift + 1500.25 * ideal(*pair, more, sine)
        assert nearest(shift, [Normal(1500.25, pair, more, sine)]) == math.floor(expected + 0.5)


@pytest.mark.parametrize("word", [0, 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1])
def test_exact_rounding_at_the_ends_of_the_radius(word):
    """U near 0, where the radius is more than 9, and near 1, where it is near 0."""
    stream = Seeded(2).make(1)[0].next()

    def more(level):
        return stream.more(7, level)

    for angle in (0, 2**61 + 12345, 2**63):
        expected = 0.125 + 2000.0 * ideal(word, angle, more, False)
        assert nearest(0.125, [Normal(2000.0, (word, angle), more, False)]) == math.floor(expected + 0.5)


@pytest.mark.parametrize(("levels", "last", "expected"), [(0, 1, 0), (3, 1, 0), (9, 2**255, 0)])
def test_a_tie_is_decided_by_the_first_bit_that_breaks_it(levels, last, expected):
    """A quarter turn and a shift of one half: only bits behind the point say on which side the cosine falls."""
    asked = []

    def more(level):
        asked.append(level)
        return bytes([255] * 32) + (last if level == levels else 0).to_bytes(32, "little")

    assert nearest(0.5, [Normal(1024.0, (2**61, 2**62), more, False)]) == expected
    assert asked == list(range(levels + 1)) or asked == list(range(levels + 2))


def test_what_no_bit_decides_is_refused(monkeypatch):
    monkeypatch.setattr(normals, "LEVELS", 5)
    with pytest.raises(PrivacyError, match="did not decide"):
        nearest(0.5, [Normal(1024.0, (2**61, 2**62), lambda level: bytes(64), False)])
    with pytest.raises(PrivacyError, match="did not decide"):
        nearest(0.0, [Normal(1024.0, (0, 2**60), lambda level: bytes(64), False)])


def test_the_chance_of_no_decision_is_that_of_all_levels():
    assert LOG2_UNDECIDED == 2 - 128 * LEVELS == -1_048_574


def test_precision_of_others_is_neither_used_nor_changed():
    with mpmath.workprec(5):
        assert nearest(0.3, [Normal(1024.0, (2**61, 2**60), lambda level: bytes(64), True)]) == round(
            0.3 + 1024 * math.sqrt(4 * math.log(2)) * math.sin(math.pi / 8)
        )
        assert mpmath.mp.prec == 5
