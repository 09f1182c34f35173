"""Communication graphs in files: edge lists and adjacency matrices, distinguished by content.

A file that starts as numpy arrays do is an adjacency matrix in .npy form. Any other is text, with `#`
comments, blank lines, and numbers separated by spaces or commas. It is an edge list if it says `# agents N`
or if its first line of numbers holds two; otherwise it is an adjacency matrix of zeros and ones. (Two lines
`0 1` and `1 0` are the same graph either way.) Agents are numbered from 0 with none left out; self-loops and
repeated edges count for nothing, as in `as_graph`. Agents may have names instead, which begin with a letter; sorted, they are
agents 0, 1, 2 and so on, and are stored in `graph.graph["names"]`. A third value on every line, between 0 and 1, is the weight that
the two agents give each other's value in mixing or, if both `i j` and `j i` are listed, the weight that the first gives the second's.
With the rest of 1 on the diagonal, they must form a doubly stochastic matrix, which is stored in `graph.graph["weights"]` and which
`train` mixes with.
"""

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tacit.errors import GraphError
from tacit.graphs.adjacency import as_graph, from_pairs
from tacit.graphs.mixing import TOLERANCE, check_mixing_matrix
from tacit.io.files import write_atomically
from tacit.ties import first_smallest

NPY_MAGIC = b"\x93NUMPY"
HEADER = re.compile(r"#\s*agents\s+(\S+)\s*")

NumberedLine = tuple[int, list[str]]  # its number, from 1, and its fields


