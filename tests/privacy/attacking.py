"""How an attack is played: engines, and sums with and without a record."""

import torch
from apart import check_apart
from torch import nn

from tacit.models import FlatModel
from tacit.privacy import Lot, VmapEngine, choose_engine
from tacit.privacy.gradients.checking import check_places


def engines(model, theta, example, lots):
    """Return the engine that a run would use, and the general one: in checked blocks for large lots, else one by one."""
    chosen = choose_engine(model, theta, example, lot_sizes=lots, queries=1, private=True, compile=False).engine
    if max(lots) < 100:
        return chosen, VmapEngine(model, lots, example, one_by_one=True)
    general = VmapEngine(model, lots, example)
    check_places(general.runner, (theta[None],), example)
    return chosen, general


def attack(module, loss, inputs, targets, counts, *, clip=1.0, leave_out, scale=1.0, example=None):
    """Leave records out of a lot, through every engine."""
    torch.manual_seed(0)
    model = FlatModel(module, loss)
    start = model.flatten(module)
    theta = (start if scale is None else scale * torch.randn(model.size, dtype=model.dtype)).repeat(len(counts), 1)
    example = example or Lot(torch.randn(7, *inputs.shape[1:]), targets[:1].repeat(7), torch.tensor([0, 7]))
    lot = Lot(inputs, targets, torch.tensor([0, *counts]).cumsum(0))
    bound = torch.full((len(counts),), clip, dtype=torch.float64)
    for engine in engines(model, theta[0], example, [float(max(counts))] * len(counts)):
        check_apart(engine, theta, lot, bound, leave_out)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(6, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.embed(x).mean(1))
