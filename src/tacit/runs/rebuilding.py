"""Makes the objects of a run from Python again: from names that can be imported, with plain settings. Nothing is pickled."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data import IID, AgentData, ByClass, DataSet, Dirichlet, Partition, load, synthetic
from tacit.errors import InvalidInput
from tacit.graphs.adjacency import from_pairs
from tacit.runs.python_config import PARTS, PythonConfig
from tacit.runs.resuming import call, described
from tacit.runs.shipped import BY_NAME, by_name, make_shipped
from tacit.runs.user_code import find, is_user_code
from tacit.runs.user_parts import make_user_part

Named = Callable[[str, str], Any]
"""Returns what a name stands for; the first text says what it is for."""

_DIVIDED = re.compile(r"(?P<name>.+)/(?P<how>[^/]+)/seed (?P<seed>\d+)/(?P<agents>\d+) agents(?:/by unit)?")
SYNTHETIC = re.compile(
    r"synthetic (?P<records>\d+)x(?P<features>\d+), (?P<classes>\d+) classes, distance (?P<distance>\S+), seed (?P<seed>\d+)"
)


def rebuild(
    config: PythonConfig,
    given: Mapping[str, Any],
    path: Path,
    *,
    had: Mapping[str, Any] | None = None,
    only: Sequence[str] = PARTS,
    by: str = "tacit.resume",
) -> dict[str, Any]:
    """Return the objects of a run: those that are given, and the others rebuilt from what is kept; say which must be given.

    had: objects of the run that were made before. by: the function to which objects are given.
    """
    found, missing = {**(had or {}), **given}, []
    for key in only:
        if key in BY_NAME and isinstance(text := found.get(key), str):
            found[key], _ = by_name(key, text, found.get("data"), config.seed)
            if key == "data":
                found[key] = _as_it_was_divided(found[key], config)
        if key in found or key not in config.parts:
            continue
        made = config.parts[key].made
        if made is None:
            missing.append(key)
        else:
            try:
                found[key] = _again(key, made, config, found.get("data"))
            except InvalidInput as error:
                if "own" in made:
                    raise
                again = call(by, path, [*(name for name in PARTS if name in given), key])
                raise InvalidInput(f"{error}. Or give it again, as it was: {again}") from error
    if missing:
        again = call(by, path, [key for key in PARTS if key in missing or key in given])
        raise InvalidInput(
            f"this run was started from Python with what no file can hold: {described(config, missing)}. Give "
            f"{'it' if len(missing) == 1 else 'them'} again, as tacit.train was given {'it' if len(missing) == 1 else 'them'}: {again}"
        )
    return found


def spec_of(value: Any) -> dict[str, Any] | None:
    """Return how a value can be made again, as plain data; None if it must be given."""
    spec = _spec(value)
    return None if spec is None else {"value": spec}


def recipe_of(held: AgentData) -> dict[str, Any] | None:
    """Return how a published data set is made again; the result is compared with the facts, as any other object is."""
    found = _DIVIDED.fullmatch(held.partition)
    pooled = held.partition == f"{held.dataset.name}/pooled"
    if not held.dataset.published or not (found or pooled):
        return None
    if pooled:
        return {"dataset": held.dataset.name, "pooled": True}
    assert found is not None
    return {"dataset": held.dataset.name, "split": found["how"], "agents": held.agents, "seed": int(found["seed"])}


def name_of_thing(thing: Any) -> str | None:
    """Return the name under which anybody can import a function or class, or None."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or "<" in name:
        return None
    value: Any = sys.modules.get(module)
    file = getattr(value, "__file__", None)
    if value is None or getattr(value, "__spec__", None) is None or file is None:
        return None  # not imported by its name: a file of its own, a notebook
    for part in name.split("."):
        value = getattr(value, part, None)
    return f"{module}:{name}" if value is thing else None


def _imported(key: str, name: str) -> Any:
    return find(key, name).value


def _again(key: str, made: Mapping[str, Any], config: PythonConfig, data: AgentData | None) -> Any:
    """Rebuild an object from what is kept of it."""
    if "own" not in made:
        return make_again(key, made, config, data)
    value = make_user_part(key, find(key, str(made["own"]), config.code.get(key)), data, config.seed)
    return _as_it_was_divided(value, config) if key == "data" else value


