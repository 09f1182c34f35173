"""What clipping without per-sample gradients needs from a layer with parameters.

For stacked agents: blocks of records, each block with parameters of its own. A rule runs the layer, and later turns
its inputs a and the gradients g of its outputs into (1) every record's squared gradient norm and (2) the weighted sum
of all records' gradients. For a linear layer with one position per record the norm is ‖a‖·‖g‖, and no gradient of a
single record is ever made; with T positions it is ⟨aaᵀ, ggᵀ⟩ (the ghost norm), or the gradient itself, whichever is
cheaper for the layer's shape. (Goodfellow 2015; Li et al. 2022; Bu et al. 2023.)

Norms are float64. Sums over records are exact, in whole quanta (see `clipping`), except with ghost norms over several positions:
those sums are float64 products. Their rounding is bounded relative to C because a norm is never taken to be less than
`LEAST_SHARE` of what the positions would add up to if they did not cancel.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from tacit.data.products import even_product
from tacit.privacy.gradients.clipping import Quantum, exact_sums, lengths, only

# No norm over several positions is taken to be less than this share of Σ‖aₜ‖‖gₜ‖.
LEAST_SHARE = 2.0**-10
_LEAST_LENGTH = 1e-280  # shorter inputs count as none; dividing by their length would overflow

# Stacked tensors: [blocks, records, ...] for what belongs to records, [blocks, ...] for parameters.
Parameters = Mapping[str, Tensor]


class Call(NamedTuple):
    """One call of a layer: what went in, the parameters used, and the gradient of what came out."""

    inputs: Tensor
    parameters: Parameters
    gradient: Tensor


class Accounted(NamedTuple):
    """A call's part of the records' squared norms, and how to sum its gradients with weights.

    `sums(weights, quantum)` returns Σ weight · gradient of each block, in float64, by parameter, in whole quanta if one is
    given. `rounded` is the number of float64 products that are added with rounding for one number of a block's sum; 0 if exact.
    """

    squares: Float[Tensor, "blocks records"]
    sums: Callable[[Float[Tensor, "blocks records"], Quantum | None], dict[str, Tensor]]
    rounded: int = 0


class LayerRule(Protocol):
    """How one kind of layer is run and accounted for. `trainable` names the parameters that count."""

    trainable: frozenset[str]

    def run(self, inputs: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Return the outputs, and what `Call.inputs` should hold."""

    def account(self, call: Call) -> Accounted:
        """Return every record's squared gradient norm, and the way to the weighted sums."""

    def per_sample(self, call: Call) -> dict[str, Tensor]:
        """Return every record's gradient, by parameter: [blocks, records, ...]."""


