"""Views of a record: one gradient of one record, whatever computes it, and no part of the model in use."""

import networkx as nx
import pytest
import torch

import tacit
from tacit.models import CROSS, FlatModel, Shift, Views, convnet, cross_entropy, views_cross_entropy
from tacit.privacy.clipping import Lot, VmapEngine
from tacit.privacy.engines import GhostEngine


@pytest.mark.parametrize("shift", [*CROSS, Shift(2, -1)])
def test_a_shift_moves_pixels_and_brings_in_zeros(shift):
    images = torch.arange(1.0, 2 * 3 * 5 * 4 + 1).reshape(2, 3, 5, 4)
    moved = shift(images)
    for row in range(5):
        for column in range(4):
            came_from = row - shift.down, column - shift.right
            inside = 0 <= came_from[0] < 5 and 0 <= came_from[1] < 4
            expected = images[..., came_from[0], came_from[1]] if inside else torch.zeros(2, 3)
            assert torch.equal(moved[..., row, column], expected)


def test_the_loss_is_the_mean_over_views_in_training_and_the_plain_one_in_use():
    module = convnet((1, 8, 8), 3)
    model, plain = FlatModel(Views(module), views_cross_entropy), FlatModel(module)
    theta = plain.flatten(module)
    inputs, targets = torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    by_hand = sum(plain.losses(theta, view(inputs), targets) for view in CROSS) / 5
    torch.testing.assert_close(model.losses(theta, inputs, targets, training=True), by_hand)
    assert torch.equal(model.outputs(theta, inputs), plain.outputs(theta, inputs))


def test_a_record_is_clipped_once_for_all_of_its_views():
    """The layer-by-layer engine, the general one, and a loop: the mean's gradient is clipped, not each view's."""
    module = Views(convnet((1, 8, 8), 3).double(), CROSS[:3])
    model = FlatModel(module, views_cross_entropy)
    generator = torch.Generator().manual_seed(0)
    lot = Lot(
        torch.randn(5, 1, 8, 8, generator=generator, dtype=torch.float64),
        torch.tensor([0, 1, 2, 1, 0]),
        torch.tensor([0, 2, 5]),
    )
    thetas = 0.5 * torch.randn(2, model.size, generator=generator, dtype=torch.float64)
    expected, clip = torch.zeros_like(thetas), 0.7
    for agent, record in ((0, 0), (0, 1), (1, 2), (1, 3), (1, 4)):
        at = thetas[agent].clone().requires_grad_()
        views = [
            cross_entropy(model.outputs(at, view(lot.inputs[record][None])), lot.targets[record][None])
            for view in module.views
        ]
        (gradient,) = torch.autograd.grad(torch.stack(views).mean(), at)
        assert gradient.norm() > clip
        expected[agent] += gradient * clip * (1 - 1e-5) / gradient.norm()
    for engine in (GhostEngine(model, [2.0, 3.0], lot), VmapEngine(model)):
        with torch.no_grad():
            sums = engine.clipped_sums(thetas, lot, torch.full((2,), clip, dtype=torch.float64)).sums
        torch.testing.assert_close(sums, expected, rtol=1e-7, atol=1e-9)


def test_a_run_with_views_costs_what_it_costs_without():
    data = tacit.data.load("digits").split(3, tacit.data.IID())
    shared = {
        "data": data,
        "graph": nx.cycle_graph(3),
        "privacy": tacit.Privacy(epsilon=4.0, delta=1e-3, clip=1.0, lot_size=16),
        "rounds": 5,
        "lr": 0.5,
    }
    shape = data.data.input_shape
    viewed = tacit.train(tacit.DSGT(), model=lambda: Views(convnet(shape, 10)), loss=views_cross_entropy, **shared)
    plain = tacit.train(tacit.DSGT(), model=lambda: convnet(shape, 10), **shared)
    assert viewed.guarantees() == plain.guarantees()
    assert viewed.plan.noise_multipliers == plain.plan.noise_multipliers
    assert viewed.accuracy.shape == (3,)
