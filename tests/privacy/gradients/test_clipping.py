import pytest
import torch
from layer_models import Twice
from torch import nn

from tacit.models import FlatModel, convnet, mlp
from tacit.privacy import VmapEngine
from tacit.privacy.gradients.clipping import (
    HAIR,
    Lot,
    Quantum,
    Sample,
    clip_factors,
    exact_sums,
    factor_bits,
    lengths,
    power_below,
)
from tacit.privacy.gradients.queries import Queries


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.out = nn.Embedding(7, 6), nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.norm(self.embed(x)).mean(dim=1))


MODELS = {
    "mlp": (lambda: mlp((5,), 3, hidden=(4,)), (5,)),
    "tied and frozen": (Twice, (5,)),
    "convnet": (lambda: convnet((1, 8, 8), 3), (1, 8, 8)),
    "conv1d and group norm": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, 3)),
        (2, 6),
    ),
    "embedding and layer norm": (Words, None),
}


def make_lot(shape, counts, seed=0):
    generator = torch.Generator().manual_seed(seed)
    total = sum(counts)
    if shape is None:
        inputs = torch.randint(0, 7, (total, 4), generator=generator)
    else:
        inputs = torch.randn(total, *shape, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, 3, (total,), generator=generator)
    return Lot(inputs, targets, torch.tensor([0, *counts]).cumsum(0))


def clipped_sums(model, per_sample, public, lot, clip):
    """Ask for any per-sample vector, as a rule does."""
    width = per_sample_width(model, per_sample, public, lot)
    return Queries(model, [16.0], lot).runner(per_sample, public, width).clipped(public, lot, clip, width)


def per_sample_width(model, per_sample, public, lot):
    return len(per_sample(Sample(model, lot.inputs[0], lot.targets[0]), *(each[0] for each in public)))


def thetas(model, agents):
    generator = torch.Generator().manual_seed(1)
    return 0.5 * torch.randn(agents, model.size, generator=generator, dtype=torch.float64)


def slow_sums(module, model, theta, lot, clip=None):
    """Per record and agent: an ordinary backward pass of an ordinary module."""
    sums = torch.zeros_like(theta)
    for agent in range(len(theta)):
        copy = model.module(theta[agent])
        trained = [p for p in copy.parameters() if p.requires_grad]
        for row in range(int(lot.offsets[agent]), int(lot.offsets[agent + 1])):
            loss = nn.functional.cross_entropy(copy(lot.inputs[row : row + 1]), lot.targets[row : row + 1])
            g = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, trained)])
            if clip is not None:
                g = g * min(1.0, float(clip[agent]) * (1 - HAIR) / float(g.norm()))
            sums[agent] += g
    return sums


@pytest.mark.parametrize("name", MODELS)
def test_clipped_and_plain_sums_agree_with_a_slow_loop(name):
    make, shape = MODELS[name]
    module = make().double()
    model = FlatModel(module)
    lot = make_lot(shape, [3, 0, 5, 1])
    theta = thetas(model, 4)
    clip = torch.tensor([0.3, 1.0, 0.8, 1e6], dtype=torch.float64)
    engine = VmapEngine(model)
    with torch.no_grad():
        clipped, norms = engine.clipped_sums(theta, lot, clip)
        plain = engine.plain_sums(theta, lot)
    expected = slow_sums(module, model, theta, lot, clip)
    assert ((clipped - expected).abs() <= 9 * 2.0**-32 * clip[:, None]).all()  # each record is cut off to whole quanta
    torch.testing.assert_close(plain, slow_sums(module, model, theta, lot), rtol=0, atol=1e-11)
    assert norms.shape == (9,)
    assert not clipped[1].any()


def test_no_clipped_record_passes_the_bound_in_float32():
    """Even where every entry is equal, the case in which a float32 sum of squares falls short the most."""
    for width in (1, 255, 256, 38_424, 2_000_000):
        for values in (torch.full((2, width), 0.1), torch.randn(2, width) * 7):
            norms = lengths(values)
            exact = values.double().norm(dim=1)
            assert ((norms - exact).abs() / exact).max() < 1e-11
            clip = torch.tensor([0.3], dtype=torch.float64)
            factors = clip_factors(norms, clip)
            for row, factor in zip(values, factors, strict=True):
                cut = exact_sums(row[None, None], factor[None, None], Quantum(power_below(clip), factor_bits(10**4)))
                assert 0.999 * min(0.3, float(row.double().norm())) < float(cut.norm()) <= 0.3


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-160, 1.0, 1e150, 1e300])
def test_norms_of_float64_numbers_neither_vanish_nor_overflow(scale):
    values = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64) * scale
    assert lengths(values).tolist() == pytest.approx([5 * scale, 0.0], rel=1e-3)


@pytest.mark.parametrize("clip", [1e-9, 0.3, 1.0, 1e9])
def test_clipped_sums_are_whole_quanta_and_the_same_in_any_order(clip):
    torch.manual_seed(0)
    clip = torch.tensor([clip], dtype=torch.float64)
    quantum = Quantum(power_below(clip), factor_bits(5000))
    values = torch.randn(1, 5000, 7)
    weights = clip_factors(lengths(values), clip[:, None])
    order = torch.randperm(5000)
    one, other = (exact_sums(values[:, rows], weights[:, rows], quantum) for rows in (torch.arange(5000), order))
    assert torch.equal(one, other)
    assert torch.equal(one / quantum.size, (one / quantum.size).round())
    halves = sum(exact_sums(values[:, rows], weights[:, rows], quantum) for rows in order.split(1777))
    assert torch.equal(one, halves)
    assert float(power_below(clip)) <= float(clip) < 2 * float(power_below(clip))


