"""Short texts that name a split or a graph, as a file or the command line gives them."""

from pathlib import Path

import networkx as nx

from tacit.data import IID, ByClass, Dirichlet, Partition
from tacit.errors import InvalidInput
from tacit.graphs import build, find_graph, read_graph


def parse_split(text: str) -> Partition:
    """Return the rule that `0.5` (A(t) with t=0.5), `iid` or `dirichlet:0.3` names."""
    name, _, value = text.strip().partition(":")
    if name == "iid" and not value:
        return IID()
    try:
        if name == "dirichlet":
            return Dirichlet(alpha=float(value))
        return ByClass(t=float(text))
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(
            f"split is {text!r}; write t of A(t) between 0 and 1, iid, or dirichlet:ALPHA such as dirichlet:0.3"
        ) from None


def parse_graph(text: str, agents: int, seed: int) -> nx.Graph:
    """Return the graph that a kind, a kind with options, or a file names.

    `ring`, `torus:rows=2`, `small_world:degree=4,rewire=0.2`, `random:fiedler=0.39,tolerance=0.02`, `my/graph.txt`.
    """
    if Path(text).is_file():
        return read_graph(text)
    kind, _, rest = text.strip().partition(":")
    if "/" in kind or "." in kind:
        raise InvalidInput(f"graph is {text!r}, but there is no such file")
    options: dict[str, float | int] = {}
    for part in filter(None, rest.split(",")):
        name, _, value = part.partition("=")
        try:
            options[name.strip()] = float(value) if any(c in value for c in ".e") else int(value)
        except ValueError:
            raise InvalidInput(f"graph is {text!r}; write options as name=number, not {part!r}") from None
    if kind == "random":
        known = ("fiedler", "density", "centrality", "tolerance")
        if unknown := [name for name in options if name not in known]:
            raise InvalidInput(f"a random graph has no option {unknown[0]!r}; it has {', '.join(known)}")
        return find_graph(agents, seed=seed, **options)  # type: ignore[arg-type]
    return build(kind, agents, seed=seed, **options)
