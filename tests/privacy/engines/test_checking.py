"""The check before a run catches a kernel in which a record's place or its neighbours matter."""

import pytest
import torch
from layer_models import Twice
from torch import nn

from tacit.models import FlatModel, cross_entropy
from tacit.privacy.clipping import Lot
from tacit.privacy.engines import GhostEngine, Unsupported, VmapEngine, checking


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
    checking.check_places(engine.steps, (checking.anywhere(theta),), lot)
    sound = engine.steps.kernel.clipped

    def faulty(public, inputs, *rest):
        return fault(*sound(public, inputs, *rest), inputs)

    monkeypatch.setattr(engine.steps.kernel, "clipped", faulty, raising=False)
    with pytest.raises(Unsupported):
        checking.check_places(engine.steps, (checking.anywhere(theta),), lot)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_of_odd_widths_in_layers_without_a_rule_are_not_rounded_by_place(dtype):
    """A frozen layer runs as user code; unpadded, 244 of 400 records in float32 and 47 in float64 were rounded by place."""
    torch.manual_seed(0)
    model = FlatModel(Twice().to(dtype))
    records = Lot(torch.randn(100, 5), torch.arange(100) % 3, torch.tensor([0, 100]))
    theta = torch.randn(1, model.size, dtype=dtype)
    for engine in (GhostEngine(model, [6.0] * 3, records), VmapEngine(model, [6.0] * 3, records)):
        for place in range(100):
            one = Lot(records.inputs[place : place + 1], records.targets[place : place + 1], torch.tensor([0, 1]))
            checking.check_places(engine.steps, (theta,), one)
