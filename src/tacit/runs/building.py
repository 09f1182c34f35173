"""Makes what the settings of `tacit train` describe: data, links, model, loss, rule, and all of it as a `Training`."""

from dataclasses import replace
from typing import Any

import networkx as nx

from tacit.algorithms import STEPS, Algorithm, Averaged, Momentum, Robust
from tacit.algorithms.robust import parse_robust
from tacit.data import IID, AgentData, DataSet
from tacit.errors import DataError, InvalidInput
from tacit.models import Loss
from tacit.networks import Topology, find_codec
from tacit.privacy import Cancelling, Discrete, Fast, Ledger, NoPrivacy, Privacy, Secret, Seeded, Sources, Unit
from tacit.runs.config import RunConfig
from tacit.runs.config_checks import OF_RULES, fields_set_by_settings
from tacit.runs.python_config import AnyConfig
from tacit.runs.rules import make_shipped_rule
from tacit.runs.shipped import shipped_loss, shipped_model
from tacit.runs.specs import is_shipped, load_dataset, parse_keys, parse_links, parse_split
from tacit.runs.user_code import UserCode, find, is_user_code
from tacit.runs.user_parts import as_data, as_links, as_loss, as_model, as_rule
from tacit.training.absences import Absence
from tacit.training.preparation import Model
from tacit.training.schedules import Constant, LogSpaced
from tacit.training.settings import Training

_STEP_RECORDS = 256  # of a step of gradients where workers share the agents
_OWN = ("algorithm", "dataset", "graph", "model", "loss")


def pins(config: RunConfig) -> dict[str, dict[str, str]]:
    """Return where the user's own code is defined, with the hashes of these files; the files are run."""
    found = {key: _own(config, key) for key in _OWN}
    return {key: own.code for key, own in found.items() if own is not None}


def divide_data(config: RunConfig) -> AgentData:
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
            f"the records of {config.dataset} are divided among {whole.agents} agents, but the run began with {config.agents}; put "
            "them back, or start a new run"
        )
    for key, actual in (("agents", whole.agents), ("split", RunConfig.model_fields["split"].default)):
        if key in config.model_fields_set and getattr(config, key) != actual:
            raise InvalidInput(
                f"{key} is {getattr(config, key)!r}, but the records of {config.dataset} are divided among {whole.agents} agents "
                f"already; leave {key} out"
            )
    return whole


def data_of_site(config: RunConfig, name: str) -> AgentData:
    """Return all records of a data set as those of one site among peers."""
    whole = whole_data(config.dataset, config.data_dir, config.seed)
    # Nobody knows whether a patient of this site is one of another site, too.
    local = whole.train.units is not None
    return replace(whole.split(1, IID()), owners=(name,), partition="", local_units=local)


def whole_data(text: str, folder: str | None, seed: int) -> DataSet:
    """Return the data set that a site names."""
    if not is_user_code(text) or is_shipped("dataset", text):
        return load_dataset(text, folder, seed)
    found = as_data(find("dataset", text))
    if isinstance(found, DataSet):
        return found
    if found.agents != 1:
        raise DataError(f"{text} holds the records of {found.agents} agents; a site gives its own alone")
    return found.dataset


def links(config: RunConfig, agents: int) -> nx.Graph | Topology:
    """Return who talks to whom."""
    own = _own(config, "graph")
    return parse_links(config.graph, agents, config.seed) if own is None else as_links(own, agents, config.seed)


def model_for(config: RunConfig, data: DataSet) -> Model:
    """Return the function that makes the model for records of a data set."""
    if (own := _own(config, "model")) is not None:
        return as_model(own, lambda: {"input_shape": data.input_shape, "classes": data.classes})
    return shipped_model(config.model, data)


def loss_function(config: RunConfig) -> Loss:
    """Return the loss."""
    own = _own(config, "loss")
    return shipped_loss(config.loss) if own is None else as_loss(own)


def make_rule(config: RunConfig) -> Algorithm[Any]:
    """Return the update rule, with robust means and averages if these are wanted."""
    own = _own(config, "algorithm")
    rule = _shipped_rule(config) if own is None else as_rule(own)
    if (robust := parse_robust(config.mixing)) is not None:
        rule = Robust(rule, *robust)
    return rule if config.averaging is None else Averaged(rule, config.averaging)


