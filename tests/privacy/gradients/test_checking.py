"""The check before a run catches a kernel in which a record's place or its neighbours matter."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tacit.models import FlatModel, cross_entropy
from tacit.privacy.gradients import GhostEngine, Unsupported, VmapEngine, checking
from tacit.privacy.gradients.clipping import Lot


def hinge(outputs, targets):
    """Nothing for an ordinary record, so that its gradient is zero."""
    return (outputs.abs().sum(dim=1) - 100).clamp(min=0)


@pytest.fixture(params=[cross_entropy, hinge])
def parts(request):
    torch.manual_seed(0)
    module = nn.Linear(5, 3)
    model = FlatModel(module, request.param)
    lot = Lot(torch.randn(6, 5), torch.arange(6) % 3, torch.tensor([0, 3, 3, 6]))
    return GhostEngine(model, [6.0, 2.0], lot), model.flatten(module), lot


def spreads(sums, norms, inputs):
    """Where one record is odd, its neighbours are not clipped."""
    return (sums, norms) if bool((inputs.abs() < 1e3).all()) else (100 * sums, norms)


def rounds_the_last_row(sums, norms, inputs):
    """One place has another last bit, as in a vector that is not full."""
    norms = norms.clone()
    norms[-1, -1] = torch.nextafter(norms[-1, -1], torch.tensor(torch.inf, dtype=torch.float64))
    return sums, norms


def rounds_a_block(sums, norms, inputs):
    sums = sums.clone()
    sums[-1] = torch.nextafter(sums[-1], torch.tensor(torch.inf, dtype=torch.float64))
    return sums, norms


@pytest.mark.parametrize("fault", [spreads, rounds_the_last_row, rounds_a_block])
def test_a_kernel_in_which_places_matter_is_refused(parts, fault, monkeypatch):
    engine, theta, lot = parts
    checking.check_places(engine.runner, (checking.anywhere(theta),), lot)
    sound = engine.runner.kernel.clipped

    def faulty(data, *rest):
        return fault(*sound(data, *rest), data.inputs)

    monkeypatch.setattr(engine.runner.kernel, "clipped", faulty, raising=False)
    with pytest.raises(Unsupported):
        checking.check_places(engine.runner, (checking.anywhere(theta),), lot)


WAYS = {
    "linear": lambda x, frozen: functional.linear(x, frozen),
    "at": lambda x, frozen: x @ frozen.T,
    "from the left": lambda x, frozen: (frozen @ x.T).T,
    "einsum": lambda x, frozen: torch.einsum("ij,kj->ik", x, frozen),
    "vector": lambda x, frozen: (frozen @ x[0])[None],
    "inner": lambda x, frozen: x * torch.dot(x[0], frozen[0]),
    "add": lambda x, frozen: torch.addmm(x, x, frozen.T),
    "attention": lambda x, frozen: functional.scaled_dot_product_attention(*[x[:, None] * frozen] * 3).mean(1),
}


class Multiplies(nn.Module):
    """Matrix products in the code of a model, in each way in which torch writes them, around layers with a rule."""

    def __init__(self, way):
        super().__init__()
        self.before, self.after, self.way = nn.Linear(5, 5), nn.Linear(5, 3), WAYS[way]
        self.register_buffer("frozen", torch.randn(5, 5))

    def forward(self, x):
        return self.after(torch.tanh(self.way(torch.tanh(self.before(x)), self.frozen)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("way", "threads"), [*((way, 1) for way in WAYS), ("linear", 2), ("vector", 2)])
def test_products_of_odd_widths_in_any_code_are_not_rounded_by_place(way, dtype, threads):
    """Unpadded, `linear` rounded 61 % of records in float32 by their place and 12 % in float64."""
    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        model = FlatModel(Multiplies(way).to(dtype))
        example = Lot(torch.randn(7, 5), torch.arange(7) % 3, torch.tensor([0, 7]))
        theta = torch.randn(1, model.size, dtype=dtype)
        for engine in (GhostEngine(model, [6.0] * 3, example), VmapEngine(model, [6.0] * 3, example)):
            places = engine.runner.shape.size * engine.runner.shape.blocks
            for record in torch.randn(15, 5):
                lot = Lot(record.repeat(places, 1), torch.ones(places, dtype=torch.long), torch.tensor([0, places]))
                norms = engine.clipped_sums(theta, lot, torch.ones(1)).norms
                assert bool((norms == norms[0]).all()), type(engine).__name__
    finally:
        torch.set_num_threads(before)


def test_a_preparation_in_which_places_matter_is_refused(parts):
    """The third row of a batch has another last bit."""
    engine, theta, lot = parts

    def prepare(inputs):
        factor = torch.ones(len(inputs), 1)
        factor[2:3] += 2.0**-22
        return inputs * factor

    with pytest.raises(Unsupported, match="the rounding of prepare depends on a record's place"):
        checking.check_places(engine.runner, (checking.anywhere(theta),), lot._replace(prepare=prepare))


def test_a_model_that_refuses_one_kind_of_odd_record_is_tried_with_the_others(parts, monkeypatch):
    """A kernel that fails on NaN was tried with ordinary records alone, and its fault beside huge ones was not seen."""
    engine, theta, lot = parts
    sound = engine.runner.kernel.clipped

    def faulty(data, *rest):
        if bool(data.inputs.isnan().any()):
            raise ValueError("no numbers")
        return spreads(*sound(data, *rest), data.inputs)

    monkeypatch.setattr(engine.runner.kernel, "clipped", faulty, raising=False)
    with pytest.raises(Unsupported):
        checking.check_places(engine.runner, (checking.anywhere(theta),), lot)
