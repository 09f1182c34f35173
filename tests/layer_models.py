"""Models with every kind of layer and every odd way to use one, and a slow loop over their records."""

import copy

import torch
from torch import nn
from torch.nn import functional

from tacit.models import FlatModel, convnet, cross_entropy, mlp
from tacit.privacy.gradients.clipping import HAIR, Lot


class Bias(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return x + self.bias


class Scaled(nn.Module):
    """A layer of one's own with parameters of its own and a child: taken as a whole."""

    def __init__(self):
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.ones(())), nn.Linear(5, 5)

    def forward(self, x):
        return self.scale * torch.sin(self.inner(x))


class Twice(nn.Module):
    """One layer called twice, a frozen one between."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 5)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.out = nn.Linear(5, 3)

    def forward(self, x):
        return self.out(torch.tanh(self.inner(self.frozen(torch.tanh(self.inner(x))))))


class TiedWords(nn.Module):
    """An embedding whose table is also the output layer's weight."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.out = nn.Embedding(7, 6), nn.LayerNorm(6), nn.Linear(6, 7)
        self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(self.norm(self.embed(x)).mean(dim=1))[:, :3]


class Words(nn.Module):
    def __init__(self, padding=None):
        super().__init__()
        self.embed = nn.Embedding(7, 6, padding_idx=padding)
        self.mix, self.norm, self.out = nn.Linear(6, 6), nn.LayerNorm((4, 6)), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.norm(torch.tanh(self.mix(self.embed(x)))).mean(dim=1))


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.out, self.spare = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x):
        self.spare(x)
        return self.out(x)


class Rooted(nn.Module):
    """Parameters beside the layers: no layer can be swapped."""

    def __init__(self):
        super().__init__()
        self.token, self.out = nn.Parameter(torch.zeros(5)), nn.Linear(5, 3)

    def forward(self, x):
        return self.out(x + self.token)


class Overwritten(nn.Module):
    """What a layer gave is overwritten in place."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.out(functional.relu_(self.first(torch.tanh(self.first(x)))))


class Borrowed(nn.Module):
    """One layer's weight is used outside of the layer."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.out(torch.tanh(self.first(x)) @ self.first.weight)


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(6, 2, batch_first=True)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.attend(x, x, x)[0].mean(dim=1))


def bias_only():
    model = mlp((5,), 3, hidden=(4,))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    return model


def weight_only():
    model = mlp((5,), 3, hidden=(4,))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("weight"))
    return model


