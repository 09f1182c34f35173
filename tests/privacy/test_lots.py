"""Lots tested as a distribution. Each statistical test states how often it fails a perfect sampler whose source is secret."""

import numpy as np
import pytest
from scipy import stats
from source_kinds import every_kind

from tacit.privacy.lots import draw_lot
from tacit.privacy.randomness import Seeded


def draws(kind, records, rate, count):
    source = kind.make(1)[0]
    inside = np.zeros((count, records), dtype=bool)
    for row in inside:
        row[draw_lot(source.next(), records, rate)] = True
    return inside


@every_kind(seed=5, rate=2e-7)
@pytest.mark.parametrize("rate", [0.03, 0.5])
def test_every_record_is_in_with_the_same_probability(kind, rate):
    """A χ² test over 40 records' frequencies and a binomial test of all, 1e-7 each."""
    records, count = 40, 4000
    hits = draws(kind, records, rate, count).sum(axis=0)
    z = (hits - count * rate) / np.sqrt(count * rate * (1 - rate))
    assert stats.chi2.sf((z**2).sum(), records) > 1e-7
    assert stats.binomtest(int(hits.sum()), records * count, rate).pvalue > 1e-7


@every_kind(seed=5, rate=210e-9)
def test_records_are_in_independently_of_each_other_and_of_earlier_lots(kind):
    """Largest of 190 correlations between records and of 20 with the lot before, 1e-9 each."""
    count = 4000
    inside = draws(kind, 20, 0.3, count).astype(float)
    between = np.abs(np.corrcoef(inside.T)[np.triu_indices(20, 1)])
    before = [abs(np.corrcoef(column[1:], column[:-1])[0, 1]) for column in inside.T]
    assert max(*between, *before) * np.sqrt(count) < stats.norm.isf(5e-10)


@every_kind(seed=5, rate=1e-7)
def test_lot_sizes_are_binomial(kind):
    """A χ² test of sizes against the binomial law, which fixed-size lots would fail."""
    records, rate, count = 12, 0.25, 6000
    sizes = draws(kind, records, rate, count).sum(axis=1)
    cells = np.arange(8)
    seen = np.array([*(np.sum(sizes == k) for k in cells[:-1]), np.sum(sizes >= cells[-1])])
    law = stats.binom(records, rate)
    expected = count * np.array([*law.pmf(cells[:-1]), law.sf(cells[-1] - 1)])
    assert stats.chisquare(seen, expected).pvalue > 1e-7


def test_lots_may_be_empty_or_whole():
    stream = Seeded(0).make(1)[0].next()
    assert draw_lot(stream, 1000, 1e-12).tolist() == []
    assert draw_lot(stream, 3, 1.0).tolist() == [0, 1, 2]
    assert draw_lot(stream, 0, 0.5).tolist() == []


def test_positions_are_in_order_and_not_repeated():
    lot = draw_lot(Seeded(0).make(1)[0].next(), 500, 0.4)
    assert (np.diff(lot) > 0).all()
