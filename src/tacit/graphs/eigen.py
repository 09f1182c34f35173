"""The two eigenproblems behind the measures, for symmetric matrices of a handful of agents or many thousands.

Small matrices are solved densely. Large ones are solved by Lanczos, which is quick on well-connected graphs.
Rings, paths and grids crowd their eigenvalues too closely for it, but are cheap to factorise, so they are
solved by Lanczos on the inverse. Start vectors are fixed, so that the same graph always measures the same.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse import csgraph
from scipy.sparse import linalg as sparse_linalg

Vector = NDArray[np.float64]

DENSE_LIMIT = 1500
NARROW = 1e9  # up to this many operations, factorising a banded matrix is faster than trying without
PATIENCE = 40  # restarts of Lanczos before its matrix counts as crowded


def smallest(matrix: sparse.csr_array, *, beside_ones: bool) -> tuple[float, Vector]:
    """Return the smallest eigenvalue of a positive semidefinite matrix, and its unit vector.

    With `beside_ones` the all-ones vector is known to be an eigenvector, and only those orthogonal to it
    count.
    """
    size = matrix.shape[0]
    bound = float(abs(matrix).sum(axis=1).max())  # no eigenvalue is larger
    lift = bound / size if beside_ones else 0.0  # moves the all-ones vector to the other end of the spectrum
    if size <= DENSE_LIMIT:
        values, vectors = linalg.eigh(matrix.toarray() + lift, subset_by_index=[0, 0])
        return float(values[0]), vectors[:, 0]
    if size * _bandwidth(matrix) ** 2 < NARROW:
        vector = _by_inverse(matrix, bound, beside_ones)
    else:
        try:  # from above, since ARPACK can skip an eigenvalue at zero
            vector = _largest(size, lambda x: bound * x - matrix @ x - lift * x.sum(), PATIENCE)
        except sparse_linalg.ArpackNoConvergence:
            vector = _by_inverse(matrix, bound, beside_ones)
    vector = _centred(vector, beside_ones)
    vector = vector / np.linalg.norm(vector)
    return float(vector @ (matrix @ vector)), vector


def perron(matrix: NDArray[np.float64]) -> Vector:
    """Return the positive unit eigenvector of a connected graph's dense adjacency matrix."""
    values, vectors = np.linalg.eigh(matrix)
    # Two distant hubs can tie, and the solver may return any mixture of their vectors, also of values that are as close as
    # rounding leaves them. The projection of the all-ones vector on a tie is positive.
    tied = vectors[:, values >= values[-1] * (1 - 1e-11)]
    return positive_unit(tied @ tied.sum(axis=0))


def positive_unit(vector: Vector) -> Vector:
    """Return a Perron vector, its sign and length set; entries lost to rounding become the least float."""
    vector = np.maximum(abs(vector), np.finfo(np.float64).tiny)
    return vector / float(np.linalg.norm(vector))


def _bandwidth(matrix: sparse.csr_array) -> int:
    """Return how far from the diagonal the matrix reaches once its rows are in a good order."""
    place = np.argsort(csgraph.reverse_cuthill_mckee(matrix, symmetric_mode=True))
    entries = matrix.tocoo()
    return int(abs(place[entries.row] - place[entries.col]).max())


def _by_inverse(matrix: sparse.csr_array, bound: float, beside_ones: bool) -> Vector:
    size = matrix.shape[0]
    shift = 1e-10 * bound  # keeps a singular matrix factorisable, far below the eigenvalues that matter
    factor = sparse_linalg.splu(
        sparse.csc_array(matrix + shift * sparse.eye_array(size)),
        permc_spec="MMD_AT_PLUS_A",
        options={"SymmetricMode": True},
    )
    return _largest(size, lambda x: _centred(factor.solve(_centred(x, beside_ones)), beside_ones), None)


def _largest(size: int, matvec: Callable[[Vector], Vector], patience: int | None) -> Vector:
    """Return the eigenvector of a symmetric operator's largest eigenvalue."""
    _, vectors = sparse_linalg.eigsh(
        sparse_linalg.LinearOperator((size, size), matvec=matvec, dtype=np.float64),
        k=1,
        which="LA",
        v0=np.random.default_rng(0).uniform(0.5, 1.5, size),
        rng=np.random.default_rng(0),
        ncv=64,
        maxiter=patience,
        tol=1e-12,
    )
    return np.asarray(vectors[:, 0], dtype=np.float64)


def _centred(vector: Vector, beside_ones: bool) -> Vector:
    return vector - vector.mean() if beside_ones else vector
