"""What a name stands for where a run is started, from Python or from the command line: a shipped part, or the user's own."""

from typing import Any

from tacit import models
from tacit.data import AgentData, DataSet
from tacit.errors import InvalidInput, choose
from tacit.models import LOSSES, Loss
from tacit.runs.rules import make_shipped_rule
from tacit.runs.specs import is_shipped, load_dataset, parse_links
from tacit.runs.user_code import UserCode, find, is_user_code, refuse_file_alone
from tacit.runs.user_parts import make_user_part
from tacit.training.preparation import Model

BY_NAME = ("data", "algorithm", "model", "loss", "graph")
"""What `tacit.train` also takes by name; the data first, since a model or a graph may be made for it."""


def by_name(key: str, text: str, data: Any, seed: int) -> tuple[Any, UserCode | None]:
    """Return the object that a name stands for, and where the user's own code is; data may come as a whole, not yet divided."""
    if is_user_code(text) and not is_shipped("dataset" if key == "data" else key, text):
        own = find(key, text)
        return make_user_part(key, own, data, seed), own
    refuse_file_alone(text, key)
    return make_shipped(key, text, data, seed), None


def make_shipped(key: str, text: str, data: Any, seed: int) -> Any:
    """Return a shipped part by its name; some are made for the data of a run."""
    if key == "data":
        return load_dataset(text, seed=seed)
    if key == "algorithm":
        return make_shipped_rule(text)
    if key == "loss":
        return shipped_loss(text)
    choose("part that has names", key, BY_NAME)
    if not isinstance(data, AgentData):
        raise InvalidInput(f"{key} {text!r} depends on the data of the run, which is not given; give data=")
    return shipped_model(text, data.dataset) if key == "model" else parse_links(text, data.agents, seed)


def shipped_loss(name: str) -> Loss:
    """Return a loss."""
    loss: Loss = LOSSES[choose("loss", name, LOSSES)]
    return loss


def shipped_model(name: str, data: DataSet) -> Model:
    """Return the function that makes a model for records of a data set."""
    choose("model", name, models.MODELS)
    if data.classes is None:
        raise InvalidInput(f"{data.name} has no classes, but {name} is a classifier; give a model of your own")
    shape, classes = data.input_shape, data.classes
    return lambda: models.build(name, shape, classes)
