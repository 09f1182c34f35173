"""What is kept of the objects that a run from Python was given, and how others differ from them. `rebuilding` makes them again.

No fact about private records is kept: of training records only what is public anyway (shapes, types, declared sizes), and a hash only where
the data set is a published one. Nothing is pickled.
"""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

import networkx as nx
import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from tacit.algorithms import Algorithm
from tacit.algorithms.averaged import name_of
from tacit.data import AgentData, inputs
from tacit.errors import GraphError
from tacit.graphs import as_graph
from tacit.networks import Topology
from tacit.networks.schedules import text_of
from tacit.networks.topology import rounds_of
from tacit.privacy import Unit
from tacit.runs.code_hashes import code_sha256, is_library, tensor_sha256, written
from tacit.runs.python_config import Part
from tacit.runs.rebuilding import recipe_of, spec_of
from tacit.runs.specs import is_shipped
from tacit.runs.user_code import UserCode
from tacit.training.preparation import TAKING_TURNS, Model, declared_sizes, make_module
from tacit.training.settings import Training

STARTING_VALUES = "starting values hash"
_MOST_EDGES = 20_000  # of a graph that is kept whole


def describe(training: Training, names: Mapping[str, UserCode | str]) -> dict[str, Part]:
    """Return what is kept of each object. `names` are those that were given instead of objects: of the user's code, or of the library's parts."""
    parts = {
        "algorithm": describe_rule(training.algorithm),
        "model": describe_model(training.model, training.seed),
        "loss": describe_function(training.loss),
        "data": describe_data(training.data, training.sizes, training.unit),
        "lr": _settings(training.lr),
        "sources": _settings(training.chosen_sources),
    }
    graph = the_graph(training)
    if graph is not None:
        parts["graph"] = _graph(graph, training.rounds)
    mixing = training.mixing
    parts["mixing"] = _settings(mixing) if isinstance(mixing, str) else _matrix(mixing)
    for key, name in names.items():
        part = parts[key]
        if isinstance(name, UserCode):
            parts[key] = part.model_copy(update={"shown": name.text, "made": {"own": name.text}})
        elif key != "data":  # of which more is kept than its name
            parts[key] = part.model_copy(update={"shown": name, "made": _made_by_name(key, name, part)})
    return parts


def _made_by_name(key: str, name: str, part: Part) -> dict[str, Any]:
    """Return how to make a part that was given by a shipped name, or a graph that was given as a file."""
    if key == "graph" and not is_shipped(key, name):
        return {**(part.made or {}), "file": name}  # its links, if they are few and have no weights, outlive the file
    return {"shipped": name}


def the_graph(training: Training) -> nx.Graph | Topology | None:
    """Return the graph of a run with one trial."""
    graph: Any = training.graph
    if not isinstance(graph, Sequence):
        return cast(nx.Graph | Topology | None, graph)
    if len(graph) != 1:
        raise GraphError(f"{len(graph)} graphs for one run; give one. {TAKING_TURNS}")
    return cast(nx.Graph | Topology, graph[0])


def differences(kept: Mapping[str, Part], now: Mapping[str, Part]) -> list[str]:
    """Say how objects differ from those that a run began with."""
    found = []
    for key in dict.fromkeys((*kept, *now)):
        if key not in kept or key not in now:
            found.append(f"{key}: {'there was none' if key not in kept else 'it is missing'}")
            continue
        before, after = kept[key].facts, json.loads(json.dumps(now[key].facts))
        changed = changed_facts(before, after)
        if changed:
            found.append(f"{key}: {', '.join(_change(name, before.get(name), after.get(name)) for name in changed)}")
    return found


