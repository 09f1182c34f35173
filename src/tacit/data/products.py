"""Matrix products whose rounding does not depend on a record's place: widths are padded with zeros, which changes no value.

Rows of odd widths begin at odd addresses, where libraries round differently; columns that do not fill a tile of the library's
kernel are computed by another one. The mode below works beneath `vmap` and autograd, so it sees the products that torch
actually computes, for any code and in the backward pass.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.data.operations import check_labels, is_apart, is_hidden, operation_name

# Multiples to which widths are padded, found by testing a record at every place on x86 with torch's library; whether they
# are right on another machine is tested before a run.
_EVEN = 4
_TILE, _TILE_FROM = 24, 13  # of columns in float64
_aten = torch.ops.aten


class EvenProducts(TorchDispatchMode):
    """While active, every matrix product has even widths.

    `needed` says whether any had odd ones, or may have; `strange` names operations not known to keep records apart.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.needed = False
        self.strange: set[str] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Skip the compiler's wrapper, which takes longer than most operations: nothing here is compiled."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the operation, or its even form."""
        form = _EVEN_FORMS.get(func)
        if form is None:
            if not is_apart(func, args) or is_hidden():
                self.strange.add(operation_name(func))
                check_labels(func, args)
            return func(*args, **(kwargs or {}))
        self.needed = self.needed or func is not _aten.bmm.default or any(_fill(*args))
        return form(*args, **(kwargs or {}))


def even_product(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of two matrices, or of two stacks of them."""
    rows, columns = left.shape[-2], right.shape[-1]
    down, across, beside = _fill(left, right)
    if down or across:
        left = functional.pad(left, (0, across, 0, down))
    if across or beside:
        right = functional.pad(right, (0, beside, 0, across))
    product = (torch.mm if left.ndim == 2 else torch.bmm)(left, right)
    return product[..., :rows, :columns].contiguous()  # like torch's own result: some functions rely on that


def _fill(left: Tensor, right: Tensor) -> tuple[int, int, int]:
    """Return how many rows, inner places and columns must be added for even widths."""
    (rows, inner), columns = left.shape[-2:], right.shape[-1]
    return (
        -rows % _EVEN if left.ndim == 2 else 0,  # in a stack, rows are records; in one product columns may be
        -inner % _EVEN if inner > 1 else 0,  # with a single inner place nothing is added up
        even_width(columns, right.dtype) - columns,
    )


def even_width(columns: int, dtype: torch.dtype) -> int:
    """Return the padded number of columns of a product."""
    tile = _TILE if dtype == torch.float64 and columns >= _TILE_FROM else _EVEN
    return columns + -columns % tile


def even_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Return a convolution of one or two dimensions, by columns and products where the library's rounding depends on the place.

    That is in float64, and for kernels of a single pixel, which the library computes by products of its own.
    """
    axes = weight.ndim - 2
    if weight.dtype != torch.float64 and any(side > 1 for side in weight.shape[2:]):
        return (torch.conv1d, torch.conv2d)[axes - 1](input, weight, bias, stride, padding, dilation, groups)
    if input.ndim == axes + 1:
        return even_convolution(input[None], weight, bias, stride, padding, dilation, groups)[0]
    strides, dilations = _for_axes(stride, axes), _for_axes(dilation, axes)
    padded = functional.pad(input, padding_of(padding, weight.shape[2:], dilations))
    if axes == 1:
        padded, weight = padded.unsqueeze(-2), weight.unsqueeze(-2)
        strides, dilations = (1, *strides), (1, *dilations)
    kernel = (weight.shape[2], weight.shape[3])
    columns = functional.unfold(padded, kernel, dilation=dilations, stride=strides).unflatten(1, (groups, -1))
    outputs = (weight.reshape(groups, weight.shape[0] // groups, -1) @ columns).flatten(1, 2)
    height, width = (
        (padded.shape[axis - 2] - dilations[axis] * (kernel[axis] - 1) - 1) // strides[axis] + 1 for axis in (0, 1)
    )
    shaped = outputs.unflatten(2, (height, width))
    shaped = shaped if bias is None else shaped + bias[:, None, None]
    return shaped.squeeze(-2) if axes == 1 else shaped


def _for_axes(value: int | Sequence[int], axes: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * axes if len(values) == 1 else values


def padding_of(padding: str | int | Sequence[int], kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Return the padding before and after, last axis first."""
    if padding == "same":
        total = [dilation * (side - 1) for dilation, side in zip(dilations, kernel, strict=True)]
        both = [(each // 2, each - each // 2) for each in total]
    else:
        both = [(each, each) for each in _for_axes(0 if isinstance(padding, str) else padding, len(kernel))]
    return [side for pair in reversed(both) for side in pair]


def _added(added: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = even_product(left, right)
    product = product if alpha == 1 else alpha * product
    if beta == 0:  # then not even NaN in the padding counts
        return product
    return (added if beta == 1 else beta * added) + product


def _times_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    return even_product(matrix, vector[:, None])[:, 0]


def _inner(left: Tensor, right: Tensor) -> Tensor:
    return even_product(left[None], right[:, None])[0, 0]


def _added_vector(added: Tensor, matrix: Tensor, vector: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return _added(added[..., None], matrix, vector[:, None], beta=beta, alpha=alpha)[:, 0]


def _moved(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation that `vmap` calls record by record, each where it lies, on copies that all lie alike."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return operation(*(each.clone() if isinstance(each, Tensor) else each for each in args), **kwargs)

    return call


_EVEN_FORMS: dict[Any, Callable[..., Any]] = {
    _aten.mm.default: even_product,
    _aten.bmm.default: even_product,
    _aten.addmm.default: _added,
    _aten.baddbmm.default: _added,
    _aten.mv.default: _times_vector,
    _aten.addmv.default: _added_vector,
    _aten.dot.default: _inner,
    _aten.mkldnn_rnn_layer.default: _moved(_aten.mkldnn_rnn_layer.default),
    _aten.mkldnn_rnn_layer_backward.default: _moved(_aten.mkldnn_rnn_layer_backward.default),
}
