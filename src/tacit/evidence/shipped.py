"""What a run was made of, made again without running anything of its owner's.

A run of the command line names its parts, and a run from Python keeps how each can be made again, or what it is like. Whatever
comes with the library is made from that: rules, losses, step sizes and sources from a list that is fixed here, published data sets that are
at hand, graphs from their links, and models that have the layers and starting values of the library's. No name in an archive is
imported, no file that it names is opened, and nothing is downloaded. Only where the auditor asks for it (`run_code`) are names followed, as
a resume does.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import networkx as nx
import torch
from torch import nn

from tacit import models
from tacit.algorithms import DSGD, DSGT, SGD, Adam, Averaged, DiNNO, Local, Momentum, Plain
from tacit.building import loss_function, model_for
from tacit.config import RunConfig
from tacit.data import AgentData, DataSet
from tacit.data.catalog import NAMES, absent
from tacit.errors import InvalidInput, TacitError
from tacit.graphs.files import graph_of
from tacit.graphs.topologies import KINDS
from tacit.models import LOSSES, MODELS, Loss
from tacit.networks import Topology
from tacit.networks.schedules import SCHEDULES
from tacit.preparation import Model
from tacit.privacy import Fast, Secret, Seeded
from tacit.runs.again import SYNTHETIC, make_again
from tacit.runs.events import Plan
from tacit.runs.objects import maker, training_with
from tacit.runs.parts import describe, describe_model, differences
from tacit.runs.python_config import AnyConfig, Part, PythonConfig
from tacit.schedules import Constant, LogSpaced
from tacit.settings import Training
from tacit.specs import load_dataset

_CLASSES = (SGD, Local, DSGD, DSGT, DiNNO, Averaged, Plain, Momentum, Adam, Constant, LogSpaced, Secret, Seeded, Fast)
_LIBRARY: tuple[Any, ...] = (*_CLASSES, *MODELS.values(), *LOSSES.values())
_KNOWN = {f"{thing.__module__}:{thing.__qualname__}": thing for thing in _LIBRARY}
_RULES = ("sgd", "local", "dsgd", "dsgt", "dinno")
_MOST_SYNTHETIC, _MOST_NUMBERS = 10**7, 10**9
_MOST_PARAMETERS = 2 * 10**8
_LINEAR = re.compile(r"\d+\.weight: float32 \[(\d{1,9}), \d+\]")
_LEFT_ALONE = "and nothing of the owner's is run here"


class Missing(Exception):
    """Why something could not be made again, as a part of a sentence."""


class Parts(Protocol):
    """What a run was made of."""

    def data(self) -> DataSet:
        """Return the data set."""

    def model(self) -> Model:
        """Return what makes the model, with whatever starting values."""

    def loss(self) -> Loss:
        """Return the loss."""

    def training(self) -> Training:
        """Return all of it, to be played again."""


def parts_of(config: AnyConfig, plan: Plan, data_dir: Path | None, *, run_code: bool) -> Parts:
    """Return the parts of a run; each is made, or found to be `Missing`, when it is asked for."""
    if run_code:
        return Followed(config, data_dir)
    if isinstance(config, PythonConfig):
        return FromPython(config, plan, data_dir)
    return FromCommandLine(config, plan, data_dir)


class FromCommandLine:
    """The parts of a run of `tacit train`."""

    def __init__(self, config: RunConfig, plan: Plan, data_dir: Path | None) -> None:
        folder = {"data_dir": None if data_dir is None else str(data_dir)}  # and not the one that the archive names
        self._config, self._plan, self._data_dir = config.model_copy(update=folder), plan, data_dir

    def data(self) -> DataSet:
        """Return the data set, if it comes with the library and is at hand."""
        return self._data

    @cached_property
    def _data(self) -> DataSet:
        text, (name, _, records) = self._config.dataset, self._config.dataset.partition(":")
        if name == "synthetic" and (not records.isdecimal() or len(records) > 8 or int(records) > _MOST_SYNTHETIC):
            raise Missing(f"{text[:80]!r} is no synthetic data set of a reasonable size")
        if name != "synthetic":
            _check_at_hand(text, self._data_dir)
        return load_dataset(text, self._data_dir, self._config.seed)

    def model(self) -> Model:
        """Return the model, if it is the library's."""
        if self._config.model not in MODELS:
            raise Missing(f"the model {self._config.model[:80]!r} is not part of the library, {_LEFT_ALONE}")
        return model_for(self._config, self.data())

    def loss(self) -> Loss:
        """Return the loss, if it is the library's."""
        if self._config.loss not in LOSSES:
            raise Missing(f"the loss {self._config.loss[:80]!r} is not part of the library, {_LEFT_ALONE}")
        return loss_function(self._config)

    def training(self) -> Training:
        """Return all of it."""
        config = self._config
        if config.algorithm not in _RULES:
            raise Missing(f"the rule {config.algorithm[:80]!r} is not part of the library, {_LEFT_ALONE}")
        self.model()
        self.loss()
        _check_numbers(self._plan, self.data(), config.agents)
        data = config.load_data()
        return config.training(name="", ledger=None, data=data, graph=self._graph(data.agents))

    def _graph(self, agents: int) -> nx.Graph | Topology | None:
        """Return the graph that the settings name or, where they name a file, the links that the plan has."""
        kind = self._config.graph.strip().partition(":")[0].replace("-", "_")
        if self._config.algorithm in ("sgd", "local") or kind in (*KINDS, "random", *SCHEDULES):
            if "restarts" in self._config.graph:
                raise Missing("its graph was searched for with a number of restarts of its own")
            return self._config.load_graph(agents)
        if self._plan.changing:
            raise Missing(f"the graph {self._config.graph[:80]!r} is not part of the library, {_LEFT_ALONE}")
        return graph_of(agents, self._plan.edges, self._plan.weights)


