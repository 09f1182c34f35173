"""Released numbers are those of the ideal mechanism on a public grid, every one of them, and tell nothing else."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from ideal import ideal_number

from tacit.errors import PrivacyError
from tacit.privacy import Fast, Secret, Seeded, accounting, noise
from tacit.privacy.distances import LOG2_DISTANCE, LOG2_UNDECIDED
from tacit.privacy.noise import BAND, GridNoise, grid
from tacit.privacy.normals import ERROR, RADII, box_muller
from tacit.privacy.randomness import BLOCK, ChaChaStream

KEY = bytes(range(32))


class Chosen(ChaChaStream):
    """A keystream whose words for normals are chosen; the bits behind them are its own."""

    def __init__(self, words):
        super().__init__(KEY, nonce=bytes(12))
        self.chosen = np.asarray(words, dtype=np.uint64)

    def words(self, count):
        assert count == len(self.chosen)
        return self.chosen


def one_agent(sigma=7.19, clip=10.0, lot=1.0):
    return GridNoise(clips=[clip], noise_multipliers=[sigma], lot_sizes=[lot], device=torch.device("cpu"))


def release(grid_noise, sums, streams, dtype=torch.float64):
    out = torch.empty(sums.shape, dtype=dtype)
    grid_noise.release(sums.clone(), streams, [], slice(0, len(sums)), out)
    return out


def integers(row, step):
    exact = [Fraction(value) / Fraction(step) for value in row.tolist()]
    assert all(value.denominator == 1 for value in exact)
    return [int(value) for value in exact]


def expected_integers(sums, scale, step, words, stream):
    half = len(words) // 2
    return [
        ideal_number(
            total,
            scale,
            step,
            (words[column % half], words[half + column % half]),
            lambda level, place=column % half: stream.more(place, level),
            sine=column >= half,
        )
        for column, total in enumerate(sums.tolist())
    ]


@pytest.fixture
def decided_again(monkeypatch):
    """The numbers that were decided again."""
    asked, right = [], noise.nearest

    def watched(*args, **options):
        asked.append((args, options))
        return right(*args, **options)

    monkeypatch.setattr(noise, "nearest", watched)
    return asked


@pytest.mark.parametrize(
    ("sigma", "clip", "size"), [(7.19, 10.0, 300.0), (1.0, 1.0, 1e-6), (3e-7, 1e-9, 1.0), (1e5, 1e9, 1e20)]
)
def test_every_number_is_that_of_the_ideal_mechanism(sigma, clip, size):
    scale = math.nextafter(sigma * clip, math.inf)
    sums = size * torch.randn(4_001, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    words = Seeded(3).make(1)[0].next().words(4_002)
    found = integers(release(one_agent(sigma, clip), sums[None], [Chosen(words)])[0], grid(scale))
    expected = expected_integers(sums, scale, grid(scale), words, Chosen(words))
    # Beyond 2⁵³ the integer is rounded to float64, which is made of it alone.
    assert found == [int(float(each)) for each in expected]
    assert found == expected or max(map(abs, expected)) > 2**53


def test_numbers_beside_a_boundary_are_decided_as_the_ideal_ones(decided_again):
    """Sums are placed so that what is rounded is within 2⁻³⁰, and down to an ulp, of the middle between two integers.

    Rounding in float64 alone gets hundreds of them wrong.
    """
    scale = math.nextafter(71.9, math.inf)
    step, count = grid(scale), 4_000
    words = Seeded(4).make(1)[0].next().words(count)
    values = box_muller(words[None]).values[0]
    generator = torch.Generator().manual_seed(1)
    middles = torch.randint(-3000, 3000, (count,), generator=generator) + 0.5
    beside = torch.randn(count, generator=generator, dtype=torch.float64) * 2.0 ** torch.randint(
        -45, -30, (count,), generator=generator
    )
    sums = (middles - values * (scale / step) + beside) * step
    found = integers(release(one_agent(), sums[None], [Chosen(words)])[0], step)
    expected = expected_integers(sums, scale, step, words, Chosen(words))
    assert found == expected
    assert len(decided_again) == count
    naive = ((sums / step) + values * (scale / step)).round().long().tolist()
    assert sum(a != b for a, b in zip(naive, expected, strict=True)) > 100


def test_pairs_that_float64_does_badly_are_decided_again(decided_again):
    """U = 0 and beside it, where the logarithm is infinite, and U = 1; both halves of each."""
    radii = [0, 1, 2**64 - 1, 2**39 - 2**10, 2**63 - 1, 2**63, 2**63 + 5, 2**63 - 2**37]
    words = [*radii, *(2**61 + 2**55 * k for k in range(len(radii)))]
    scale = math.nextafter(71.9, math.inf)
    sums = torch.linspace(-50, 50, 16, dtype=torch.float64)
    found = integers(release(one_agent(), sums[None], [Chosen(words)])[0], grid(scale))
    assert found == expected_integers(sums, scale, grid(scale), words, Chosen(words))
    assert len(decided_again) == 16


@pytest.mark.chance(1e-13)
def test_few_numbers_are_decided_again(decided_again):
    """Expected are a million times 2·2048·BAND for boundaries, 2⁻²⁴ and 2⁻²⁵ for radii: 0.15, and seldom 9 and more."""
    count = 2**20
    release(one_agent(), torch.zeros(1, count, dtype=torch.float64), [Secret().make(1)[0].next()])
    assert len(decided_again) < 9
    assert count * (2 * 2048 * BAND + 2.0**-24 + 2.0**-25) < 0.2


@pytest.mark.parametrize("width", [1, 2, 7, 1001, BLOCK + 3])
def test_an_agents_numbers_do_not_depend_on_who_is_beside_it_or_on_threads(width):
    many = GridNoise(
        clips=[1.0, 2.0, 1.0, 0.5, 3.0],
        noise_multipliers=[1.0, 1.0, 5.0, 0.1, 1.0],
        lot_sizes=[1, 2, 3, 4, 5],
        device=torch.device("cpu"),
    )
    sums = torch.randn(5, width, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    together = release(many, sums, [source.next() for source in Seeded(3).make(5)])
    out = torch.empty_like(together)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for agent, source in enumerate(Seeded(3).make(5)):
            part = slice(agent, agent + 1)
            many.release(sums[part].clone(), [source.next()], [], part, out[part])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(together, out)


def test_a_keystream_beside_another_source_is_still_decided_exactly(decided_again):
    words = [0, 2**61]  # U = 0: float64 alone would release an infinity
    both = GridNoise(clips=[1.0] * 2, noise_multipliers=[1.0] * 2, lot_sizes=[1.0] * 2, device=torch.device("cpu"))
    out = release(both, torch.zeros(2, 2, dtype=torch.float64), [Fast(0).make(1)[0].next(), Chosen(words)])
    alone = release(one_agent(1.0, 1.0), torch.zeros(1, 2, dtype=torch.float64), [Chosen(words)])
    assert torch.equal(out[1], alone[0])
    assert len(decided_again) == 4


@pytest.mark.parametrize("kind", [Secret(), Seeded(0), Fast(0)], ids=["secret", "seeded", "fast"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_leaves_lies_on_the_grid(kind, dtype):
    sums = 40 * torch.randn(2, 5_000, dtype=torch.float64)
    noisy = GridNoise(
        clips=[1.0, 3.0], noise_multipliers=[5.0, 1.0], lot_sizes=[64.0, 16.0], device=torch.device("cpu")
    )
    out = release(noisy, sums, [source.next() for source in kind.make(2)], dtype)
    for row, lot, step in zip(out.double(), (64, 16), (2.0**-8, 2.0**-9), strict=True):
        integers(row * lot, step)


def test_a_zero_has_no_sign():
    """-0 and 0 are one number of the grid. Sums are placed so that half of all numbers are 0."""
    words = Seeded(8).make(1)[0].next().words(20_000)
    scale = math.nextafter(1.0, math.inf)
    step = grid(scale)
    values = box_muller(words[None]).values[0]
    sums = -values * scale + step * torch.empty(20_000, dtype=torch.float64).uniform_(
        -1, 1, generator=torch.Generator().manual_seed(0)
    )
    for dtype in (torch.float32, torch.float64):
        out = release(one_agent(1.0, 1.0), sums[None], [Chosen(words)], dtype)
        zeros = out[out == 0]
        assert len(zeros) > 5_000
        assert not torch.signbit(zeros).any()


@pytest.mark.parametrize("scale", [1.0, 1.5, 2.0 - 2**-52, 71.9, 1e-9, 1e18, 2.0**-500])
def test_the_grid_is_the_largest_power_of_two_below_a_thousandth_of_the_noise(scale):
    step = grid(scale)
    assert math.frexp(step)[0] == 0.5
    assert step <= scale / 1024 < 2 * step


@pytest.mark.parametrize("scale", [0.0, 1e-200, 1e200, math.inf, math.nan])
def test_noise_outside_of_the_range_of_float64_is_refused(scale):
    with pytest.raises(PrivacyError, match="must lie between"):
        grid(scale)


def test_noise_is_never_less_than_what_is_charged():
    for sigma, clip in ((0.1, 0.3), (1.1, 1.1), (7.189, 1 / 3), (1e-9, 3.0)):
        made = one_agent(sigma, clip)
        scale = Fraction(float(made._rows.steps)) / Fraction(float(made._rows.per_unit))
        assert Fraction(sigma) * Fraction(clip) <= scale <= Fraction(sigma) * Fraction(clip) * (1 + Fraction(1, 2**50))


def test_the_band_is_eight_times_what_float64_can_be_wrong_by():
    """Product and sum, of at most 2,048 times the longest trusted radius, are rounded once each."""
    largest = 2048 * RADII[1] + 1
    assert 8 * (2048 * ERROR + 2 * largest * 2.0**-53) < 2048 * BAND


def test_the_distance_to_ideal_noise_is_far_below_delta():
    """ResNet-9, 6.6 million numbers, 20,000 queries at δ=1e-5: below δ/1,000; and what is charged covers 2⁶⁴ numbers."""
    numbers = 6_600_000 * 20_000
    assert numbers <= 2**64
    for epsilon in (1.0, 100.0, accounting.MOST_EPSILON):
        cost = LOG2_UNDECIDED + math.log2(numbers) + 1 + epsilon / math.log(2)  # of (1 + e^ε)·τ
        assert cost < math.log2(1e-5 / 1000)
    assert LOG2_DISTANCE == LOG2_UNDECIDED + 64