class LinearRule:
    """y = a Wᵀ + b, at one or more positions of a record."""

    def __init__(self, layer: nn.Linear, trainable: frozenset[str]) -> None:
        self.trainable = trainable
        self._cells = layer.in_features * layer.out_features

    def run(self, inputs: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Multiply every block by its own weights."""
        flat = inputs.flatten(1, -2)
        outputs = even_product(flat, parameters["weight"].mT)
        if "bias" in parameters:
            outputs = outputs + parameters["bias"][:, None]
        return outputs.unflatten(1, inputs.shape[1:-1]), inputs

    def account(self, call: Call) -> Accounted:
        """Return ‖a‖²‖g‖² + ‖g‖², or its form for several positions; sums are Σ w g aᵀ and Σ w g.

        Norm and sum must come from the same numbers, or the norm must be an upper bound: where positions cancel, a float32
        norm and a float64 sum can differ without limit.
        """
        inputs, gradient = _positions(call.inputs), _positions(call.gradient)
        positions = inputs.shape[2]
        if positions == 1:
            return self._account_one(inputs[:, :, 0], gradient[:, :, 0])
        if "weight" not in self.trainable or 2 * positions * positions > self._cells:
            return account_per_sample(self.per_sample(call))
        bias = account_per_sample({"bias": gradient.sum(2)}) if "bias" in self.trainable else None
        squares = gram_product(inputs, gradient)

        def sums(weights: Tensor, quantum: Quantum | None) -> dict[str, Tensor]:
            weighted = scaled(gradient.double(), weights).flatten(1, 2)
            found = even_product(weighted.mT, only(inputs, weights).double().flatten(1, 2))
            return (bias.sums(weights, quantum) if bias else {}) | {"weight": cut_off(found, quantum)}

        return Accounted(squares + bias.squares if bias else squares, sums, inputs.shape[1] * positions)

    def _account_one(self, inputs: Tensor, gradient: Tensor) -> Accounted:
        """Account for one position per record: the gradient is g aᵀ, and its norm ‖a‖·‖g‖."""
        length, heights = lengths(inputs), lengths(gradient)
        squares = _zeros(gradient)
        if "weight" in self.trainable:
            squares = squares + (length * heights).square()
        if "bias" in self.trainable:
            squares = squares + heights.square()

        def sums(weights: Tensor, quantum: Quantum | None) -> dict[str, Tensor]:
            found = {}
            if "bias" in self.trainable:
                found["bias"] = exact_sums(gradient, weights, quantum)
            if "weight" in self.trainable:
                found["weight"] = _outer_sums(inputs, length, gradient, weights, quantum)
            return found

        return Accounted(squares, sums)

    def per_sample(self, call: Call) -> dict[str, Tensor]:
        """Return g aᵀ and g, added over positions."""
        inputs, gradient = _positions(call.inputs), _positions(call.gradient)
        found = {}
        if "weight" in self.trainable:
            found["weight"] = torch.einsum("brto,brti->broi", gradient, inputs)
        if "bias" in self.trainable:
            found["bias"] = gradient.sum(2)
        return found


class NormRule:
    """Group norm and layer norm: the inputs are normalised without parameters, then scaled and shifted by them."""

    def __init__(self, layer: nn.GroupNorm | nn.LayerNorm, trainable: frozenset[str]) -> None:
        self.trainable = trainable
        self._groups = layer.num_groups if isinstance(layer, nn.GroupNorm) else None
        self._shape = layer.normalized_shape if isinstance(layer, nn.LayerNorm) else (layer.num_channels,)
        self._eps = layer.eps

    def run(self, inputs: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Normalise, then scale and shift every block by its own parameters."""
        if self._groups is None:
            normal = functional.layer_norm(inputs, self._shape, eps=self._eps)
        else:
            normal = functional.group_norm(inputs.flatten(0, 1), self._groups, eps=self._eps).view_as(inputs)
        outputs = normal * self._spread(parameters["weight"], inputs) if "weight" in parameters else normal
        if "bias" in parameters:
            outputs = outputs + self._spread(parameters["bias"], inputs)
        return outputs, normal

    def account(self, call: Call) -> Accounted:
        """Make the gradients, which are as short as the layer is wide."""
        return account_per_sample(self.per_sample(call))

    def per_sample(self, call: Call) -> dict[str, Tensor]:
        """Return Σ g·x̂ and Σ g over positions."""
        found = {}
        if "weight" in self.trainable:
            found["weight"] = self._gather(call.gradient * call.inputs)
        if "bias" in self.trainable:
            found["bias"] = self._gather(call.gradient)
        return found

    def _spread(self, parameter: Tensor, inputs: Tensor) -> Tensor:
        """Reshape a stacked parameter to align with the inputs' dimensions."""
        before = 1 if self._groups is not None else inputs.ndim - 1 - len(self._shape)
        after = inputs.ndim - 1 - before - len(self._shape)
        return parameter.reshape(len(parameter), *[1] * before, *self._shape, *[1] * after)

    def _gather(self, values: Tensor) -> Tensor:
        if self._groups is not None:
            return values.flatten(3).sum(3) if values.ndim > 3 else values
        middle = tuple(range(2, values.ndim - len(self._shape)))
        return values.sum(middle) if middle else values


class EmbeddingRule:
    """Rows of a table. Two positions of a record interact in the norm if they look up the same row."""

    def __init__(self, layer: nn.Embedding, trainable: frozenset[str]) -> None:
        self.trainable = trainable
        self._rows, self._padding = layer.num_embeddings, layer.padding_idx

    def run(self, inputs: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Look up every block's rows in its own table.

        An index outside the table makes its record not finite, so it counts as zero; it must not read another block's row.
        """
        rows = functional.embedding(self._places(inputs), parameters["weight"].flatten(0, 1))
        return torch.where(self._known(inputs)[..., None], rows, torch.nan), inputs

    def account(self, call: Call) -> Accounted:
        """Return Σ ⟨g_t, g_u⟩ over positions t, u with the same row; sums add gradients to the rows looked up."""
        index, gradient = self._positions(call)
        same = index[:, :, :, None] == index[:, :, None]
        even, top = _to_one(gradient.double())
        products = torch.where(same, torch.matmul(even, even.mT), 0).flatten(2).sum(2).clamp(min=0)
        positions = even.shape[2]
        share = max(
            _slack(even) + positions**2 * torch.finfo(torch.float64).eps, LEAST_SHARE**2 if positions > 1 else 0.0
        )
        squares = (products + share * even.norm(dim=3).sum(2).square()) * top.square()

        def sums(weights: Tensor, quantum: Quantum | None) -> dict[str, Tensor]:
            blocks, _, _, width = gradient.shape
            weighted = scaled(gradient.double(), weights)
            if quantum is not None:
                weighted = (weighted / quantum.size.reshape(-1, 1, 1, 1)).trunc()
            table = weighted.new_zeros(blocks * self._rows, width)
            table = table.index_add(0, self._places(index).flatten(), weighted.flatten(0, 2))
            found = table.unflatten(0, (blocks, self._rows))
            return {"weight": found if quantum is None else found * quantum.size[:, None, None]}

        return Accounted(
            squares, sums, positions if positions > 1 else 0
        )  # terms that cancel may be too large to be added exactly

    def per_sample(self, call: Call) -> dict[str, Tensor]:
        """Return every record's gradient of the whole table."""
        index, gradient = self._positions(call)
        blocks, records, _, width = gradient.shape
        table = gradient.new_zeros(blocks, records, self._rows, width)
        return {"weight": table.scatter_add(2, index[..., None].expand_as(gradient), gradient)}

    def _places(self, index: Tensor) -> Tensor:
        first = torch.arange(len(index), device=index.device) * self._rows
        return index.clamp(0, self._rows - 1) + first.reshape(-1, *[1] * (index.ndim - 1))

    def _known(self, index: Tensor) -> Tensor:
        return (index >= 0) & (index < self._rows)

    def _positions(self, call: Call) -> tuple[Tensor, Tensor]:
        """Return the row that every position adds to, and its gradient. Indices outside the table add nothing, in norm and sum alike."""
        index = call.inputs.flatten(2) if call.inputs.ndim > 2 else call.inputs[..., None]
        gradient = call.gradient.reshape(*index.shape, -1)
        counts = self._known(index) if self._padding is None else self._known(index) & (index != self._padding)
        return index.clamp(0, self._rows - 1), torch.where(counts[..., None], gradient, 0)


def account_per_sample(gradients: dict[str, Tensor]) -> Accounted:
    """Return what follows from per-sample gradients: [blocks, records, ...] by parameter."""
    flat = {name: each.reshape(*each.shape[:2], -1) for name, each in gradients.items()}
    squares = [lengths(each).square() for each in flat.values()]

    def sums(weights: Tensor, quantum: Quantum | None) -> dict[str, Tensor]:
        return {
            name: exact_sums(flat[name], weights, quantum).reshape(len(weights), *each.shape[2:])
            for name, each in gradients.items()
        }

    return Accounted(torch.stack(squares).sum(0) if squares else torch.zeros(()), sums)


def _outer_sums(
    inputs: Float[Tensor, "blocks records in"],
    length: Float[Tensor, "blocks records"],
    gradient: Float[Tensor, "blocks records out"],
    weights: Float[Tensor, "blocks records"],
    quantum: Quantum | None,
) -> Float[Tensor, "blocks out in"]:
    """Return Σ w g aᵀ, exactly if a quantum is given.

    Both factors of every record become whole numbers of at most half the bits: a/‖a‖, and w‖a‖g in the other half of the
    quantum. Their products are whole quanta, of at most C. Truncation makes both shorter, never longer.
    """
    if quantum is None:
        return even_product(scaled(gradient.double(), weights).mT, only(inputs, weights).double())
    whole = 2.0**quantum.bits
    counts = (weights != 0)[..., None]
    across = torch.where(counts, inputs.double() * (whole / length.clamp(min=_LEAST_LENGTH))[..., None], 0)
    # In this order no intermediate product is larger than the result: nothing overflows.
    down = torch.where(counts, gradient.double() * (weights * length)[..., None], 0) * (
        whole / quantum.power[:, None, None]
    )
    return torch.bmm(down.trunc().mT, across.trunc()) * quantum.size[:, None, None]


def cut_off(sums: Float[Tensor, "blocks ..."], quantum: Quantum | None) -> Float[Tensor, "blocks ..."]:
    """Truncate rounded sums to whole quanta, so that adding them to others is exact."""
    if quantum is None:
        return sums
    size = quantum.size.reshape(-1, *[1] * (sums.ndim - 1))
    return (sums / size).trunc() * size


def scaled(values: Tensor, weights: Tensor) -> Tensor:
    """Multiply by weights; values of records without weight become zero, even if infinite."""
    factors = weights.reshape(*weights.shape, *[1] * (values.ndim - 2))
    return torch.where(factors != 0, values * factors, 0)


def _zeros(like: Tensor) -> Tensor:
    return like.new_zeros(like.shape[:2], dtype=torch.float64)


def _positions(values: Tensor) -> Float[Tensor, "blocks records positions width"]:
    return values.unsqueeze(2) if values.ndim == 3 else values.flatten(2, -2)


def gram_product(inputs: Tensor, gradient: Tensor) -> Tensor:
    """Return ⟨aaᵀ, ggᵀ⟩ of every record, from [..., positions, width], never less than the true squared norm.

    Where positions cancel, rounding can exceed the remainder, so a bound on it is added. Every position is first normalised
    to a length of one: otherwise the others would vanish beside one with a huge input and no gradient.
    """
    across, long = _directions(inputs)
    down, high = _directions(gradient)
    shares = long * high
    top = shares.amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    shares = shares / top
    cosines = torch.matmul(across, across.mT).double() * torch.matmul(down, down.mT).double()
    products = (cosines * shares[..., None] * shares[..., None, :]).flatten(-2).sum(-1).clamp(min=0)
    one, other = _slack(inputs), _slack(gradient)
    slack = max(one + other + one * other, LEAST_SHARE**2)
    return (products + slack * shares.sum(-1).square()) * top[..., 0].square()


def _directions(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows of [..., positions, width] normalised to a length of one, and their lengths, in float64.

    A float64 row may be too short to divide by its length: it is first scaled to a largest number of one, and its length rounded up.
    """
    if values.dtype == torch.float64:
        top = values.abs().amax(-1, keepdim=True)
        scaled = values / torch.where(top > 0, top, 1.0)
        norm = lengths(scaled)
        length = (norm * top[..., 0]).nextafter(norm.new_tensor(torch.inf))
        return scaled / norm.clamp(min=1.0)[..., None], torch.where(top[..., 0] == 0, 0.0, length)
    length = lengths(values)
    unit = values.double() / length.clamp(min=torch.finfo(torch.float64).tiny)[..., None]
    return unit.to(values.dtype), length


def _to_one(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return [..., positions, width] scaled to a largest number of one, and the scale, in float64."""
    top = values.abs().amax((-2, -1), keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
    return values / top, top.double()[..., 0, 0]


def _slack(values: Tensor) -> float:
    """Return a bound on the error of a scalar product of two such rows, relative to their lengths."""
    return (values.shape[-1] + 2) * torch.finfo(values.dtype).eps / 2
