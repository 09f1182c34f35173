"""Quick pooling gives what torch's own gives, to the bit, and leaves alone what it cannot do."""

import pytest
import torch
from torch import nn
from torch.func import vmap
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.models.pooling import QuickPools


class Operations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def both(function, inputs):
    """Return what torch gives, what quick pools give, and whether torch's own pooling was used for the latter."""
    expected = function(inputs)
    with Operations() as operations, QuickPools():
        found = function(inputs)
    return expected, found, any("pool" in name for name in operations.seen)


@pytest.mark.parametrize("shape", [(4, 3, 28, 28), (2, 1, 7, 9), (3, 5, 6), (0, 2, 4, 4), (1, 1, 3, 3)])
@pytest.mark.parametrize(
    "pool",
    [
        lambda x: functional.max_pool2d(x, 2),
        lambda x: torch.max_pool2d(x, 2),
        lambda x: functional.max_pool2d(x, 3, stride=3),
        lambda x: functional.max_pool2d(x, (1, 3), (1, 3)),
        nn.MaxPool2d((3, 2)),
    ],
)
def test_maxima_of_slices_are_those_of_windows(shape, pool):
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    if inputs.numel():
        inputs.flatten()[::11] = torch.nan
        inputs.flatten()[::7] = -torch.inf
        inputs.flatten()[::5] = 1.0
    expected, found, own = both(pool, inputs)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert found.shape == expected.shape
    assert not own


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: functional.max_pool2d(x, 3, stride=2),
        lambda x: functional.max_pool2d(x, 2, padding=1),
        lambda x: functional.max_pool2d(x, 2, dilation=2),
        lambda x: functional.max_pool2d(x, 2, ceil_mode=True),
        lambda x: functional.max_pool2d(x, 2, return_indices=True)[1],
        lambda x: functional.avg_pool2d(x, 2),
    ],
)
def test_what_is_something_else_is_left_to_torch(pool):
    expected, found, own = both(pool, torch.randn(2, 3, 9, 9))
    assert torch.equal(expected, found)
    assert own


def test_models_that_are_called_at_once_are_pooled_as_well():
    inputs = torch.randn(5, 2, 3, 8, 8)
    expected, found, own = both(vmap(nn.MaxPool2d(2)), inputs)
    assert torch.equal(expected, found)
    assert not own