class FromPython:
    """The parts of a run of `tacit.train(..., run=...)`."""

    def __init__(self, config: PythonConfig, plan: Plan, data_dir: Path | None) -> None:
        self._config, self._plan, self._data_dir = config, plan, data_dir

    def data(self) -> DataSet:
        """Return the data set, if it comes with the library and is at hand."""
        return self._dealt.data

    @cached_property
    def _dealt(self) -> AgentData:
        made = self._part("data").made
        if made is None or not isinstance(name := made.get("dataset"), str):
            raise Missing(f"the data set {self._config.dataset[:80]!r} does not come with the library")
        if found := SYNTHETIC.fullmatch(name):
            if any(len(found[key]) > 9 for key in ("records", "features", "classes", "seed")):
                raise Missing(f"{name[:80]!r} is no synthetic data set of a reasonable size")
            records, features, classes = (int(found[key]) for key in ("records", "features", "classes"))
            if (max(records, classes) + 2000) * features > _MOST_NUMBERS or records > _MOST_SYNTHETIC:
                raise Missing(f"{name[:80]!r} is no synthetic data set of a reasonable size")
        else:
            _check_at_hand(name, self._data_dir)
        if not isinstance(self._config.agents, int) or self._config.agents > _MOST_SYNTHETIC:
            raise Missing(f"{self._config.agents} agents are not dealt to")
        dealt: AgentData = self._make("data", made)
        return dealt

    def model(self) -> Model:
        """Return the model, if it is made by a function of the library or has the layers of one of its models."""
        return self._model("layers", "parameters")

    def _model(self, *facts: str) -> Model:
        part = self._part("model")
        kept = {name: part.facts.get(name) for name in facts}
        for each in self._models(part):
            if _parameters(each) != self._plan.params or self._plan.params > _MOST_PARAMETERS:
                continue
            made = describe_model(each, self._config.seed).facts
            if {name: made[name] for name in facts} == kept:
                return each
        raise Missing(
            f"the model {part.shown[:80]!r} is not one of the library's by its {', '.join(facts)}, {_LEFT_ALONE}"
        )

    def _models(self, part: Part) -> Iterator[Callable[[], nn.Module]]:
        """Yield what may have made the model: what the settings name, each model of the library, and an MLP of its widths."""
        shape, classes = self.data().input_shape, self.data().classes
        if part.made is not None and "own" not in part.made:
            with suppress(Missing):
                yield self._make("model", part.made)
        if classes is not None:
            yield from (partial(make, shape, classes) for make in MODELS.values())
            widths = [found[1] for each in part.facts.get("parameters", []) if (found := _LINEAR.fullmatch(str(each)))]
            yield partial(models.mlp, shape, classes, hidden=tuple(map(int, widths[:-1])))

    def loss(self) -> Loss:
        """Return the loss, if it is the library's."""
        loss: Loss = self._of_library("loss")
        return loss

    def training(self) -> Training:
        """Return all of it, held against what the settings keep of each part."""
        config = self._config
        objects = {key: self._of_library(key) for key in ("algorithm", "loss", "lr", "sources")}
        if "graph" in config.parts:
            objects["graph"] = self._of_library("graph")
        if self._part("mixing").made is None:
            raise Missing(f"its weights are {self._part('mixing').shown[:80]}, which the settings do not keep")
        _check_numbers(self._plan, self.data(), config.agents)
        model = self._model("layers", "parameters", "starting values hash")
        training = training_with(config, {**objects, "data": self._dealt, "model": model})
        if changed := differences(_comparable(config.parts), _comparable(describe(training, {}))):
            raise InvalidInput(f"the settings keep other facts than what they name has: {'; '.join(changed)}")
        return training

    def _part(self, key: str) -> Part:
        if key not in self._config.parts:
            raise InvalidInput(f"the settings keep nothing of the {key}")
        return self._config.parts[key]

    def _of_library(self, key: str) -> Any:
        part = self._part(key)
        if part.made is None or "own" in part.made:
            raise Missing(f"the {key} {part.shown[:80]!r} is not part of the library, {_LEFT_ALONE}")
        return self._make(key, part.made)

    def _make(self, key: str, made: dict[str, Any]) -> Any:
        return make_again(key, made, self._config, named=_known, data_dir=self._data_dir)


