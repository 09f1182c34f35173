"""Convolutions of stacked agents, in three ways; the cheapest follows from the layer's shape alone.

One dimension is treated as two with a height of one. Convolutions with groups are left to `whole.WholeRule`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.data.products import even_width, padding_of
from tacit.privacy.gradients.clipping import Quantum, only
from tacit.privacy.gradients.layers import (
    Accounted,
    Call,
    LayerRule,
    Parameters,
    account_per_sample,
    cut_off,
    gram_product,
    scaled,
)

Convolution = nn.Conv1d | nn.Conv2d
# Products for one output position, times output channels.
_SHIFTED_CELLS = 256
_LOOPED_CELLS = 4096


def convolution_rule(layer: Convolution, trainable: frozenset[str], *, compiled: bool) -> LayerRule:
    """Choose shifted sums for few cells if compiled, one convolution per block for many, columns in between."""
    geometry = _Geometry(layer)
    if compiled and geometry.cells <= _SHIFTED_CELLS:
        return ShiftedRule(geometry, trainable)
    return (LoopedRule if geometry.cells >= _LOOPED_CELLS else ColumnsRule)(geometry, trainable)


class _Geometry:
    """How outputs meet inputs."""

    def __init__(self, layer: Convolution) -> None:
        self.flat = isinstance(layer, nn.Conv1d)
        self.kernel = _pair(layer.kernel_size)
        self.stride, self.dilation = _pair(layer.stride), _pair(layer.dilation)
        self.channels = layer.in_channels
        self.cells = layer.in_channels * layer.out_channels * self.kernel[0] * self.kernel[1]
        self._pads = padding_of(layer.padding, layer.kernel_size, layer.dilation)
        self._mode = layer.padding_mode

    def images(self, inputs: Tensor) -> Tensor:
        """Return padded inputs as [blocks, records, channels, height, width]."""
        if any(self._pads):
            mode = "constant" if self._mode == "zeros" else self._mode
            padded = functional.pad(inputs.flatten(0, 1), self._pads, mode=mode)
            inputs = padded.unflatten(0, inputs.shape[:2])
        return self.up(inputs)

    def up(self, values: Tensor) -> Tensor:
        """Add a height of one to one-dimensional values."""
        return values.unsqueeze(-2) if self.flat else values

    def down(self, values: Tensor) -> Tensor:
        """Remove the height of one again."""
        return values.squeeze(-2) if self.flat else values

    def size(self, images: Tensor) -> tuple[int, int]:
        """Return height and width of the outputs."""
        height, width = (
            (images.shape[axis - 2] - self.dilation[axis] * (self.kernel[axis] - 1) - 1) // self.stride[axis] + 1
            for axis in (0, 1)
        )
        return height, width

    def views(self, images: Tensor) -> list[Tensor]:
        """Return, for every place of the kernel, the pixels it is multiplied with."""
        height, width = self.size(images)
        down, right = self.stride
        starts = [
            (row * self.dilation[0], column * self.dilation[1])
            for row in range(self.kernel[0])
            for column in range(self.kernel[1])
        ]
        return [
            images[..., top : top + down * (height - 1) + 1 : down, left : left + right * (width - 1) + 1 : right]
            for top, left in starts
        ]

    def columns(self, images: Tensor) -> Tensor:
        """Return [records, channels · places, positions] of [records, channels, height, width]."""
        if images.requires_grad:
            return functional.unfold(images, self.kernel, stride=self.stride, dilation=self.dilation)
        return self._windows(images).reshape(len(images), self.channels * self.kernel[0] * self.kernel[1], -1)

    def even_columns(self, images: Tensor) -> Tensor:
        """Return the columns with zeros below and beside them, up to even widths."""
        height, width = self.size(images)
        cells, positions = self.channels * self.kernel[0] * self.kernel[1], height * width
        below, beside = (even_width(count, images.dtype) - count for count in (cells, positions))
        if images.requires_grad or not (below or beside):
            columns = self.columns(images)
            return functional.pad(columns, (0, beside, 0, below)) if below or beside else columns
        filled = images.new_zeros(len(images), cells + below, positions + beside)
        part = filled.as_strided((len(images), cells, positions), filled.stride())
        part.unflatten(2, (height, width)).unflatten(1, (self.channels, *self.kernel)).copy_(self._windows(images))
        return filled

    def _windows(self, images: Tensor) -> Tensor:
        """Return [records, channels, places down and across, positions down and across], without a copy.

        Copying this view is several times faster than unfold, but has no backward pass.
        """
        *before, tall, wide = images.stride()
        shape = (*images.shape[:2], *self.kernel, *self.size(images))
        steps = (tall * self.dilation[0], wide * self.dilation[1], tall * self.stride[0], wide * self.stride[1])
        return images.as_strided(shape, (*before, *steps))

    def kernels(self, flat: Tensor) -> Tensor:
        """Return [..., out, channels · places] as the layer holds its weight."""
        return self.down(flat.unflatten(-1, (self.channels, *self.kernel)))


class ShiftedRule:
    """Sums of shifted images: many small products, which a compiler turns into one loop without columns."""

    def __init__(self, geometry: _Geometry, trainable: frozenset[str]) -> None:
        self._geometry, self.trainable = geometry, trainable

    def run(self, inputs: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Add up image times weight over places and channels."""
        images = self._geometry.images(inputs)
        weight = self._geometry.up(parameters["weight"]).flatten(3)  # [blocks, out, in, places]
        terms = [
            view[:, :, channel, None] * weight[:, None, :, channel, place, None, None]
            for place, view in enumerate(self._geometry.views(images))
            for channel in range(self._geometry.channels)
        ]
        outputs = terms[0]
        for term in terms[1:]:
            outputs = outputs + term
        return self._geometry.down(_shifted_by(outputs, parameters)), images

    def account(self, call: Call) -> Accounted:
        """Make the gradients, which are short."""
        return account_per_sample(self.per_sample(call))

    def per_sample(self, call: Call) -> dict[str, Tensor]:
        """Return every record's gradient as sums over positions of gradient times shifted image."""
        gradient, found = self._geometry.up(call.gradient), {}
        if "weight" in self.trainable:
            views = self._geometry.views(call.inputs)
            sums = [(gradient[:, :, :, None] * view[:, :, None]).sum((4, 5)) for view in views]
            found["weight"] = self._geometry.kernels(torch.stack(sums, dim=4).flatten(3))
        return found | _bias_gradient(gradient, self.trainable)