def test_the_sum_as_computed_keeps_one_records_influence_within_the_bound():
    """Rounding must not let a record more change the sum by more than C; float32 sums would, by percents."""
    model = FlatModel(mlp((5,), 3))
    sums = []
    for count in (4000, 4001):
        lot = Lot(torch.ones(count, 5), torch.zeros(count, dtype=torch.long), torch.tensor([0, count]))

        def vector(record, theta):
            return torch.full((3,), 0.7) + 0 * record.input.sum()

        sums.append(clipped_sums(model, vector, (torch.zeros(1, 3),), lot, torch.tensor([0.9])).sums[0])
    assert 0.9 * (1 - 4e-5) < float((sums[1] - sums[0]).norm()) <= 0.9


def test_short_vectors_are_left_as_they_are():
    factors = clip_factors(torch.tensor([0.0, 1e-30, 0.5, 2.0]), torch.tensor(1.0))
    torch.testing.assert_close(factors, torch.tensor([1.0, 1.0, 1.0, 0.5]), rtol=2e-5, atol=0)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e38])
def test_a_gradient_that_is_not_finite_counts_as_zero(poison):
    module = mlp((5,), 3)
    model = FlatModel(module)
    lot = make_lot((5,), [4])
    lot = lot._replace(inputs=lot.inputs.float())
    theta = thetas(model, 1).float()
    engine, clip = VmapEngine(model), torch.tensor([0.5])
    without = Lot(lot.inputs[1:], lot.targets[1:], torch.tensor([0, 3]))
    expected = engine.clipped_sums(theta, without, clip).sums
    lot.inputs[0] = poison
    found = engine.clipped_sums(theta, lot, clip).sums
    assert found.isfinite().all()
    # 1e38 is finite: it may count, but for no more than C.
    assert (found - expected).norm() <= (0.5 if poison == 1e38 else 1e-6)


def test_any_per_sample_vector_is_clipped_and_summed():
    model = FlatModel(mlp((5,), 3).double())
    lot = make_lot((5,), [3, 4])
    public = torch.randn(2, 2, dtype=torch.float64)

    def per_sample(record, scale):
        return torch.stack([record.input.sum() * scale[0], scale[1] + record.target])

    clip = torch.tensor([0.5, 100.0], dtype=torch.float64)
    found = clipped_sums(model, per_sample, (public,), lot, clip).sums
    for agent, (first, last) in enumerate(((0, 3), (3, 7))):
        total = torch.zeros(2, dtype=torch.float64)
        for row in range(first, last):
            vector = torch.stack([lot.inputs[row].sum() * public[agent, 0], public[agent, 1] + lot.targets[row]])
            total += vector * min(1.0, float(clip[agent]) * (1 - HAIR) / float(vector.norm()))
        torch.testing.assert_close(found[agent], total, rtol=0, atol=1e-8)


def test_a_vector_that_is_not_finite_is_left_as_it_was():
    """A per-sample function may return a public tensor itself; nothing may be written into that."""
    model = FlatModel(mlp((5,), 3))
    public = torch.tensor([[1.0, torch.nan]])
    lot = make_lot((5,), [3])
    assert not clipped_sums(model, lambda record, vector: vector, (public,), lot, torch.ones(1)).sums.any()
    assert public.isnan().tolist() == [[False, True]]


def test_a_record_more_or_less_changes_a_sum_by_no_more_than_the_bound():
    """The promise itself, on data sets with and without a record, in float32, of one agent and of its neighbour."""
    model = FlatModel(convnet((1, 8, 8), 3))
    engine = VmapEngine(model)
    whole = make_lot((1, 8, 8), [9, 6])
    whole = whole._replace(inputs=whole.inputs.float())
    clip = torch.tensor([0.7, 0.2], dtype=torch.float64)
    theta = thetas(model, 2).float()
    found = engine.clipped_sums(theta, whole, clip)
    for gone in range(9):
        keep = torch.arange(15) != gone
        without = Lot(whole.inputs[keep], whole.targets[keep], torch.tensor([0, 8, 14]))
        change = found.sums - engine.clipped_sums(theta, without, clip).sums
        assert change[0].norm() <= 0.7
        assert change[0].any() or found.norms[gone] < 1e-6  # what is less than a quantum is nothing
        assert not change[1].any()


def test_an_infinite_record_of_one_agent_is_nothing_to_another():
    model = FlatModel(mlp((5,), 3))
    lot = make_lot((5,), [1, 3])
    lot = lot._replace(inputs=lot.inputs.float())
    lot.inputs[0] = torch.inf
    theta = thetas(model, 2).float()
    engine = VmapEngine(model)
    assert engine.plain_sums(theta, lot)[1].isfinite().all()
    assert engine.clipped_sums(theta, lot, torch.ones(2, dtype=torch.float64)).sums.isfinite().all()


def test_records_prepared_when_taken_are_those_prepared_before():
    """Also where `prepare` returns a view in which numbers share memory; nothing of the table is written to."""
    table, targets = torch.randn(9, 1, 4), torch.arange(9)
    before, rows = table.clone(), torch.tensor([7, 2, 5, 0])

    def prepare(inputs):
        return inputs.expand(-1, 3, -1)

    late = Lot(table, targets, torch.tensor([0, 3, 4]), rows, prepare)
    early = Lot(prepare(table[rows]).clone(), targets[rows], torch.tensor([0, 3, 4]))
    assert late.size == early.size == 4
    places = torch.tensor([[0, 1], [3, 0]])
    for one, other in zip(late.take(places), early.take(places), strict=True):
        assert torch.equal(one, other)
    late.take(places)[0].zero_()
    assert torch.equal(table, before)