def hooked():
    model = mlp((5,), 3, hidden=(4,))
    model[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    return model


def convolutions(*layers, shape):
    with torch.no_grad():
        width = nn.Sequential(*copy.deepcopy(layers))(torch.zeros(1, *shape)).numel()
    return lambda: nn.Sequential(*copy.deepcopy(layers), nn.Tanh(), nn.Flatten(), nn.Linear(width, 3))


MODELS = {
    "a single layer": (lambda: nn.Linear(5, 3), (5,)),
    "mlp": (lambda: mlp((5,), 3, hidden=(4,)), (5,)),
    "bias only": (bias_only, (5,)),
    "weight only": (weight_only, (5,)),
    "no bias": (lambda: nn.Sequential(nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Linear(4, 3)), (5,)),
    "in place": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Mish(inplace=True), nn.Linear(4, 3)), (5,)),
    "hooked": (hooked, (5,)),
    "a layer twice": (Twice, (5,)),
    "a bias layer": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), Bias(4), nn.Linear(4, 3)), (5,)),
    "a layer of one's own": (lambda: nn.Sequential(nn.Linear(5, 5), Scaled(), nn.Linear(5, 3)), (5,)),
    "an unused layer": (Unused, (5,)),
    "convnet": (lambda: convnet((1, 8, 8), 3), (1, 8, 8)),
    "linear over positions": (
        lambda: nn.Sequential(nn.Linear(4, 30), nn.Tanh(), nn.Linear(30, 2), nn.Flatten(), nn.Linear(12, 3)),
        (2, 3, 4),
    ),
    "conv1d and group norm": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, 3)),
        (2, 6),
    ),
    "conv2d, stride and padding": (
        convolutions(nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.Conv2d(3, 4, (2, 1), bias=False), shape=(2, 9, 8)),
        (2, 9, 8),
    ),
    "conv2d, same, dilated, circular": (
        convolutions(
            nn.Conv2d(1, 2, 3, padding="same", dilation=2),
            nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
            shape=(1, 7, 6),
        ),
        (1, 7, 6),
    ),
    "conv1d, padded and dilated": (
        convolutions(nn.Conv1d(3, 4, 3, padding=2, dilation=2, stride=2), shape=(3, 9)),
        (3, 9),
    ),
    "conv1d, reflected and repeated": (
        convolutions(
            nn.Conv1d(2, 3, 3, padding=2, padding_mode="reflect"),
            nn.Conv1d(3, 3, 2, padding=1, padding_mode="replicate"),
            nn.Conv1d(3, 2, 3, padding="same", padding_mode="circular"),
            shape=(2, 6),
        ),
        (2, 6),
    ),
    "many channels, few positions": (
        convolutions(nn.Conv2d(2, 32, 3, padding=1), nn.Conv2d(32, 32, 3, stride=2), shape=(2, 5, 5)),
        (2, 5, 5),
    ),
    "many channels, many positions": (
        convolutions(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.MaxPool2d(4), shape=(16, 12, 12)),
        (16, 12, 12),
    ),
    "groups": (convolutions(nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 2, 1), shape=(4, 5, 5)), (4, 5, 5)),
    "words": (Words, None),
    "words with padding": (lambda: Words(padding=2), None),
    "tied words": (TiedWords, None),
    "frozen norm": (
        lambda: nn.Sequential(
            nn.Linear(5, 4), nn.LayerNorm(4).requires_grad_(False), nn.GroupNorm(2, 4, affine=False), nn.Linear(4, 3)
        ),
        (5,),
    ),
}


WHOLE = {
    "parameters at the root": (Rooted, (5,)),
    "overwritten": (Overwritten, (5,)),
    "borrowed": (Borrowed, (5,)),
    "attention": (Attending, (4, 6)),
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


def thetas(model, agents):
    generator = torch.Generator().manual_seed(1)
    return 0.5 * torch.randn(agents, model.size, generator=generator, dtype=torch.float64)


def slow_sums(module, model, theta, lot, clip=None):
    """Per record and agent: an ordinary backward pass of an ordinary module."""
    sums, norms = torch.zeros_like(theta), []
    for agent in range(len(theta)):
        own = copy.deepcopy(module).double()
        parameters = dict(own.named_parameters())
        start = 0
        for name, count in zip(model.names, model.counts, strict=True):
            parameters[name].data = theta[agent, start : start + count].reshape(parameters[name].shape)
            start += count
        for record in range(int(lot.offsets[agent]), int(lot.offsets[agent + 1])):
            own.zero_grad()
            cross_entropy(own(lot.inputs[record][None]), lot.targets[record][None]).sum().backward()
            each = [parameters[name].grad for name in model.names]
            shapes = [parameters[name].shape for name in model.names]
            flat = torch.cat(
                [(torch.zeros(s) if g is None else g).flatten() for g, s in zip(each, shapes, strict=True)]
            )
            norms.append(float(flat.norm()))
            sums[agent] += flat if clip is None else flat * min(1.0, clip[agent] * (1 - HAIR) / norms[-1])
    return sums, torch.tensor(norms, dtype=torch.float64)


def setting(name):
    torch.manual_seed(0)
    make, shape = (MODELS | WHOLE)[name]
    module = make()
    module = module.double()
    model = FlatModel(module)
    lot = make_lot(shape, [5, 0, 1, 9])
    return module, model, thetas(model, 4), lot
