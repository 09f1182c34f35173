"""The parts of a run (data, model, loss, rule, graph) rebuilt from its settings without running any code of its owner.

A run of the command line names its parts; a run from Python keeps how each can be rebuilt, or facts about it. Parts of the library are
rebuilt from that: rules, losses, step sizes and sources from the fixed list below, published data sets if they are available, graphs from
their links, and models if they have the layers and starting values of one of the library's. No name in an archive is imported, no file that
it names is opened, and nothing is downloaded. Only if the auditor asks for it (`run_code`) is the owner's code imported, as when a run
is resumed, and only if it is the code that the run had.
"""

import re
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import networkx as nx
import torch
from torch import nn

from tacit import models
from tacit.algorithms import RULES, STEPS, Averaged, Robust
from tacit.data import AgentData, DataSet
from tacit.data.catalog import absent
from tacit.errors import InvalidInput, TacitError
from tacit.graphs.files import graph_of
from tacit.models import LOSSES, MODELS, Loss
from tacit.networks import Topology
from tacit.privacy import Fast, Secret, Seeded
from tacit.privacy.noise_kinds import Masks
from tacit.registry import CODECS, DATA_SETS, rule_line
from tacit.runs.building import loss_function, model_for
from tacit.runs.config import RunConfig
from tacit.runs.event_types import PlanEvent
from tacit.runs.python_config import AnyConfig, Part, PythonConfig
from tacit.runs.python_training import training_with
from tacit.runs.rebuilding import SYNTHETIC, make_again
from tacit.runs.recorded_parts import STARTING_VALUES, changed_facts, describe, describe_model, differences
from tacit.runs.specs import is_shipped, load_dataset
from tacit.runs.user_code import find, is_user_code
from tacit.runs.user_parts import make_user_part
from tacit.training.preparation import Model
from tacit.training.schedules import Constant, LogSpaced
from tacit.training.settings import Training

_CLASSES = (Averaged, Robust, *STEPS.values(), Constant, LogSpaced, Secret, Seeded, Fast)
_MOST_SYNTHETIC, _MOST_NUMBERS = 10**7, 10**9
_MOST_PARAMETERS = 2 * 10**8
_LINEAR = re.compile(r"\d+\.weight: float32 \[(\d{1,9}), \d+\]")
_Made = TypeVar("_Made")


class Missing(Exception):
    """Why something could not be rebuilt, as part of a sentence."""


class Parts(Protocol):
    """The parts of a run. Each is made when asked for, or raises `Missing`."""

    def data(self) -> DataSet:
        """Return the data set."""

    def model(self) -> Model:
        """Return a function that makes the model, with any starting values."""

    def loss(self) -> Loss:
        """Return the loss."""

    def training(self) -> Training:
        """Return all parts together, ready to be replayed."""


def find_parts(config: AnyConfig, plan: PlanEvent, data_dir: Path | None, *, run_code: bool) -> Parts:
    """Return the parts of a run, with those of the owner's own only if `run_code`."""
    if isinstance(config, PythonConfig):
        return FromPython(config, plan, data_dir, run_code)
    return FromCommandLine(config, plan, data_dir, run_code)


class FromCommandLine:
    """The parts of a run of `tacit train`."""

    def __init__(self, config: RunConfig, plan: PlanEvent, data_dir: Path | None, run_code: bool) -> None:
        folder = {"data_dir": None if data_dir is None else str(data_dir)}  # and not the one that the archive names
        self._config, self._plan, self._run_code = config.model_copy(update=folder), plan, run_code
        self._data_dir = data_dir

    def data(self) -> DataSet:
        """Return the data set, if it comes with the library and is available."""
        return self._data

    @cached_property
    def _data(self) -> DataSet:
        text, (name, _, records) = self._config.dataset, self._config.dataset.partition(":")
        if name == "synthetic":
            _check_size(text, records.isdecimal() and len(records) <= 8 and int(records) <= _MOST_SYNTHETIC)
        elif self._run_code and is_user_code(text):
            return self._split_data.dataset
        else:
            _check_available(text, self._data_dir)
        return load_dataset(text, self._data_dir, self._config.seed)

    @cached_property
    def _split_data(self) -> AgentData:
        return self._made(self._config.load_data)

    def model(self) -> Model:
        """Return the model, if it is the library's."""
        self._check("model", self._config.model in MODELS)
        return self._made(lambda: model_for(self._config, self.data()))

    def loss(self) -> Loss:
        """Return the loss, if it is the library's."""
        self._check("loss", self._config.loss in LOSSES)
        return self._made(lambda: loss_function(self._config))

    def training(self) -> Training:
        """Return all parts together."""
        config = self._config
        self._check("algorithm", rule_line(config.algorithm) is not None)
        self.model()
        self.loss()
        _check_numbers(self._plan, self.data(), config.agents)
        graph = self._made(lambda: self._graph(self._split_data.agents))
        keys = self._made(lambda: self._key_graph(self._split_data.agents))
        return self._made(
            lambda: config.training(name="", ledger=None, data=self._split_data, graph=graph, key_graph=keys)
        )

    def _key_graph(self, agents: int) -> nx.Graph | None:
        """Return the key graph that the plan has, where the settings name a file; None where they name one of the library's."""
        text = self._config.keys
        if self._config.noise != "cancelling" or text in ("complete", "graph"):
            return None
        if is_shipped("graph", text):
            _check_search(text, "key graph")
            return None
        if self._plan.masks is None:
            raise Missing("its key graph was in a file, and the plan has no masks from which to rebuild it")
        pairs = Masks.of_json(self._plan.masks).keys.all_pairs
        return graph_of(agents, pairs, None)

    def _graph(self, agents: int) -> nx.Graph | Topology | None:
        """Return the graph that the settings name or, if they name a file, one with the links of the plan."""
        text = self._config.graph
        if not self._config.has_exchanges or is_shipped("graph", text) or (self._run_code and is_user_code(text)):
            _check_search(text)
            return self._config.load_graph(agents)
        self._check("graph", not self._plan.changing)
        return graph_of(agents, self._plan.edges, self._plan.weights)

    def _made(self, make: Callable[[], _Made]) -> _Made:
        return _run_owner_code(make) if self._run_code else make()

    def _check(self, key: str, shipped: bool) -> None:
        if not shipped and not self._run_code:
            raise _not_run(key, getattr(self._config, key))