class ColumnsRule:
    """Columns of pixels times kernels: one product for all records, and the columns are kept for the gradients."""

    def __init__(self, geometry: _Geometry, trainable: frozenset[str]) -> None:
        self._geometry, self.trainable = geometry, trainable

    def run(self, inputs: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Multiply every block's columns by its own kernels."""
        images = self._geometry.images(inputs)
        columns = self._geometry.even_columns(images.flatten(0, 1)).unflatten(0, images.shape[:2])
        kernels = self._geometry.up(parameters["weight"]).flatten(2)
        kernels = functional.pad(kernels, (0, columns.shape[2] - kernels.shape[2]))
        height, width = self._geometry.size(images)
        outputs = torch.matmul(kernels[:, None], columns)[..., : height * width]
        outputs = _shifted_by(outputs.unflatten(3, (height, width)), parameters)
        return self._geometry.down(outputs), columns

    def account(self, call: Call) -> Accounted:
        """Make the gradients, which are short."""
        return account_per_sample(self.per_sample(call))

    def per_sample(self, call: Call) -> dict[str, Tensor]:
        """Return every record's gradient: a product over positions."""
        gradient, found = self._geometry.up(call.gradient), {}
        if "weight" in self.trainable:
            flat = gradient.flatten(3)
            products = torch.matmul(functional.pad(flat, (0, call.inputs.shape[3] - flat.shape[3])), call.inputs.mT)
            cells = self._geometry.channels * self._geometry.kernel[0] * self._geometry.kernel[1]
            found["weight"] = self._geometry.kernels(products[..., :cells])
        return found | _bias_gradient(gradient, self.trainable)


class LoopedRule:
    """Large kernels: a well-tuned convolution for every block, ghost norms where positions are few."""

    def __init__(self, geometry: _Geometry, trainable: frozenset[str]) -> None:
        self._geometry, self.trainable = geometry, trainable

    def run(self, inputs: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Convolve block by block."""
        images = self._geometry.images(inputs)
        pairs = zip(images, self._geometry.up(parameters["weight"]), strict=True)
        stride, dilation = self._geometry.stride, self._geometry.dilation
        outputs = torch.stack([functional.conv2d(a, w, stride=stride, dilation=dilation) for a, w in pairs])
        return self._geometry.down(_shifted_by(outputs, parameters)), images

    def account(self, call: Call) -> Accounted:
        """Make the gradients themselves where that is cheaper than ghost norms."""
        gradient = self._geometry.up(call.gradient)
        positions = gradient.shape[3] * gradient.shape[4]
        if "weight" not in self.trainable or 2 * positions * positions > self._geometry.cells:
            return account_per_sample(self.per_sample(call))
        ghosts = [
            gram_product(self._geometry.columns(images).mT, each.flatten(2).mT)
            for images, each in zip(call.inputs, gradient, strict=True)
        ]
        bias = _bias_gradient(gradient, self.trainable)
        rest = account_per_sample(bias) if bias else None

        def sums(weights: Tensor, quantum: Quantum | None) -> dict[str, Tensor]:
            weighted = scaled(gradient.double(), weights)
            pairs = zip(only(call.inputs, weights), weighted, strict=True)
            whole = torch.stack([self._weight_gradient(images.double(), each) for images, each in pairs])
            found = {"weight": cut_off(self._geometry.down(whole), quantum)}
            return (rest.sums(weights, quantum) if rest else {}) | found

        squares = torch.stack(ghosts)
        return Accounted(squares + rest.squares if rest else squares, sums, gradient.shape[1] * positions)

    def per_sample(self, call: Call) -> dict[str, Tensor]:
        """Return every record's gradient, block by block: columns are large."""
        gradient, found = self._geometry.up(call.gradient), {}
        if "weight" in self.trainable:
            pairs = zip(call.inputs, gradient, strict=True)
            products = [torch.bmm(each.flatten(2), self._geometry.columns(images).mT) for images, each in pairs]
            found["weight"] = self._geometry.kernels(torch.stack(products))
        return found | _bias_gradient(gradient, self.trainable)

    def _weight_gradient(self, images: Tensor, gradient: Tensor) -> Tensor:
        geometry = self._geometry
        weight = images.new_empty(gradient.shape[1], geometry.channels, *geometry.kernel)
        options = (None, geometry.stride, (0, 0), geometry.dilation, False, (0, 0), 1, (False, True, False))
        found: Tensor = torch.ops.aten.convolution_backward(gradient, images, weight, *options)[1]
        return found


def _shifted_by(outputs: Tensor, parameters: Parameters) -> Tensor:
    return outputs + parameters["bias"][:, None, :, None, None] if "bias" in parameters else outputs


def _bias_gradient(gradient: Tensor, trainable: frozenset[str]) -> dict[str, Tensor]:
    return {"bias": gradient.sum((3, 4))} if "bias" in trainable else {}


def _pair(values: tuple[int, ...]) -> tuple[int, int]:
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])
