"""All agents in one process, stacked: an exchange is a product with the mixing matrix.

This is the one place where bytes "leave" an agent: they are counted here, and a tap sees what was sent. Mixing is
synchronous: everyone reads what the others had when the exchange began. Several independent trials lie side by side on
the agents' axis, and no message crosses from one to another.
"""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy import sparse
from torch import Tensor

from tacit.errors import InvalidInput

# Measured on a processor: a sparse product costs as much as a dense one with 320 more agents, and each neighbour as
# much as eleven of them.
_SPARSE_FROM, _SPARSE_PER_NEIGHBOR = 320, 11

Tap = Callable[[tuple[Tensor, ...]], None]


class SimulatedNetwork:
    """Neighbours' values arrive by a product with W, block by block where there are several trials.

    `mixing` is one matrix for all trials or one for each, and `links` says in the same way who hears whom: wherever a
    weight is not zero, unless given. A tap is called with the stacked tensors of every exchange, before they are mixed.
    """

    def __init__(
        self,
        mixing: sparse.csr_array | Sequence[sparse.csr_array],
        *,
        links: Sequence[sparse.csr_array] | None = None,
        trials: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        taps: Sequence[Tap] = (),
    ) -> None:
        matrices = [mixing] if isinstance(mixing, sparse.csr_array) else list(mixing)
        if len(matrices) not in (1, trials) or len({m.shape for m in matrices}) != 1:
            shapes = sorted({m.shape for m in matrices})
            raise InvalidInput(f"{len(matrices)} mixing matrices of shapes {shapes} do not fit {trials} trials")
        self.trials, self.agents = trials, matrices[0].shape[0]
        links = [_links(matrix) for matrix in (matrices if links is None else links)]
        place = device or torch.device("cpu")
        self._mix = _product(matrices, trials, dtype, place)
        self._sum = _product(links, trials, dtype, place)
        degrees = np.concatenate([link.sum(axis=1) for link in links] * (trials if len(links) == 1 else 1))
        self.degree = torch.tensor(degrees, dtype=dtype, device=place)[:, None]
        self.bytes_sent = np.zeros(trials * self.agents, dtype=np.int64)
        self._neighbors = degrees.astype(np.int64)
        self._taps = tuple(taps)

    def exchange(self, *tensors: Float[Tensor, "agents ..."]) -> "SimulatedInbox":
        """Send the rows of all tensors as one message to every neighbour."""
        if not tensors:
            raise InvalidInput("an exchange needs at least one tensor to send")
        for tensor in tensors:
            if tensor.shape[0] != self.trials * self.agents:
                raise InvalidInput(
                    f"an exchange got {tensor.shape[0]} rows for {self.trials} trials of {self.agents} agents"
                )
        message = sum(tensor[0].numel() * tensor.element_size() for tensor in tensors)
        self.bytes_sent += message * self._neighbors
        for tap in self._taps:
            tap(tensors)
        return SimulatedInbox(tensors, self._mix, self._sum, self.degree)


class SimulatedInbox:
    """What all agents' neighbours sent."""

    def __init__(
        self,
        tensors: tuple[Tensor, ...],
        mix: Callable[[Tensor], Tensor],
        add: Callable[[Tensor], Tensor],
        degree: Float[Tensor, "agents 1"],
    ) -> None:
        self._tensors, self._mix, self._add, self.degree = tensors, mix, add, degree

    def mix(self) -> Tensor | tuple[Tensor, ...]:
        """Return Wx for every tensor x that was sent."""
        return self._each(self._mix)

    def sum(self) -> Tensor | tuple[Tensor, ...]:
        """Return the sum over neighbours of every tensor that was sent."""
        return self._each(self._add)

    def _each(self, product: Callable[[Tensor], Tensor]) -> Tensor | tuple[Tensor, ...]:
        results = tuple(product(tensor) for tensor in self._tensors)
        return results[0] if len(results) == 1 else results


def _links(matrix: sparse.csr_array) -> sparse.csr_array:
    """Return the 0/1 matrix of who hears whom."""
    links = matrix.copy()
    links.setdiag(0)
    links.eliminate_zeros()
    links.data[:] = 1
    return links


def _product(
    matrices: list[sparse.csr_array], trials: int, dtype: torch.dtype, device: torch.device
) -> Callable[[Tensor], Tensor]:
    """Return x ↦ Mx on the agents' axis, by a dense or a sparse product, whichever is cheaper."""
    agents = matrices[0].shape[0]
    entries = sum(m.nnz for m in matrices) / (len(matrices) * agents)
    if agents <= _SPARSE_FROM + _SPARSE_PER_NEIGHBOR * entries:
        dense = torch.stack([torch.from_numpy(m.toarray()) for m in matrices]).to(device, dtype)

        def multiply(x: Tensor) -> Tensor:
            return (dense @ x.reshape(trials, agents, -1)).reshape(x.shape)

        return multiply
    blocks = sparse.csr_array(sparse.block_diag(matrices * (trials if len(matrices) == 1 else 1), format="csr"))
    blocks.sort_indices()
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
