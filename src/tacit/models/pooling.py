"""Max pooling as maxima of slices: the same numbers as torch's own, in a tenth of the time on a CPU.

torch's kernel reads an image number by number. If pooling windows do not overlap, a maximum over rows and one over columns give
the largest number of every window, and both work on whole vectors. This is for scoring only: the gradient at a tie would differ.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Sides = int | Sequence[int]


class QuickPools(TorchFunctionMode):
    """While active, two-dimensional max pooling uses maxima of slices wherever that gives the same numbers."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function, or its fast form."""
        given = kwargs or {}
        quick = _pooled(*args, **given) if func in _POOLS else None
        return func(*args, **given) if quick is None else quick


def _pooled(
    input: Tensor,
    kernel_size: Sides,
    stride: Sides | None = None,
    padding: Sides = 0,
    dilation: Sides = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    """Return the maxima of windows, or None where they overlap, leave gaps or reach beyond the image."""
    tall, wide = _pair(kernel_size)
    disjoint = stride in (None, [], ()) or _pair(stride) == (tall, wide)
    if not disjoint or _pair(padding) != (0, 0) or _pair(dilation) != (1, 1) or ceil_mode or return_indices:
        return None
    height, width = input.shape[-2] // tall * tall, input.shape[-1] // wide * wide
    if input.device.type != "cpu" or not height or not width:
        return None
    rows = _largest([input[..., row:height:tall, :width] for row in range(tall)])
    return _largest([rows[..., column::wide] for column in range(wide)])


def _largest(slices: list[Tensor]) -> Tensor:
    largest = slices[0]
    for each in slices[1:]:
        largest = torch.maximum(largest, each)
    return largest


def _pair(sides: Sides) -> tuple[int, int]:
    if isinstance(sides, int):
        return sides, sides
    return (sides[0], sides[-1])


_POOLS = (functional.max_pool2d, torch.max_pool2d)