def read_graph(path: str | os.PathLike[str]) -> nx.Graph:
    """Return the connected graph in the file, agents 0..N-1."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise GraphError(f"{path}: cannot be read: {error.strerror}") from error
    graph = _from_npy(path) if content.startswith(NPY_MAGIC) else _from_text(path, content)
    try:
        plain = as_graph(graph)
        if names := graph.graph.get("names"):
            plain.graph["names"] = names
        if (weights := graph.graph.get("weights")) is not None:
            plain.graph["weights"] = check_mixing_matrix(weights, plain)
        return plain
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error


def graph_of(agents: int, edges: Sequence[tuple[int, int]], weights: Sequence[float] | None = None) -> nx.Graph:
    """Return the graph with these links, and with the weights that a file of them would give."""
    graph = from_pairs(agents, np.array(edges, dtype=np.int64).reshape(-1, 2))
    if weights is not None:
        graph.graph["weights"] = check_mixing_matrix(_with_own(agents, both_ways(edges, weights))[0], graph)
    return graph


def both_ways(edges: Sequence[tuple[int, int]], weights: Sequence[float]) -> dict[tuple[int, int], float]:
    """Return the weights in both directions: one weight for both, or all of one direction followed by all of the other."""
    if len(weights) not in (len(edges), 2 * len(edges)):
        raise GraphError(f"{len(weights)} weights for {len(edges)} links; give one or two for each")
    there, back = weights[: len(edges)], weights[-len(edges) :]
    return dict(zip([*edges, *((other, one) for one, other in edges)], [*there, *back], strict=True))


def write_edge_list(graph: nx.Graph, path: str | os.PathLike[str]) -> None:
    """Write `as_graph(graph)` as an edge list with its `# agents N`, and with its weights if it was read with some; all or nothing."""
    weights, graph = graph.graph.get("weights"), as_graph(graph)
    lines = [f"# agents {len(graph)}"]
    for i, j in graph.edges():
        if weights is None:
            lines.append(f"{i} {j}")
            continue
        there, back = float(weights[i, j]), float(weights[j, i])
        lines += [f"{i} {j} {there!r}", *([f"{j} {i} {back!r}"] if there != back else [])]
    write_atomically(path, ("\n".join(lines) + "\n").encode())


def _from_text(path: Path, content: bytes) -> nx.Graph:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise GraphError(f"{path}, line {line}: not text; a graph is an edge list or an adjacency matrix") from error
    lines: list[NumberedLine] = []
    agents: int | None = None
    for number, row in enumerate(text.splitlines(), start=1):
        if header := HEADER.fullmatch(row.strip()):
            count = _whole(path, number, header[1])
            if count < 1 or agents not in (None, count):
                raise GraphError(f"{path}, line {number}: a graph has one number of agents above 0, got {count}")
            agents = count
        elif fields := row.partition("#")[0].replace(",", " ").split():
            lines.append((number, fields))
    if agents is not None or (lines and (len(lines[0][1]) == 2 or _has_weight(lines[0][1]))):
        return _from_edges(path, lines, agents)
    if not lines:
        raise GraphError(f"{path}: no graph in it; a single agent is written as '# agents 1'")
    return _from_rows(path, lines)


def _from_edges(path: Path, lines: list[NumberedLine], agents: int | None) -> nx.Graph:
    pairs = np.empty((len(lines), 2), dtype=np.int64)
    weighted = bool(lines) and len(lines[0][1]) == 3
    values = [_weight(path, number, fields) for number, fields in lines] if weighted else []
    if weighted:
        lines = [(number, fields[:2]) for number, fields in lines]
    names = sorted({field for _, fields in lines for field in fields})
    if names and all(name[0].isalpha() for name in names):
        numbers = {name: str(number) for number, name in enumerate(names)}
        lines = [(number, [numbers[field] for field in fields]) for number, fields in lines]
    else:
        names = []
    for row, (number, fields) in enumerate(lines):
        if len(fields) != 2:
            raise GraphError(f"{path}, line {number}: an edge is two agents, got {len(fields)} values")
        for side, field in enumerate(fields):
            agent = _whole(path, number, field)
            if agents is not None and agent >= agents:
                raise GraphError(f"{path}, line {number}: agent {agent} is not one of 0 to {agents - 1}")
            pairs[row, side] = agent
    named = np.unique(pairs)
    agents = agents or int(named[-1]) + 1
    if agents > 1 and len(named) < agents:
        missing = int(np.argmax(np.append(named, -1) != np.arange(len(named) + 1)))
        raise GraphError(
            f"{path}: agent {missing} is in no edge; the {agents} agents are numbered 0 to {agents - 1}, "
            "and each needs a neighbour"
        )
    graph = from_pairs(agents, pairs)
    if names:
        graph.graph["names"] = tuple(names)
    if weighted:
        graph.graph["weights"] = _weights(path, [number for number, _ in lines], pairs, values, agents)
    return graph


def _has_weight(fields: list[str]) -> bool:
    """Return whether a line is an edge with a weight; a row of an adjacency matrix holds zeros and ones."""
    if len(fields) != 3:
        return False
    try:
        return 0 < float(fields[2]) < 1
    except ValueError:
        return False


def _weight(path: Path, number: int, fields: list[str]) -> float:
    if len(fields) != 3:
        raise GraphError(
            f"{path}, line {number}: the first edge has a weight, so that each line is two agents and a weight, got "
            f"{len(fields)} values"
        )
    try:
        value = float(fields[2])
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise GraphError(f"{path}, line {number}: the weight is {fields[2]!r}; it must lie between 0 and 1")
    return value


def _weights(
    path: Path, numbers: list[int], pairs: NDArray[np.int64], values: list[float], agents: int
) -> sparse.csr_array:
    """Return the matrix of these weights, with the rest of one on the diagonal."""
    found: dict[tuple[int, int], float] = {}
    for number, (i, j), value in zip(numbers, pairs.tolist(), values, strict=True):
        if i == j:
            raise GraphError(f"{path}, line {number}: an agent's own weight follows from the others'; leave it out")
        if found.setdefault((i, j), value) != value:
            raise GraphError(
                f"{path}, line {number}: the weight is {value:g} here and {found[i, j]:g} in a line above; give it once"
            )
    for (i, j), value in list(found.items()):
        found.setdefault((j, i), value)
    matrix, own = _with_own(agents, found)
    if own.min() < -TOLERANCE:
        worst = first_smallest(own, scale=1.0)
        raise GraphError(
            f"{path}: the weights of agent {worst} sum to {1 - own[worst]:.6g}; they must sum to at most one, so that its own "
            "is not negative and the matrix doubly stochastic"
        )
    return matrix


def _with_own(agents: int, found: dict[tuple[int, int], float]) -> tuple[sparse.csr_array, NDArray[np.float64]]:
    """Return the matrix of weights in both directions, with the rest of one on the diagonal, and that diagonal."""
    rows, columns = (np.array(side) for side in zip(*sorted(found), strict=True))
    matrix = sparse.csr_array(([found[pair] for pair in sorted(found)], (rows, columns)), shape=(agents, agents))
    own: NDArray[np.float64] = 1 - np.asarray(matrix.sum(axis=1), dtype=np.float64)
    return sparse.csr_array(matrix + sparse.diags_array(own)), own


def _whole(path: Path, number: int, field: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", field):
        raise GraphError(f"{path}, line {number}: {field!r} is not a whole number from 0")
    return int(field)


def _from_rows(path: Path, lines: list[NumberedLine]) -> nx.Graph:
    size = len(lines)
    for number, fields in lines:
        if len(fields) != size:
            raise GraphError(
                f"{path}, line {number}: {len(fields)} values in a matrix of {size} rows; "
                "an adjacency matrix has as many columns as rows, an edge list two agents a line"
            )
    matrix = np.empty((size, size))
    for row, (number, fields) in enumerate(lines):
        try:
            matrix[row] = [float(field) for field in fields]
        except ValueError as error:
            raise GraphError(f"{path}, line {number}: {str(error).split(': ')[-1]} is not a number") from error
    return _from_matrix(path, matrix, [f"line {number}" for number, _ in lines])


def _from_npy(path: Path) -> nx.Graph:
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)  # memory-mapped, so that a short file is an error
    except (ValueError, OSError, EOFError) as error:
        raise GraphError(f"{path}: not a readable numpy array: {error}") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind not in "biuf":
        raise GraphError(
            f"{path}: an adjacency matrix is square and of numbers, got shape {matrix.shape} of {matrix.dtype}"
        )
    return _from_matrix(path, np.asarray(matrix), [f"row {row}" for row in range(len(matrix))])


def _from_matrix(path: Path, matrix: NDArray[Any], places: list[str]) -> nx.Graph:
    """Return the graph of a square matrix; `places` are the names of its rows in the file."""
    for wrong, reason in (
        ((matrix != 0) & (matrix != 1), "is neither 0 nor 1"),
        (matrix != matrix.T, "differs from its mirror image; an undirected graph has a symmetric matrix"),
    ):
        if wrong.any():
            row, column = (int(index) for index in np.argwhere(wrong)[0])
            raise GraphError(f"{path}, {places[row]}: the value {matrix[row, column]} in column {column} {reason}")
    return from_pairs(len(matrix), np.argwhere(matrix))