class FromPython:
    """The parts of a run of `tacit.train(..., run=...)`."""

    def __init__(self, config: PythonConfig, plan: PlanEvent, data_dir: Path | None, run_code: bool) -> None:
        self._config, self._plan, self._data_dir, self._run_code = config, plan, data_dir, run_code
        self._own: set[str] = set()  # keys of the parts that were made by the owner's code

    def data(self) -> DataSet:
        """Return the data set, if it comes with the library and is available."""
        return self._split_data.dataset

    @cached_property
    def _split_data(self) -> AgentData:
        made = self._part("data").made or {}
        name = made.get("dataset")
        if isinstance(name, str) and (found := SYNTHETIC.fullmatch(name)):
            _check_size(name, all(len(found[key]) <= 9 for key in ("records", "features", "classes", "seed")))
            records, features, classes = (int(found[key]) for key in ("records", "features", "classes"))
            numbers = (max(records, classes) + 2000) * features
            _check_size(name, numbers <= _MOST_NUMBERS and records <= _MOST_SYNTHETIC)
        elif isinstance(name, str):
            _check_available(name, self._data_dir)
        elif not (self._run_code and made):
            raise Missing(f"the data set {self._config.dataset[:80]!r} does not come with the library")
        split: AgentData = self._make("data")
        return split

    def model(self) -> Model:
        """Return the model, if it is made by a function of the library or has the layers of one of its models."""
        return self._model("layers", "parameters")

    def _model(self, *facts: str) -> Model:
        part = self._part("model")
        kept = {name: part.facts.get(name) for name in facts}
        named, why = [], _not_run("model", part.shown, f", by its {', '.join(facts)},")
        try:
            named.append(self._make("model"))
        except Missing as error:
            why = error if self._run_code else why
        for each in (*named, *self._models(part)):
            if self._plan.params > _MOST_PARAMETERS or _parameters(each) != self._plan.params:
                continue
            made = describe_model(each, self._config.seed).facts
            if not changed_facts(kept, {name: made[name] for name in facts}):
                if each not in named:
                    self._own.discard("model")
                return each
        raise why

    def _models(self, part: Part) -> Iterator[Callable[[], nn.Module]]:
        """Yield each model of the library for these records, and an MLP of the recorded widths."""
        shape, classes = self.data().input_shape, self.data().classes
        if classes is not None:
            yield from (partial(make, shape, classes) for make in MODELS.values())
            widths = [found[1] for each in part.facts.get("parameters", []) if (found := _LINEAR.fullmatch(str(each)))]
            yield partial(models.mlp, shape, classes, hidden=tuple(map(int, widths[:-1])))

    def loss(self) -> Loss:
        """Return the loss, if it is the library's."""
        loss: Loss = self._make("loss")
        return loss

    def training(self) -> Training:
        """Return all parts together, compared with the facts that the settings hold about each."""
        config = self._config
        _check_numbers(self._plan, self.data(), config.agents)
        if self._part("mixing").made is None:
            raise Missing(f"its weights are {self._part('mixing').shown[:80]}, which the settings do not contain")
        keys = ("algorithm", "loss", "lr", "sources", *(["graph"] if "graph" in config.parts else []))
        objects = {key: self._make(key) for key in keys}
        objects |= {"data": self._split_data, "model": self._model("layers", "parameters", STARTING_VALUES)}
        training = training_with(config, objects)
        made = describe(training, self._names())
        if changed := differences(self._comparable(config.parts), self._comparable(made)):
            words = f"the facts in the settings do not match what they name: {'; '.join(changed)}"
            raise Missing(words) if self._own else InvalidInput(words)
        return training

    def _names(self) -> dict[str, str]:
        """Return the name by which each part was made; readers are shown that name."""
        names = {}
        for key, part in self._config.parts.items():
            made = part.made or {}
            name = made.get("own") if key in self._own else made.get("shipped", made.get("file"))
            if name is not None:
                names[key] = str(name)
        return names

    def _comparable(self, parts: dict[str, Part]) -> dict[str, Part]:
        """Return the parts with facts that can be compared: for parts of the library, their text and nothing that depends on Python.

        A model of the library may be made by another function than in the run.
        """

        def facts(key: str, part: Part) -> dict[str, Any]:
            if key in self._own:
                return part.facts
            shown = {} if key == "model" else {"shown": part.shown}
            return {name: each for name, each in part.facts.items() if name not in ("code", "made by")} | shown

        return {key: part.model_copy(update={"facts": facts(key, part)}) for key, part in parts.items()}

    def _part(self, key: str) -> Part:
        if key not in self._config.parts:
            raise InvalidInput(f"the settings have no facts about the {key}")
        return self._config.parts[key]

    def _make(self, key: str) -> Any:
        part, config = self._part(key), self._config
        if part.made is None or ("own" in part.made and not self._run_code):
            raise _not_run(key, part.shown)
        if "shipped" in part.made and key == "graph":
            _check_shipped_graph(str(part.made["shipped"]))
        if "file" in part.made and "edges" not in part.made:
            if self._plan.changing:
                raise _not_run(key, part.shown)
            return graph_of(config.agents, self._plan.edges, self._plan.weights)
        if "own" not in part.made:
            data = None if key == "data" else self._split_data
            return make_again(key, part.made, config, data, named=self._named, data_dir=self._data_dir)
        self._own.add(key)
        text = str(part.made["own"])
        own = _run_owner_code(lambda: find(key, text, config.code.get(key)))
        return _run_owner_code(
            lambda: make_user_part(key, own, None if key == "data" else self._split_data, config.seed)
        )

    def _named(self, key: str, name: str) -> Any:
        known = _library()
        if name in known:
            return known[name]
        if not self._run_code:
            raise _not_run(key, name)
        self._own.add(key)
        return _run_owner_code(lambda: find(key, name).value)