class Followed:
    """The parts of a run with whatever code its settings name, which is run. Files that were changed are refused."""

    def __init__(self, config: AnyConfig, data_dir: Path | None) -> None:
        self._config, self._data_dir = config, data_dir

    def data(self) -> DataSet:
        """Return the data set."""
        return self._training.data.data

    def model(self) -> Model:
        """Return what makes the model."""
        return self._training.model

    def loss(self) -> Loss:
        """Return the loss."""
        return self._training.loss

    def training(self) -> Training:
        """Return all of it."""
        return self._training

    @cached_property
    def _training(self) -> Training:
        config = self._config
        if isinstance(config, RunConfig):
            config = config.model_copy(update={"data_dir": None if self._data_dir is None else str(self._data_dir)})
        if config.dataset in NAMES:
            _check_at_hand(config.dataset, self._data_dir)
        try:
            return replace(maker(config)(lambda _: None), progress=False)
        except TacitError as error:  # a file is not here, or another: that says nothing about the run
            raise Missing(str(error)) from None


def _parameters(make: Callable[[], nn.Module]) -> int | None:
    """Return how many parameters a model would have, without making them; None if it is no model."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in make().parameters())
    except (TacitError, AttributeError, TypeError, ValueError, RuntimeError):
        return None


def _known(key: str, name: str) -> Any:
    if name not in _KNOWN:
        raise Missing(f"the {key} {name[:80]!r} is not part of the library, {_LEFT_ALONE}")
    return _KNOWN[name]


def _check_at_hand(name: str, data_dir: Path | None) -> None:
    if name not in NAMES:
        raise Missing(f"the data set {name[:80]!r} is not one that comes with the library")
    if (file := absent(name, data_dir)) is not None:
        raise Missing(f"{file} of the data set {name!r} is not in the data folder; set TACIT_DATA, or give --data-dir")


def _check_numbers(plan: Plan, data: DataSet, agents: int) -> None:
    held = sum(plan.sizes)
    if held > 2 * len(data.train) + 1000 * plan.agents or agents > len(data.train):
        raise Missing(f"the plan has {held} records and the data set {len(data.train)}")


def _comparable(parts: dict[str, Part]) -> dict[str, Part]:
    """Return parts with what a reader is shown among the facts, and without what differs between versions of Python.

    A model may be another function than the one that made it, with the same layers and values.
    """
    aside = ("code", "made by")
    return {
        key: part.model_copy(
            update={
                "facts": {name: each for name, each in part.facts.items() if name not in aside}
                | ({} if key == "model" else {"shown": part.shown})
            }
        )
        for key, part in parts.items()
    }
