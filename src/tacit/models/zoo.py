"""Models to start with. Each is a plain module that treats every record on its own (no batch norm)."""

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from tacit.errors import ModelError, choose
from tacit.registry import MODELS


def logistic(input_shape: Sequence[int], classes: int) -> nn.Module:
    """Multinomial logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes))


def mlp(input_shape: Sequence[int], classes: int, hidden: Sequence[int] = (64,)) -> nn.Module:
    """Fully connected layers with Mish between them."""
    widths = [math.prod(input_shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.Mish()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


def convnet(input_shape: Sequence[int], classes: int) -> nn.Module:
    """The paper's network for MNIST: 38,424 parameters at 1×32×32 and ten classes."""
    channels, height, width = _image(input_shape, at_least=6)
    pooled = 3 * ((height - 4) // 2) * ((width - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 3, kernel_size=5),
        nn.Mish(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(pooled, 64),
        nn.Mish(),
        nn.Linear(64, classes),
    )


def resnet9(input_shape: Sequence[int], classes: int, groups: int = 16, width: int = 64) -> nn.Module:
    """The paper's network for CIFAR-100: three residual stages, group norm instead of batch norm.

    The first convolution has `width` channels, and the last eight times as many.
    """
    channels, _, _ = _image(input_shape, at_least=8)
    layers: list[nn.Module] = [_convolution(channels, width, groups, pool=False)]
    for before, after in pairwise(width * factor for factor in (1, 2, 4, 8)):
        layers.append(_convolution(before, after, groups, pool=True))
        layers.append(
            _Residual(
                nn.Sequential(
                    _convolution(after, after, groups, pool=False),
                    _convolution(after, after, groups, pool=False),
                )
            )
        )
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8 * width, classes))


def build(name: str, input_shape: Sequence[int], classes: int) -> nn.Module:
    """Build a model by name."""
    model: nn.Module = MODELS[choose("model", name, MODELS)](input_shape, classes)
    return model


class _Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = inputs + self.inner(inputs)
        return outputs


def _convolution(before: int, after: int, groups: int, *, pool: bool) -> nn.Module:
    convolution = nn.Conv2d(before, after, kernel_size=3, padding=1)
    rest = [nn.GroupNorm(groups, after), nn.LeakyReLU(0.1)]
    return nn.Sequential(convolution, *([nn.MaxPool2d(2)] if pool else []), *rest)


def _image(shape: Sequence[int], at_least: int) -> tuple[int, int, int]:
    if len(shape) != 3 or min(shape[1:]) < at_least:
        raise ModelError(
            f"this model needs images of shape (channels, height, width) of at least {at_least}×{at_least}, "
            f"got {tuple(shape)}"
        )
    channels, height, width = shape
    return channels, height, width