def _library() -> dict[str, Any]:
    """Return the functions and classes of the library from which parts may be rebuilt, by their names in the settings."""
    things = (*_CLASSES, *RULES.values(), *CODECS.values(), *MODELS.values(), *LOSSES.values())
    return {f"{thing.__module__}:{thing.__qualname__}": thing for thing in things}


def _run_owner_code(make: Callable[[], _Made]) -> _Made:
    """Return what the owner's code makes. A file that is missing or different here says nothing about the run."""
    try:
        return make()
    except TacitError as error:
        raise Missing(str(error)) from None


def _parameters(make: Callable[[], nn.Module]) -> int | None:
    """Return how many parameters a model would have, without making them; None if it is not a model."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in make().parameters())
    except (TacitError, AttributeError, TypeError, ValueError, RuntimeError):
        return None


def _not_run(key: str, name: str, more: str = "") -> Missing:
    return Missing(f"the {key} {name[:80]!r}{more} is not part of the library, and code of the owner is not run here")


def _check_search(text: str, what: str = "graph") -> None:
    if "restarts" in text:
        raise Missing(f"its {what} was searched for with a number of restarts of its own")


def _check_shipped_graph(text: str) -> None:
    """Refuse a text that would open a file, or start a search for a graph whose length the archive sets."""
    if not is_shipped("graph", text):
        raise _not_run("graph", text)
    _check_search(text)


def _check_available(name: str, data_dir: Path | None) -> None:
    if name not in DATA_SETS:
        raise Missing(f"the data set {name[:80]!r} is not one that comes with the library")
    if (file := absent(name, data_dir)) is not None:
        raise Missing(f"{file} of the data set {name!r} is not in the data folder; set TACIT_DATA, or give --data-dir")


def _check_size(name: str, reasonable: bool) -> None:
    if not reasonable:
        raise Missing(f"{name[:80]!r} is not a synthetic data set of a reasonable size")


def _check_numbers(plan: PlanEvent, data: DataSet, agents: int) -> None:
    held = sum(plan.sizes)
    if held > 2 * len(data.train) + 1000 * plan.agents or agents > len(data.train):
        raise Missing(f"the plan has {held} records, but the data set {len(data.train)}")