def make_again(
    key: str,
    made: Mapping[str, Any],
    config: PythonConfig,
    data: AgentData | None = None,
    *,
    named: Named = _imported,
    data_dir: Path | None = None,
) -> Any:
    """Rebuild an object from what is kept of it, unless that is a name in the user's own code. `named` finds functions and classes."""
    if "shipped" in made:
        return make_shipped(key, str(made["shipped"]), data, config.seed)
    if "file" in made and "edges" not in made:
        return make_shipped("graph", str(made["file"]), data, config.seed)
    try:
        if key == "data":
            return _load(made, data_dir)
        if key == "graph":
            return from_pairs(config.agents, np.array(made["edges"], dtype=np.int64).reshape(-1, 2))
        return _from_spec(key, made["value"], named)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{key}: what config.toml keeps of it cannot be read ({error}); it was changed") from error


def _spec(value: Any) -> Any:
    """Return how a value can be made again, as plain data, or None."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, partial):
        if any(each is None or isinstance(each, list) for each in (*value.args, *value.keywords.values())):
            return None  # a file keeps neither None nor the difference between lists and tuples
        parts = {"partial": _spec(value.func), "given": _spec(value.args), "with": _settings(value.keywords)}
        return None if any(part is None for part in parts.values()) else parts
    if isinstance(value, list | tuple):
        each = [_spec(one) for one in value]
        return None if any(one is None for one in each) else each
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        name = name_of_thing(value)
        return None if name is None else {"name": name}
    name = name_of_thing(type(value))
    if name is None:
        return None
    if is_dataclass(value):
        made = _settings({field.name: getattr(value, field.name) for field in fields(value) if field.init})
        return None if made is None else {"name": name, "with": made}
    return None if getattr(value, "__dict__", None) else {"name": name, "with": {}}


def _settings(values: Mapping[str, Any]) -> dict[str, Any] | None:
    made = {key: _spec(each) for key, each in values.items() if each is not None}
    return None if any(each is None for each in made.values()) else made


def _from_spec(key: str, spec: Any, named: Named) -> Any:
    if isinstance(spec, list):
        return [_from_spec(key, each, named) for each in spec]
    if not isinstance(spec, dict):
        return spec
    if "partial" in spec:
        given = [tuple(each) if isinstance(each, list) else each for each in _from_spec(key, spec["given"], named)]
        options = {name: _from_spec(key, each, named) for name, each in spec["with"].items()}
        options = {name: tuple(each) if isinstance(each, list) else each for name, each in options.items()}
        return partial(_from_spec(key, spec["partial"], named), *given, **options)
    if not isinstance(spec.get("name"), str) or not is_user_code(spec["name"]):
        raise InvalidInput(f"{key}: {spec!r} does not say what it is made of; config.toml was changed")
    thing = named(key, spec["name"])
    if "with" not in spec:
        return thing
    if not isinstance(thing, type) or (spec["with"] and not is_dataclass(thing)):
        raise InvalidInput(f"{key}: {spec['name']} is not a class with settings; config.toml, or the file, was changed")
    try:
        return thing(**{name: _from_spec(key, each, named) for name, each in spec["with"].items()})
    except TypeError as error:
        raise InvalidInput(f"{key}: {spec['name']} cannot be made as it was: {error}") from error


def _as_it_was_divided(data: DataSet | AgentData, config: PythonConfig) -> AgentData:
    """Divide data that was given as a whole as it was divided when the run began."""
    if isinstance(data, AgentData):
        return data
    partition = str(config.parts["data"].facts.get("partition"))
    if partition.endswith("/pooled"):
        return data.split(1, IID()).pooled()
    found = _DIVIDED.fullmatch(partition)
    if found is None:
        raise InvalidInput(f"data: how it was divided ({partition}) cannot be read; give it again, divided, as data=")
    return data.split(int(found["agents"]), _partition(found["how"]), seed=int(found["seed"]))


def _load(made: Mapping[str, Any], data_dir: Path | None) -> AgentData:
    name = str(made["dataset"])
    whole: DataSet
    if found := SYNTHETIC.fullmatch(name):
        numbers = {key: int(found[key]) for key in ("records", "features", "classes", "seed")}
        whole = synthetic(**numbers, distance=float(found["distance"]))
    else:
        whole = load(name, data_dir)
    if made.get("pooled"):
        return whole.split(1, IID()).pooled()
    return whole.split(int(made["agents"]), _partition(str(made["split"])), seed=int(made["seed"]))


def _partition(text: str) -> Partition:
    """Return the partition whose `str` is this text."""
    if found := re.fullmatch(r"A\(t=([^)]+)\)", text):
        return ByClass(t=float(found[1]))
    if found := re.fullmatch(r"Dirichlet\(alpha=([^,)]+)(?:, min_size=(\d+))?\)", text):
        return Dirichlet(alpha=float(found[1]), min_size=int(found[2] or 1))
    if text == "IID":
        return IID()
    raise InvalidInput(f"data: records were divided by {text}, which is not a partition of Tacit's; give data= again")
