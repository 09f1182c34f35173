"""The check before a run catches an engine that goes wrong for odd records, whatever the loss is like for others."""

import pytest
import torch
from torch import nn

from tacit.models import FlatModel, cross_entropy
from tacit.privacy.clipping import Lot
from tacit.privacy.engines import GhostEngine, Unsupported, checking


def hinge(outputs, targets):
    """Nothing for an ordinary record, so that its gradient is zero."""
    return (outputs.abs().sum(dim=1) - 100).clamp(min=0)


class Careless(GhostEngine):
    """Clips, but for lots with an odd record."""

    def clipped_sums(self, thetas, lot, clip):
        found = super().clipped_sums(thetas, lot, clip)
        odd = not bool((lot.inputs.abs() < 1e3).all())
        return found._replace(sums=100 * found.sums) if odd else found


@pytest.fixture(params=[cross_entropy, hinge])
def parts(request):
    torch.manual_seed(0)
    module = nn.Linear(5, 3)
    model = FlatModel(module, request.param)
    lot = Lot(torch.randn(6, 5), torch.arange(6) % 3, torch.tensor([0, 3, 3, 6]))
    return model, model.flatten(module), lot


def test_an_engine_that_lets_an_odd_record_through_is_refused(parts, monkeypatch):
    model, theta, lot = parts
    checking.check_against(model, theta, lot, [2.0])
    monkeypatch.setattr(checking, "GhostEngine", Careless)
    with pytest.raises(Unsupported, match="odd record"):
        checking.check_against(model, theta, lot, [2.0])


def test_a_compiled_one_is_refused_too(parts):
    model, theta, lot = parts
    sound, careless = GhostEngine(model, [2.0], lot), Careless(model, [2.0], lot)
    checking.check_compiled(sound, sound, model, theta, lot, private=True)
    with pytest.raises(Unsupported, match="odd record"):
        checking.check_compiled(careless, sound, model, theta, lot, private=True)
