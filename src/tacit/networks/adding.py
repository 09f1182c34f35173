"""Weighted sums over neighbours, always in one order: an agent's own value, then its neighbours' by ascending number.

Products and additions are computed one after another, each rounded once, in the same way on every processor. So a stack of all
agents and a single agent in its own process get the same bits, which a matrix product does not guarantee.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from tacit.networks.topology import Links

# Numbers processed at once: they stay in the processor's cache while all neighbours' are added to them.
_BLOCK_NUMBERS = 2**17
# Measured on a processor: a sparse product costs as much as a dense one with 320 more agents, and each neighbour as
# much as eleven of them.
_SPARSE_FROM, _SPARSE_PER_NEIGHBOR = 320, 11

Sum = Callable[[Float[Tensor, "rows ..."]], Float[Tensor, "rows ..."]]


class _Rank(NamedTuple):
    """The n-th neighbours of all rows that have at least n; rows with more neighbours come first."""

    rows: Int[Tensor, " some"]
    weights: Float[Tensor, "some 1"] | None


class OrderedSum:
    """Σ wᵢⱼ xⱼ over neighbours j, after wᵢᵢ xᵢ if there are own weights; plain sums have no weights.

    `neighbors` has a row for each sum, whose entries are added in the order in which they are stored. The rows to sum over come first
    among those that are given; others may follow, of agents that are hosted elsewhere.
    """

    def __init__(
        self,
        neighbors: sparse.csr_array,
        own: NDArray[np.float64] | None,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        degrees = np.diff(neighbors.indptr)
        self._rows = len(degrees)
        order = np.argsort(-degrees, kind="stable")
        starts = neighbors.indptr[:-1][order]
        self._ranks = []
        for number in range(int(degrees.max(initial=0))):
            entries = starts[degrees[order] > number] + number
            weights = torch.from_numpy(neighbors.data[entries]).to(device, dtype)[:, None]
            rows = torch.from_numpy(neighbors.indices[entries].astype(np.int64)).to(device)
            self._ranks.append(_Rank(rows, None if own is None else weights))
        self._own = None if own is None else torch.from_numpy(own[order]).to(device, dtype)[:, None]
        moved = bool((order != np.arange(len(order))).any())
        self._order = torch.from_numpy(order).to(device) if moved else None
        self._back = torch.from_numpy(np.argsort(order)).to(device) if moved else None

    def __call__(self, x: Float[Tensor, "rows ..."]) -> Float[Tensor, "rows ..."]:
        """Return the sums of all rows."""
        flat = x.reshape(len(x), -1)
        sums = flat.new_empty(self._rows, flat.shape[1])
        wide = min(max(1, flat.shape[1]), _BLOCK_NUMBERS)
        many = max(1, _BLOCK_NUMBERS // wide)
        room = flat.new_empty(min(many, self._rows) * wide)
        for left in range(0, flat.shape[1], wide):
            columns = flat[:, left : left + wide]
            for first in range(0, self._rows, many):
                self._add(columns, sums[first : first + many, left : left + wide], first, room)
        ordered = sums if self._back is None else sums.index_select(0, self._back)
        return ordered.reshape(self._rows, *x.shape[1:])

    def _add(self, columns: Tensor, target: Tensor, first: int, room: Tensor) -> None:
        """Write the sums of the rows that start at `first`, ordered by number of neighbours, into `target`."""
        last, done = first + len(target), 0
        if self._own is not None:
            own = columns[first:last] if self._order is None else columns.index_select(0, self._order[first:last])
            torch.mul(own, self._own[first:last], out=target)
        for number, (rows, weights) in enumerate(self._ranks):
            some = rows[first:last]
            if not len(some):
                break
            if number == 0 and self._own is None:
                torch.index_select(columns, 0, some, out=target[: len(some)])
                done = len(some)
                continue
            values = room[: len(some) * columns.shape[1]].view(len(some), columns.shape[1])
            torch.index_select(columns, 0, some, out=values)
            if weights is not None:
                values.mul_(weights[first:last])
            target[: len(some)].add_(values)
        if self._own is None:
            target[done:].zero_()


def mixing_sum(links: Sequence[Links], trials: int, dtype: torch.dtype, device: torch.device) -> Sum:
    """Return x ↦ Wx for several trials on the rows, with one W for all or one for each."""
    neighbors = []
    for each in links:
        off = each.heard.copy()
        off.data = each.neighbor_weights.copy()
        off.eliminate_zeros()
        neighbors.append(off)
    own = np.concatenate([each.own_weights for each in links] * (trials if len(links) == 1 else 1))
    return OrderedSum(_diagonal(neighbors, trials), own, dtype, device)


def plain_sum(links: Sequence[Links], trials: int, dtype: torch.dtype, device: torch.device) -> Sum:
    """Return the sum over neighbours, for several trials on the rows."""
    return OrderedSum(_diagonal([each.heard for each in links], trials), None, dtype, device)


def product(matrices: Sequence[sparse.csr_array], trials: int, dtype: torch.dtype, device: torch.device) -> Sum:
    """Return x ↦ Mx by a dense or a sparse product, whichever is cheaper: fast, and added in the library's own order."""
    agents = matrices[0].shape[0]
    entries = sum(m.nnz for m in matrices) / (len(matrices) * agents)
    if agents <= _SPARSE_FROM + _SPARSE_PER_NEIGHBOR * entries:
        dense = torch.stack([torch.from_numpy(m.toarray()) for m in matrices]).to(device, dtype)

        def multiply(x: Tensor) -> Tensor:
            return (dense @ x.reshape(trials, agents, -1)).reshape(x.shape)

        return multiply
    blocks = _diagonal(matrices, trials)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        compressed = torch.sparse_csr_tensor(
            torch.from_numpy(blocks.indptr.astype(np.int64)),
            torch.from_numpy(blocks.indices.astype(np.int64)),
            torch.from_numpy(blocks.data).to(dtype),
            size=blocks.shape,
            device=device,
            check_invariants=True,
        )

    def multiply_sparse(x: Tensor) -> Tensor:
        return (compressed @ x.reshape(x.shape[0], -1)).reshape(x.shape)

    return multiply_sparse


def _diagonal(matrices: Sequence[sparse.csr_array], trials: int) -> sparse.csr_array:
    """Return the matrices of all trials as blocks along the diagonal of one."""
    each = list(matrices) * (trials if len(matrices) == 1 else 1)
    blocks = each[0].copy() if len(each) == 1 else sparse.csr_array(sparse.block_diag(each, format="csr"))
    blocks.sort_indices()
    return blocks