def changed_facts(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the names of facts that differ. Starting values of two kinds of processors are not compared: torch draws them by other instructions."""
    kinds = {str(each.get(STARTING_VALUES)).partition(":")[0] for each in (before, after)}
    return [
        name
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name) and (name != STARTING_VALUES or len(kinds) == 1)
    ]


def _change(name: str, before: Any, after: Any) -> str:
    if isinstance(before, list) and isinstance(after, list):  # the first of many
        before, after = next(
            ((one, other) for one, other in zip_longest(before, after, fillvalue="none") if one != other),
            (before, after),
        )
    texts = [
        json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value for value in (before, after)
    ]
    if name == "code" and texts[0].partition(":")[0] != texts[1].partition(":")[0]:
        return f"code (compiled by {texts[0].partition(':')[0]} then, and {texts[1].partition(':')[0]} now)"
    if name.endswith("hash") or name == "code" or max(map(len, texts)) > 80:
        return name.removesuffix(" hash")
    return f"{name} ({texts[0]} then, {texts[1]} now)"


def describe_rule(rule: Algorithm[Any]) -> Part:
    """Keep an update rule: its name, its settings and its code."""
    facts = {"rule": name_of(rule), "settings": written(rule), "code": code_sha256(rule)}
    return Part(shown=written(rule), made=spec_of(rule), facts=facts)


def describe_model(model: Model, seed: int) -> Part:
    """Keep a model: its parameters with the values that they start from, its layers and its code."""
    module = make_module(model, seed)
    tensors = [*module.named_parameters(), *module.named_buffers()]
    own = dict.fromkeys(type(each) for each in module.modules() if not is_library(type(each)))
    facts = {
        "made by": "a module" if isinstance(model, nn.Module) else "a function",
        "parameters": [_about(name, tensor) for name, tensor in tensors],
        "layers": str(module),
        "code": code_sha256(*own, *(() if isinstance(model, nn.Module) else (model,))),
        STARTING_VALUES: f"{torch.backends.cpu.get_cpu_capability()}:{tensor_sha256(*(tensor for _, tensor in tensors))}",
    }
    name = type(model).__qualname__ if isinstance(model, nn.Module) else _name(model)
    return Part(shown=name, made=None if isinstance(model, nn.Module) else spec_of(model), facts=facts)


def _about(name: str, tensor: Tensor) -> str:
    fixed = "" if tensor.requires_grad else ", fixed"
    return f"{name}: {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}{fixed}"


def describe_function(function: Any) -> Part:
    """Keep a function: its code."""
    return Part(shown=_name(function), made=spec_of(function), facts={"code": code_sha256(function)})


def _name(thing: Any) -> str:
    """Return what a function is called, with the module or file that it is in."""
    name = getattr(thing, "__qualname__", None)
    if name is None:
        return written(thing)
    module = sys.modules.get(getattr(thing, "__module__", ""))
    if getattr(module, "__name__", None) != "__main__":
        return f"{thing.__module__}:{name}"
    file = getattr(module, "__file__", None)
    return f"{name} of {file.rpartition('/')[2]}" if file else str(name)


def _settings(value: Any) -> Part:
    """Keep a number, a list of numbers, or an object or function with settings."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        value = value.tolist()
    elif isinstance(value, Sequence) and not isinstance(value, str):
        value = [float(each) for each in value]
    shown = _name(value) if hasattr(value, "__qualname__") else written(value)
    facts = {"settings": shown if hasattr(value, "__qualname__") else written(value)}
    if callable(value):
        facts["code"] = code_sha256(value if hasattr(value, "__qualname__") else type(value))
    return Part(shown=shown, made=spec_of(value), facts=facts)


def describe_data(held: AgentData, sizes: Sequence[int] | None, unit: Unit | None) -> Part:
    """Keep what is public about the data: who holds how many records of which kind, and the held-out records."""
    data = held.dataset
    facts: dict[str, Any] = {
        "name": data.name,
        "agents": held.agents,
        "partition": held.partition,
        "owners hash": hashlib.sha256(json.dumps(held.owners).encode()).hexdigest(),
        "numbers of records": list(declared_sizes(held, sizes, held.agents, unit)),
        "classes": -1 if data.classes is None else data.classes,
        "inputs": _kinds(data.train.inputs),
        "targets": _kind(data.train.targets),
        "schema": "drafted" if data.schema is None else str(data.schema),
        "preparation": written(data.prepare),
        "code": code_sha256(data.prepare),
    }
    for name, table in (("validation records", data.validation), ("test records", data.test)):
        facts[f"{name} hash"] = "none" if table is None else tensor_sha256(*inputs.parts(table.inputs), table.targets)
    if data.published and sizes is None:
        whose = [] if data.train.units is None else [data.train.units]
        facts["training records hash"] = tensor_sha256(
            *inputs.parts(data.train.inputs), data.train.targets, *whose, *held.indices
        )
    return Part(shown=f"{data.name}, {held.agents} agents", made=recipe_of(held), facts=facts)


def _kinds(several: inputs.Inputs) -> str:
    kinds = list(map(_kind, inputs.parts(several)))
    if len(kinds) == 1 and isinstance(several, Tensor):
        return kinds[0]
    return "; ".join(f"{name}: {kind}" for name, kind in zip(inputs.names(several), kinds, strict=True))


def _kind(table: Tensor) -> str:
    return f"{str(table.dtype).removeprefix('torch.')} {list(table.shape[1:])}"


def _graph(graph: nx.Graph | Topology, rounds: int) -> Part:
    if not isinstance(graph, nx.Graph):
        digest = hashlib.sha256()
        for number in rounds_of(graph, rounds):
            for links in graph.at(number):
                _add(digest, links.weights)
                _add(digest, links.heard)
        facts: dict[str, Any] = {"agents": graph.agents, "links hash": digest.hexdigest()}
        text = text_of(graph)
        shown = f"{type(graph).__name__}, {graph.agents} agents" if text is None else text
        return Part(shown=shown, made=None if text is None else {"shipped": text}, facts=facts)
    edges, weights = [list(edge) for edge in as_graph(graph).edges], graph.graph.get("weights")
    plain = weights is None and len(edges) <= _MOST_EDGES
    facts = {
        "agents": len(graph),
        "links": len(edges),
        "links hash": hashlib.sha256(json.dumps(edges).encode()).hexdigest(),
    }
    if weights is not None:
        digest = hashlib.sha256()
        _add(digest, sparse.csr_array(weights))
        facts["weights hash"] = digest.hexdigest()
    shown = f"{len(graph)} agents, {len(edges)} links"
    return Part(shown=shown, made={"edges": edges} if plain else None, facts=facts)


def _matrix(matrix: Any) -> Part:
    digest = hashlib.sha256()
    _add(digest, sparse.csr_array(matrix))
    return Part(shown="a matrix of your own", facts={"weights hash": digest.hexdigest()})


def _add(digest: Any, matrix: sparse.csr_array) -> None:
    matrix = sparse.csr_array(matrix, copy=True)
    matrix.sort_indices()
    for values, kind in ((matrix.indptr, np.int64), (matrix.indices, np.int64), (matrix.data, np.float64)):
        digest.update(np.asarray(values, dtype=kind).tobytes())
