"""What engines compute, against a slow loop over records: sums, norms that no record can pass, blocks."""

import copy

import pytest
import torch
from layer_models import (
    MODELS,
    TiedWords,
    Words,
    make_lot,
    setting,
    slow_sums,
    thetas,
)
from torch import nn

from tacit.models import FlatModel, resnet9
from tacit.privacy import VmapEngine
from tacit.privacy.gradients import GhostEngine, choose_engine, ghost
from tacit.privacy.gradients.blocks import batches_of, choose_size
from tacit.privacy.gradients.clipping import Lot


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("size", "compiled"), [(2, False), (16, False), (4, True)])
def test_clipped_and_plain_sums_agree_with_a_slow_loop(name, size, compiled, monkeypatch):
    """Compiled steps use other rules for some layers; here they are run as they are written."""
    monkeypatch.setattr(ghost, "_compile", lambda step, given: step)
    module, model, theta, lot = setting(name)
    engine = GhostEngine(model, [4], lot, compiled=compiled, size=size)
    _, norms = slow_sums(module, model, theta, lot)
    clip = torch.full((4,), float(norms.median()), dtype=torch.float64)
    expected, _ = slow_sums(module, model, theta, lot, clip.tolist())
    with torch.no_grad():
        found = engine.clipped_sums(theta, lot, clip)
        plain = engine.plain_sums(theta, lot)
    assert (norms > clip[0]).any()
    assert (norms < clip[0]).any()
    exact = (
        engine.runner.kernel.exact
    )  # else a norm is an upper bound, by at most LEAST_SHARE of what positions add up to
    torch.testing.assert_close(found.norms, norms, rtol=1e-9 if exact else 1e-4, atol=1e-12)
    assert (found.norms >= norms * (1 - 1e-12)).all()
    torch.testing.assert_close(found.sums, expected, rtol=0, atol=9 * 2**-15 * float(clip[0]))
    torch.testing.assert_close(plain, slow_sums(module, model, theta, lot)[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_a_users_module_is_left_as_it_was(name):
    module, model, theta, lot = setting(name)
    kinds = [type(layer) for layer in module.modules()]
    hooks = [len(layer._forward_hooks) for layer in module.modules()]
    GhostEngine(model, [4], lot).clipped_sums(theta, lot, torch.ones(4, dtype=torch.float64))
    for left in (module, model.training_module):
        assert [type(layer) for layer in left.modules()] == kinds
        assert [len(layer._forward_hooks) for layer in left.modules()] == hooks


def test_blocks_of_a_large_model_are_small():
    assert choose_size([256.0], most=17) <= 16
    assert choose_size([256.0], most=0) == 1
    engine = GhostEngine(FlatModel(resnet9((3, 32, 32), 10)), [64.0], make_lot((3, 32, 32), [1]))
    assert 4 * engine.numbers_kept * engine.runner.shape.size <= 80 * 2**20


def test_parameters_that_are_used_twice_count_as_kept_for_each_record():
    """Their per-sample gradients are made, which the memory of a step must allow for."""
    kept = {}
    for tied in (False, True):
        module = TiedWords()
        if not tied:
            module.out.weight = nn.Parameter(torch.zeros(7, 6))
        kept[tied] = GhostEngine(FlatModel(module), [4], make_lot(None, [3])).numbers_kept
    assert kept[True] == kept[False] + 7 * 6


@pytest.mark.parametrize("poison", [float("inf"), float("nan"), 1e38])
@pytest.mark.parametrize(
    "name", ["mlp", "convnet", "linear over positions", "many channels, few positions", "a layer of one's own"]
)
def test_a_record_that_is_not_finite_counts_as_zero_and_harms_no_other(name, poison):
    module, model, theta, lot = setting(name)
    model, theta = FlatModel(copy.deepcopy(module).float()), theta.float()
    engine = GhostEngine(model, [4], lot)
    lot = lot._replace(inputs=lot.inputs.float())
    clip = torch.full((4,), 1.0, dtype=torch.float64)
    with torch.no_grad():
        whole = engine.clipped_sums(theta, lot, clip)
        lot.inputs[2] = poison
        poisoned = engine.clipped_sums(theta, lot, clip)
        without = [0, 1, 3, 4, *range(5, 15)]
        rest = Lot(lot.inputs[without], lot.targets[without], torch.tensor([0, 4, 4, 5, 14]))
        expected = engine.clipped_sums(theta, rest, clip)
    assert poisoned.sums.isfinite().all()
    if not poisoned.norms[2].isfinite():
        torch.testing.assert_close(poisoned.sums, expected.sums, rtol=1e-5, atol=1e-6)
    assert float((poisoned.sums - expected.sums).norm(dim=1).max()) <= 1.0
    torch.testing.assert_close(poisoned.sums[1:], whole.sums[1:], rtol=1e-5, atol=1e-6)


def test_positions_that_cancel_never_pass_the_bound():
    """Ghost norms of float32 numbers that cancel would come out too small, or even negative, without their slack."""
    torch.manual_seed(0)
    layer = nn.Sequential(
        nn.Linear(40, 40, bias=False), nn.Flatten(), nn.Linear(80, 3, bias=False).requires_grad_(False)
    )
    model = FlatModel(layer)
    theta = model.flatten(layer)[None]
    with torch.no_grad():
        first = torch.randn(64, 1, 40) * 1e3
        inputs = torch.cat([first, first * (1 + 1e-6)], dim=1)
        # opposite output gradients at the two positions, which hold nearly the same inputs
        weight = model.training_module[2].weight
        weight[:, 40:] = -weight[:, :40]
        lot = Lot(inputs, torch.zeros(64, dtype=torch.long), torch.tensor([0, 64]))
        engine = GhostEngine(model, [1], lot, size=1)
        clip = torch.full((1,), 1e-3, dtype=torch.float64)
        exact = FlatModel(copy.deepcopy(layer).double())
        exact.training_module[2].weight.data = weight.double()
        true = VmapEngine(exact).clipped_sums(theta.double(), lot._replace(inputs=inputs.double()), clip)
        found = engine.clipped_sums(theta, lot, clip)
    assert (found.norms >= true.norms * (1 - 1e-6)).all()


def test_the_sum_as_computed_keeps_one_records_influence_within_the_bound():
    """5,000 equal records of norm C: in float32 the sum would move by another amount with one record less."""
    torch.manual_seed(0)
    module = nn.Linear(30, 10)
    model = FlatModel(module)
    lot = Lot(torch.randn(1, 30).expand(5000, 30).clone(), torch.zeros(5000, dtype=torch.long), torch.tensor([0, 5000]))
    less = Lot(lot.inputs[:-1], lot.targets[:-1], torch.tensor([0, 4999]))
    clip = torch.full((1,), 0.1, dtype=torch.float64)
    engine, theta = GhostEngine(model, [5000], lot), model.flatten(module)[None]
    with torch.no_grad():
        moved = engine.clipped_sums(theta, lot, clip).sums - engine.clipped_sums(theta, less, clip).sums
    assert float(moved.norm()) <= 0.1
    assert float(moved.norm()) == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize(("size", "at_once"), [(1, 4), (2, 1), (3, 7), (8, 2)])
def test_blocks_hold_every_record_once_and_nobody_elses_besides(size, at_once):
    counts = [5, 0, 1, 8, 3]
    lot = Lot(torch.arange(1, 18.0), torch.arange(1, 18), torch.tensor([0, *counts]).cumsum(0))
    held = {agent: [] for agent in range(5)}
    for step in batches_of(lot, size, at_once):
        assert step.keep.shape == (at_once, size)
        for agent, rows, keep in zip(step.agents.tolist(), step.rows, step.keep, strict=True):
            held[agent] += lot.inputs[rows[keep]].tolist()
            if keep.any():
                assert set(rows[~keep].tolist()) <= {int(lot.offsets[agent])}
    for agent, count in enumerate(counts):
        assert held[agent] == lot.inputs[int(lot.offsets[agent]) :][:count].tolist()


def test_lots_that_are_empty_make_no_step():
    assert not list(batches_of(Lot(torch.zeros(0), torch.zeros(0), torch.tensor([0, 0, 0])), 4, 2))


def test_block_sizes_follow_the_lots():
    assert choose_size([1.0]) <= 4
    assert 4 <= choose_size([10.0] * 300) <= 24
    assert choose_size([256.0]) == 32


class Pooled(nn.Module):
    """A layer at many positions, then their mean: positions can cancel each other."""

    def __init__(self, bias):
        super().__init__()
        self.first, self.out = nn.Linear(4, 8, bias=bias), nn.Linear(8, 3).requires_grad_(False)

    def forward(self, x):
        return self.out(self.first(x).mean(1))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("positions", [2, 16, 64])
@pytest.mark.parametrize("size", [1.0, 2.0**10, 2.0**33])
def test_a_record_whose_positions_cancel_in_float32_is_clipped_all_the_same(positions, size, bias):
    """What is lost in one order of adding float32 numbers, and not in another, must not pass the norm."""
    torch.manual_seed(0)
    module = Pooled(bias)
    model = FlatModel(module)
    inputs = torch.full((1, positions, 4), size)
    inputs[0, 0], inputs[0, -1] = 2.0**26 * size, -(2.0**26) * size
    lot = Lot(inputs, torch.tensor([1]), torch.tensor([0, 1]))
    example = Lot(torch.randn(4, positions, 4), torch.tensor([0, 1, 2, 0]), torch.tensor([0, 4]))
    theta, clip = model.flatten(module)[None], torch.full((1,), 0.1, dtype=torch.float64)
    chosen = choose_engine(model, theta[0], example, lot_sizes=[1], queries=1, private=True, compile=False)
    assert isinstance(chosen.engine, GhostEngine)
    with torch.no_grad():
        assert float(chosen.engine.clipped_sums(theta, lot, clip).sums.norm()) <= 0.1


@pytest.mark.parametrize("scale", [1e14, 1e16, 1e18])
def test_squares_that_underflow_do_not_shorten_a_norm(scale):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(40, 40, bias=False), nn.Flatten())
    model = FlatModel(module, loss=lambda outputs, targets: 1e-23 * outputs.sum(1))
    lot = Lot(scale * torch.randn(1, 2, 40), torch.tensor([0]), torch.tensor([0, 1]))
    engine = GhostEngine(model, [1], lot)
    clip = torch.full((1,), 1e-9, dtype=torch.float64)
    with torch.no_grad():
        assert float(engine.clipped_sums(model.flatten(module)[None], lot, clip).sums.norm()) <= 1e-9


def test_an_index_that_is_in_no_table_counts_as_zero_and_reads_no_other_agents_row():
    torch.manual_seed(0)
    module = Words().double()
    model = FlatModel(module)
    lot = make_lot(None, [3, 3])
    theta, clip = thetas(model, 2), torch.ones(2, dtype=torch.float64)
    engine = GhostEngine(model, [3], lot)
    with torch.no_grad():
        before = engine.clipped_sums(theta, lot, clip)
        lot.inputs[1, 2] = 99
        after = engine.clipped_sums(theta, lot, clip)
    assert not after.norms[1].isfinite()
    assert torch.equal(after.sums[1], before.sums[1])
    assert float((after.sums[0] - before.sums[0]).norm()) <= 1.0


@pytest.mark.parametrize("length", [0.0, 1e-310, 1e-200, 1e-3, 1e200, 1e300])
@pytest.mark.parametrize("height", [1e-305, 1e-100, 1.0, 1e5])
@pytest.mark.parametrize("clip", [1e-9, 1.0, 1e9])
def test_sums_of_the_longest_and_shortest_float64_vectors_are_finite_and_bounded(length, height, clip):
    module = nn.Linear(4, 2).double()
    model = FlatModel(module, lambda outputs, targets: height * outputs.sum(1))
    lot = Lot(torch.full((3, 4), length, dtype=torch.float64), torch.zeros(3), torch.tensor([0, 3]))
    engine = GhostEngine(model, [3.0], lot)
    with torch.no_grad():
        bound = torch.tensor([clip], dtype=torch.float64)
        sums = engine.clipped_sums(model.flatten(module)[None], lot, bound).sums
    assert sums.isfinite().all()
    assert float(sums.norm()) <= 3 * clip


@pytest.mark.parametrize("length", [1e-311, 1e-310, 1e-309, 1e-306, 1.0])
def test_several_positions_too_short_to_be_divided_by_their_length_are_bounded(length):
    """Their directions came out shorter than one, and a record with a huge target counted for 28 times the clipping norm."""

    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(64, 64, bias=False)

        def forward(self, inputs):
            return self.linear(inputs).sum((1, 2))

    module = Positions().double()
    model = FlatModel(module, lambda outputs, targets: outputs * targets)
    lot = Lot(
        torch.full((1, 4, 64), length, dtype=torch.float64),
        torch.tensor([min(1e307, 1 / length)], dtype=torch.float64),
        torch.tensor([0, 1]),
    )
    engine = GhostEngine(model, [1.0], lot)
    clip = torch.tensor([1e-3], dtype=torch.float64)
    with torch.no_grad():
        found = engine.clipped_sums(model.flatten(module)[None], lot, clip)
    assert 0 < float(found.sums.norm()) <= 1e-3
