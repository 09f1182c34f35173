import pytest
import torch
from torch import nn

from tacit.errors import ModelError
from tacit.models import build, check_module, mlp
from tacit.registry import MODELS

EXAMPLE = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))


class Centre(nn.Module):
    """Mixes samples without being called a norm."""

    def forward(self, x):
        return x - x.mean(dim=0)


class Counter(nn.Module):
    """Holds state in an ordinary attribute."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.calls


class Remember(nn.Module):
    """Keeps its last input, which may be a private record."""

    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        self.last = x.detach()
        return x


class Running(nn.Module):
    """Keeps a running mean in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        self.mean += 0.1 * (x.detach().mean(dim=0) - self.mean)
        return x


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            nn.Sequential(nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))),
            r"BatchNorm1d '1.1' mixes samples, so a per-sample gradient does not exist; use GroupNorm",
        ),
        (nn.Sequential(nn.Linear(6, 6), nn.SyncBatchNorm(6)), "SyncBatchNorm '1' mixes samples"),
        (nn.Sequential(nn.Linear(6, 6), Centre()), "Centre '1' mixes samples"),
        (nn.Sequential(nn.Linear(6, 6), Counter()), "Counter '1' changes its 'calls'"),
        (nn.Sequential(nn.Linear(6, 6), Running()), "Running '1' changes its 'mean'"),
        (nn.Sequential(nn.Linear(6, 6), Remember()), "Remember '1' changes its 'last'"),
        (nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)), "Dropout '0' gives another output .* as dropout does"),
        (nn.Sequential(nn.LazyLinear(3)), "LazyLinear '0' has no parameters yet"),
        (nn.Linear(5, 3), r"fails on a batch of torch.float32 of shape \(2, 6\)"),
    ],
    ids=["batch norm", "sync batch norm", "centre", "counter", "running", "remember", "dropout", "lazy", "wrong shape"],
)
def test_refuses_and_names_the_layer(module, message):
    with pytest.raises(ModelError, match=message):
        check_module(module, EXAMPLE)


class Own(nn.Module):
    """Mixes in its own forward, between innocent layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        hidden = self.first(x)
        return self.second(hidden / hidden.std(dim=0))


def test_names_the_module_whose_own_forward_mixes():
    with pytest.raises(ModelError, match="Own mixes samples"):
        check_module(Own(), EXAMPLE)


class Attention(nn.Module):
    """A transformer layer over the words of each record: treats records on their own."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True, dropout=0.0)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.layer(self.embed(x)).mean(dim=1))


@pytest.mark.parametrize(
    ("module", "example"),
    [
        (nn.Sequential(nn.Dropout(0.0), nn.Linear(6, 3)), EXAMPLE),
        (nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 3)).double(), EXAMPLE),
        (Attention(), torch.randint(0, 9, (3, 5))),
    ],
    ids=["dropout of nothing", "layer norm in float64", "attention"],
)
def test_accepts_modules_that_treat_samples_independently(module, example):
    before = {name: value.clone() for name, value in module.state_dict().items()}
    check_module(module, example)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize("name", MODELS)
def test_shipped_models_treat_samples_independently(name):
    test_accepts_modules_that_treat_samples_independently(build(name, (3, 16, 16), 4), torch.randn(3, 3, 16, 16))


def test_no_hook_stays_on_the_users_module():
    module = mlp((6,), 3)
    check_module(module, EXAMPLE)
    assert not any(layer._forward_hooks for layer in module.modules())
