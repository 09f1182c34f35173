"""Short texts that name a data set, a partition or a graph, as a command line or a configuration file gives them."""

import inspect
import math
import os
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import networkx as nx

from tacit.data import IID, ByClass, DataSet, Dirichlet, Partition, load, synthetic
from tacit.errors import GraphError, InvalidInput, choose
from tacit.graphs import build, find_graph, read_graph
from tacit.graphs.topologies import sides
from tacit.networks import Topology, schedule
from tacit.registry import GRAPHS, SCHEDULES, Registry, Shipped
from tacit.runs.user_code import refuse_file_alone

Read = type[int] | type[float]

_SEARCH: dict[str, Read] = {
    "fiedler": float,
    "density": float,
    "centrality": float,
    "tolerance": float,
    "restarts": int,
}
_TABLES = (".csv", ".tsv", ".txt", ".npy", ".npz", ".parquet", ".json", ".jsonl", ".pt", ".h5", ".arrow", ".xlsx")


def load_dataset(text: str, folder: str | Path | None = None, seed: int = 0) -> DataSet:
    """Return the data set that a text names: one that `tacit.data.load` knows, or `synthetic:RECORDS`."""
    name, _, records = text.strip().partition(":")
    refuse_file_alone(text, "dataset")
    if Path(name).suffix in _TABLES or os.path.isfile(text):
        raise InvalidInput(
            f"dataset is {text!r}, but files are not read here: only you know what each column is, and which of it is public. "
            "Write a function that reads it and returns tacit.data.DataSet.from_records(name=..., train=(inputs, targets), "
            "classes=...), or each party's records by tacit.data.AgentData.from_parts, and name it: --dataset file.py:function; "
            "docs/own-data.md shows both"
        )
    if name != "synthetic":
        return load(text, folder)
    if records and not records.isdigit():
        raise InvalidInput(f"dataset is {text!r}; write synthetic:RECORDS, such as synthetic:6400")
    return synthetic(int(records or 6400), seed=seed)


def is_shipped(key: str, text: str) -> bool:
    """Return whether a text in the form of a name of the user's own begins with a shipped name."""
    first = text.strip().partition(":")[0].replace("-", "_")
    return first in {"dataset": ("synthetic",), "graph": (*GRAPHS, *SCHEDULES, "random")}.get(key, ())


def parse_split(text: str) -> Partition:
    """Return the rule that a text names.

    - a number t from 0 to 1, such as `1.0` or `0.5`: the paper's A(t)
    - `iid`: everyone gets records at random
    - `dirichlet:ALPHA`, such as `dirichlet:0.3`: shares of each class drawn from a Dirichlet distribution; with
      `dirichlet:0.3,min_size=50` drawn again until everyone has that many records
    """
    name, colon, value = text.strip().lower().partition(":")
    if name == "iid" and not colon:
        return IID()
    if name == "dirichlet":
        first, comma, option = (part.strip() for part in value.partition(","))
        alpha = _number(first)
        if alpha is None:
            bare = first.removeprefix("alpha").strip().removeprefix("=").strip()
            example = ",".join([bare, *([option] if comma else [])]) if _number(bare) is not None else "0.3"
            raise InvalidInput(f"split {text!r} has no number for alpha; write it as in dirichlet:{example}")
        if not comma:
            return Dirichlet(alpha=alpha)
        key, _, least = (part.strip() for part in option.partition("="))
        if key != "min_size" or not least.isdecimal():
            raise InvalidInput(
                f"split {text!r} has {option!r} behind alpha; write a whole number as in dirichlet:0.3,min_size=50"
            )
        return Dirichlet(alpha=alpha, min_size=int(least))
    t = _number(name)
    if t is None or colon:
        near = get_close_matches(name, ("iid", "dirichlet"), n=1, cutoff=0.4)
        meant = {"iid": "; did you mean 'iid'?", "dirichlet": "; did you mean 'dirichlet:0.3'?"}
        raise InvalidInput(
            f"unknown split {text!r}{meant[near[0]] if near else ''} "
            "(a number t from 0 to 1 for A(t), iid, or dirichlet:ALPHA)"
        )
    return ByClass(t=t)


def parse_graph(
    text: str, agents: int | None, seed: int = 0, *, options: Mapping[str, float] | None = None
) -> nx.Graph:
    """Return the graph that a text names.

    - a kind of `tacit.graphs.build`, with options where it has any: `ring`, `torus:rows=3`,
      `small_world:degree=4,rewire=0.2`, `random_regular:degree=3`, `erdos_renyi:probability=0.5`
    - `random` with what to search for: `random:fiedler=0.39`, `random:density=0.4,centrality=0.05,tolerance=0.02`
    - the path of a file that `read_graph` takes; write `./ring` for a file that has the name of a kind

    A kind needs `agents`; a file has its own number, which must agree with `agents` where that is given. `seed`
    is for what is random, unless the text has one: `random:fiedler=0.39,seed=7` is one graph in every run.
    `options` count as if they were in the text.
    """
    kind, _, rest = text.strip().partition(":")
    kind = kind.replace("-", "_")
    names = (*GRAPHS, "random")
    if kind not in names and (os.path.isfile(text) or os.sep in text or "." in kind):
        return _from_file(text, agents, options)
    if kind in SCHEDULES:
        raise GraphError(
            f"{text!r} changes from round to round, but a single graph is needed here; give one, such as ring"
        )
    if kind not in names:
        try:
            choose("graph kind", kind, (*names, *SCHEDULES))
        except InvalidInput as error:
            raise GraphError(f"{error}, and there is no file of this name") from None
    chosen = _options(kind, rest, options)
    if agents is None:
        raise GraphError(f"how many agents? A {kind} graph can have any number; give --agents")
    seed = int(chosen.pop("seed", seed))
    return find_graph(agents, seed=seed, **chosen) if kind == "random" else build(kind, agents, seed=seed, **chosen)