def _shipped_rule(config: RunConfig) -> Algorithm[Any]:
    settings = {key: getattr(config, key) for key in fields_set_by_settings(config.algorithm) if key in OF_RULES}
    settings = {key: value for key, value in settings.items() if value != RunConfig.model_fields[key].default}
    if config.step is not None:
        settings["step"] = Momentum(config.momentum) if config.step == "momentum" else STEPS[config.step]()
    if config.codec is not None:
        settings["codec"] = find_codec(config.codec)
    return make_shipped_rule(config.algorithm, settings)


def make_training(
    config: RunConfig,
    *,
    name: str,
    ledger: Ledger | None,
    data: AgentData,
    graph: nx.Graph | Topology | None,
    key_graph: nx.Graph | None,
    compiled: bool | None,
) -> Training:
    """Return the settings of a run as the library takes them; see `RunConfig.training`."""
    sources: dict[str, Sources] = {"secret": Secret(), "seeded": Seeded(config.seed), "fast": Fast(config.seed)}
    return Training(
        algorithm=config.rule(),
        model=model_for(config, data.dataset),
        loss=loss_function(config),
        data=data,
        privacy=make_privacy(config, data.agents, key_graph),
        rounds=config.rounds,
        lr=Constant(config.lr) if config.lr_final is None else LogSpaced(config.lr, config.lr_final),
        graph=graph,
        mixing="metropolis" if config.is_robust else config.mixing,
        allow_drift=config.allow_drift,
        seed=config.seed,
        sources=sources[config.source if config.private else "fast"],
        ledger=ledger,
        name=name,
        spare_queries=config.spare_queries if config.private else 0,
        gossip_rounds=config.gossip_rounds,
        exchanges_per_query=config.exchanges_per_query,
        absences=make_absences(config),
        step_agents=_step_agents(config, data.agents),
        evaluate_every=config.evaluate_every,
        private_diagnostics=config.private_diagnostics,
        compile=config.compile if compiled is None else compiled,
        device=config.device,
    )


def _step_agents(config: RunConfig, agents: int) -> int | None:
    """Return for how many agents a step of the engine is shaped; where workers share the agents, it is the same for any number of workers.

    Rounding follows from the shape of a step, so the same run on other numbers of workers gives the same bits.
    """
    if config.workers is None or config.step_agents is not None:
        return config.step_agents
    lots = config.lot_size if isinstance(config.lot_size, list) else [config.lot_size]
    return min(agents, max(1, round(_STEP_RECORDS / max(lots))))


def make_absences(config: AnyConfig) -> tuple[Absence, ...]:
    """Return the absences of a run as the library takes them."""
    return tuple(Absence(each.agent, each.first, each.until, each.rekey) for each in config.absences)


def make_privacy(config: RunConfig, agents: int, key_graph: nx.Graph | None) -> Privacy | NoPrivacy:
    """Return the privacy settings of a run as the library takes them."""
    if not config.private:
        return NoPrivacy(lot_size=config.lot_size)
    noise: Cancelling | Discrete | None = None
    if config.noise == "discrete":
        noise = Discrete(config.rounding_bits)
    if config.noise == "cancelling":
        noise = Cancelling(
            curious=config.curious,
            keys=parse_keys(config.keys, agents, config.seed) if key_graph is None else key_graph,
            ratio=config.mask_ratio,
            lost=config.lost,
        )
    return Privacy(
        epsilon=config.epsilon,
        noise_multiplier=config.noise_multiplier,
        delta=config.delta,
        clip=config.clip,
        lot_size=config.lot_size,
        adjacency=config.adjacency,
        accountant=config.accountant,
        unit=None if config.unit is None else Unit.of(config.unit),
        noise=noise,
        bands=config.bands,
    )


def _own(config: RunConfig, key: str) -> UserCode | None:
    """Return the user's own code that a setting names, if any; code that was changed since the run began is refused."""
    text = getattr(config, key)
    return find(key, text, config.code.get(key)) if is_user_code(text) and not is_shipped(key, text) else None
