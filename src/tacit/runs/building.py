"""What settings are made into where they may name the user's own code: data, links, model, loss and rule."""

from typing import Any

import networkx as nx

from tacit.algorithms import Algorithm
from tacit.data import AgentData, DataSet
from tacit.errors import InvalidInput
from tacit.models import Loss
from tacit.networks import Topology
from tacit.runs.config import RunConfig
from tacit.runs.naming import Own, find, is_own
from tacit.runs.own import as_data, as_links, as_loss, as_model, as_rule
from tacit.runs.shipped import shipped_loss, shipped_model
from tacit.runs.specs import is_shipped, load_dataset, parse_links, parse_split
from tacit.training.preparation import Model

_OWN = ("algorithm", "dataset", "graph", "model", "loss")


def pins(config: RunConfig) -> dict[str, dict[str, str]]:
    """Return where the user's own code is defined, with the hashes of these files; the files are run."""
    found = {key: _own(config, key) for key in _OWN}
    return {key: own.code for key, own in found.items() if own is not None}


def deal(config: RunConfig) -> AgentData:
    """Return who holds which records."""
    whole: DataSet | AgentData
    if (own := _own(config, "dataset")) is None:
        whole = load_dataset(config.dataset, config.data_dir, config.seed)
    else:
        whole = as_data(own)
    if isinstance(whole, DataSet):
        return whole.split(config.agents, parse_split(config.split), seed=config.seed)
    if "dataset" in config.code and whole.agents != config.agents:
        raise InvalidInput(
            f"the records of {config.dataset} are divided among {whole.agents} agents, and were among {config.agents} when the run "
            "began; put them back, or start a new run"
        )
    for key, told in (("agents", whole.agents), ("split", RunConfig.model_fields["split"].default)):
        if key in config.model_fields_set and getattr(config, key) != told:
            raise InvalidInput(
                f"{key} is {getattr(config, key)!r}, and the records of {config.dataset} are divided among {whole.agents} agents "
                f"already; leave {key} out"
            )
    return whole


def links(config: RunConfig, agents: int) -> nx.Graph | Topology:
    """Return who talks to whom."""
    own = _own(config, "graph")
    return parse_links(config.graph, agents, config.seed) if own is None else as_links(own, agents, config.seed)


def model_for(config: RunConfig, data: DataSet) -> Model:
    """Return what makes the model for records of some data set."""
    if (own := _own(config, "model")) is not None:
        return as_model(own, lambda: {"input_shape": data.input_shape, "classes": data.classes})
    return shipped_model(config.model, data)


def loss_function(config: RunConfig) -> Loss:
    """Return the loss."""
    own = _own(config, "loss")
    return shipped_loss(config.loss) if own is None else as_loss(own)


def own_rule(config: RunConfig) -> Algorithm[Any] | None:
    """Return the user's own update rule; None where the settings name one that is shipped."""
    own = _own(config, "algorithm")
    return None if own is None else as_rule(own)


def _own(config: RunConfig, key: str) -> Own | None:
    """Return what a setting names of the user's own, if it does; code that was changed since a run began is refused."""
    text = getattr(config, key)
    return find(key, text, config.code.get(key)) if is_own(text) and not is_shipped(key, text) else None