def parse_links(text: str, agents: int | None, seed: int = 0) -> nx.Graph | Topology:
    """Return the links that a text names: a graph, or a schedule of links that change from round to round."""
    return parse_schedule(text, agents, seed) if is_schedule(text) else parse_graph(text, agents, seed)


def parse_schedule(text: str, agents: int | None, seed: int = 0) -> Topology:
    """Return the schedule that a text names.

    - `matchings`: pairs by chance; `one_peer_exponential`: everyone hears one other
    - `base` or `base:peers=2`: everyone has the exact average after some rounds
    - `moving:reach=0.4`, also with `leg`, `window` and `seed`: agents that move about and hear whoever is near

    Each with `exchanges=N` exchanges in a round, if there should be more than one.
    """
    kind, _, rest = text.strip().partition(":")
    kind = choose("schedule", kind.replace("-", "_"), SCHEDULES)
    own = {*_taken_by(SCHEDULES[kind]), "exchanges"}
    options = _read_options(kind, rest, _all_taken(SCHEDULES) | {"exchanges": int, "seed": int}, own)
    if agents is None:
        raise GraphError(f"how many agents? A schedule of {kind} can have any number; give --agents")
    return schedule(kind, agents, int(options.pop("seed", seed)), **options)


def parse_keys(text: str, agents: int, seed: int, named: str = "keys") -> Literal["complete", "graph"] | nx.Graph:
    """Return which pairs share masks: a word of the library's, or the graph that a text names. Errors call the setting `named`."""
    text = text.strip()
    if text == "complete":
        return "complete"
    if text == "graph":
        return "graph"
    if is_schedule(text):
        raise InvalidInput(f"{named} is {text!r}, whose links change; masks are shared by the same pairs in all rounds")
    try:
        return parse_graph(text, agents, seed)
    except GraphError as error:
        raise InvalidInput(
            f"{named} is {text!r}; give complete, graph, or a graph of those who share masks: {error}"
        ) from None


def is_schedule(text: str) -> bool:
    """Return whether a text names links that change."""
    return text.strip().partition(":")[0].replace("-", "_") in SCHEDULES


def flattened(text: str, agents: int, options: Mapping[str, float] | None = None) -> str | None:
    """Say so if a text asks for a torus or a grid so thin that it is a simpler graph."""
    kind, _, rest = text.strip().partition(":")
    simpler = {"torus": "ring", "grid": "path"}.get(kind)
    if simpler is None or agents < 3:
        return None
    rows, columns = sides(agents, _options(kind, rest, options).get("rows"))
    if min(rows, columns) > 1:
        return None
    prime = sides(agents)[0] == 1
    advice = f"{agents + 1} agents would have rows and columns" if prime else "other rows would make it wider"
    return f"a {kind} of {rows} × {columns} agents is a {simpler}; {advice}"


def _from_file(path: str, agents: int | None, options: Mapping[str, float] | None) -> nx.Graph:
    if options:
        raise GraphError(f"{path}: a graph in a file takes no options, got {next(iter(options))!r}")
    graph = read_graph(path)
    if agents is not None and len(graph) != agents:
        raise GraphError(f"{path}: the graph has {len(graph)} agents, but {agents} are wanted")
    return graph


def _read_options(
    kind: str, rest: str, known: Mapping[str, Read], own: Collection[str], given: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Return the options in `name=value,…` together with those given, each once; `own` are those that the kind takes."""
    options: dict[str, Any] = dict(given or {})
    for part in rest.split(",") if rest else ():
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in known:
            if not own:
                raise GraphError(f"graph kind {kind!r} takes no options, got {name!r}")
            choose(f"option of graph kind {kind!r}", name, own)
        read = known[name]
        if name in options:
            raise GraphError(f"graph option {name!r} is given twice")
        try:
            options[name] = read(value)
        except ValueError:
            wanted = "a whole number" if read is int else "a number"
            raise GraphError(f"graph option {name!r} is {wanted}, got {value!r}") from None
    return options


def _taken_by(make: Callable[..., Any]) -> dict[str, Read]:
    """Return the options that a kind of graph or schedule takes, each with its type."""
    hints = get_type_hints(vars(make)["__init__"] if isinstance(make, type) else make)
    names = [name for name in inspect.signature(make).parameters if name not in ("agents", "seed")]
    return {name: float if float in (hints[name], *get_args(hints[name])) else int for name in names}


def _all_taken(kinds: Registry[Shipped]) -> dict[str, Read]:
    """Return the options of all kinds, so that one of another kind is refused by its name and not by its value."""
    return {name: read for make in kinds.values() for name, read in _taken_by(make).items()}


def _options(kind: str, rest: str, given: Mapping[str, float] | None) -> dict[str, Any]:
    """Return the options in `name=value,…` together with those given, each once and each one that the kind can have."""
    own = _SEARCH if kind == "random" else _taken_by(GRAPHS[kind])
    built = _all_taken(GRAPHS)
    options = _read_options(kind, rest, {**built, **_SEARCH, **own, "seed": int}, own, given)
    for name in options:
        if kind != "random" and name in _SEARCH and name not in own:
            raise GraphError(f"{name!r} is something to search for: use kind 'random' instead of {kind!r}")
        if kind == "random" and name not in _SEARCH and name in built:
            raise GraphError(f"graph kind 'random' has no option {name!r}; it has {', '.join(_SEARCH)}")
    return options


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value
