"""Views of a record: one gradient of one record, whatever computes it, and no part of the model in use."""

import networkx as nx
import pytest
import torch
from torch import nn

import tacit
from tacit.models import CROSS, FlatModel, Shift, Views, convnet, cross_entropy, views_cross_entropy
from tacit.privacy import VmapEngine
from tacit.privacy.gradients import GhostEngine, choose_engine
from tacit.privacy.gradients.clipping import HAIR, Lot


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
        expected[agent] += gradient * clip * (1 - HAIR) / gradient.norm()
    for engine in (GhostEngine(model, [2.0, 3.0], lot), VmapEngine(model)):
        with torch.no_grad():
            sums = engine.clipped_sums(thetas, lot, torch.full((2,), clip, dtype=torch.float64)).sums
        torch.testing.assert_close(sums, expected, rtol=1e-7, atol=1e-9)


def settings(data):
    return {
        "data": data,
        "graph": nx.cycle_graph(3),
        "privacy": tacit.Privacy(epsilon=4.0, delta=1e-3, clip=1.0, lot_size=16),
        "rounds": 2,
        "lr": 0.5,
        "loss": views_cross_entropy,
    }


@pytest.fixture(scope="module")
def digits():
    return tacit.data.load("digits").split(3, tacit.data.IID())


def test_a_run_with_views_scores_and_gives_the_plain_model(digits):
    result = tacit.train(tacit.DSGT(), model=lambda: Views(convnet((1, 8, 8), 10)), **settings(digits))
    assert result.accuracy.shape == (3,)
    assert result.module(0)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


@pytest.mark.slow
def test_compiled_views_are_layer_by_layer():
    """A small model, and lots that make blocks of one size alone: every layer and every size is compiled anew."""
    lot = Lot(torch.randn(6, 1, 8, 8), torch.arange(6), torch.tensor([0, 2, 6]))
    module = Views(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)), CROSS[:2])
    model = FlatModel(module, views_cross_entropy)
    theta = model.flatten(module)
    chosen = choose_engine(model, theta, lot, lot_sizes=[256.0] * 2, queries=10, compile=True, private=True)
    assert chosen.why == "layer by layer, compiled"
    assert chosen.engine.runner.shape.size == 32
    thetas, clip = theta.repeat(2, 1), torch.full((2,), 0.3, dtype=torch.float64)
    with torch.no_grad():
        ours, general = (each.clipped_sums(thetas, lot, clip) for each in (chosen.engine, VmapEngine(model)))
    torch.testing.assert_close(ours.sums, general.sums, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "view",
    [lambda images: images.roll(1, dims=0), lambda images: images - images.mean(dim=0)],
    ids=["the neighbour's record", "less the mean of all"],
)
def test_a_view_that_mixes_records_is_refused(view, digits):
    with pytest.raises(tacit.TacitError, match="other"):
        tacit.train(tacit.DSGT(), model=lambda: Views(convnet((1, 8, 8), 10), [view]), **settings(digits))


def test_a_loss_that_mixes_records_in_training_alone_is_refused(digits):
    def mixing(outputs, targets):
        losses = views_cross_entropy(outputs, targets)
        return losses if outputs.dim() == 2 else losses + losses.mean()

    with pytest.raises(tacit.TacitError, match="the loss of a record changes with the others in its batch"):
        tacit.train(tacit.DSGT(), model=lambda: Views(convnet((1, 8, 8), 10)), **settings(digits) | {"loss": mixing})


@pytest.mark.parametrize("views", [(), (nn.Conv2d(1, 1, 3),)], ids=["none", "a layer"])
def test_views_that_are_none_are_refused(views):
    with pytest.raises(tacit.TacitError, match="one or more fixed functions"):
        Views(nn.Identity(), views)
