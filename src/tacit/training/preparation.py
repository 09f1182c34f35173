"""What a run needs before its first round: a module, a start, weights for the neighbours, labels."""

from collections.abc import Callable, Sequence
from typing import Any

import networkx as nx
import torch
from jaxtyping import Float
from scipy import sparse
from torch import Tensor, nn

from tacit.data import AgentData, Records, Schema
from tacit.data.inputs import Inputs, mapped
from tacit.data.prepare import check_isolated, isolate
from tacit.errors import DataError, GraphError, InvalidInput, ModelError, TacitError
from tacit.graphs import as_graph, check_mixing_matrix, mixing_matrix
from tacit.graphs.adjacency import adjacency
from tacit.models import FlatModel
from tacit.models.seeding import seeded
from tacit.networks import Links, Several, Static, Topology, check_topology
from tacit.privacy import Ledger, Lot, VmapEngine
from tacit.privacy.gradients.choice import code_and_records
from tacit.privacy.units import Unit, require_units

Model = nn.Module | Callable[[], nn.Module]
Graphs = nx.Graph | Topology | Sequence[nx.Graph | Topology]
TAKING_TURNS = "Graphs that take turns from round to round are given as tacit.networks.as_topology([...]), a Cycle"


def make_module(model: Model, seed: int) -> nn.Module:
    """Return the module itself, or one that its function makes under `seed`; torch's global state stays as it was."""
    if isinstance(model, nn.Module):
        return model
    with seeded(seed):
        module = model()
    if not isinstance(module, nn.Module):
        raise InvalidInput(f"model must be a module or a function that makes one; it made {type(module).__name__}")
    return module


def starts(
    flat: FlatModel, model: Model, *, seed: int, trials: int, agents: int | Sequence[int], same_start: bool
) -> Float[Tensor, "agents params"]:
    """Return the first θ of these agents: one for all agents of a trial, or one for each, which follows from its number."""
    numbers = range(agents) if isinstance(agents, int) else agents
    if isinstance(model, nn.Module):
        if not same_start:
            raise InvalidInput("agents can start apart only if model is a function that makes a new module each time")
        return flat.flatten(model).repeat(trials * len(numbers), 1)
    each = (0,) if same_start else numbers
    rows = [
        flat.flatten(make_module(model, seed + trial + 1_000_003 * agent)) for trial in range(trials) for agent in each
    ]
    return torch.stack(rows).repeat_interleave(len(numbers) // len(each), dim=0)


def public_records(data: AgentData, schema: Schema, count: int) -> Records:
    """Return raw records that are not private: held-out ones, or made-up ones that fit the schema."""
    held_out = data.dataset.validation or data.dataset.test
    if held_out is not None and len(held_out) >= count:
        return held_out.take(torch.arange(count, device=held_out.targets.device))
    return schema.sample(count, torch.Generator().manual_seed(0))


def example(data: AgentData, schema: Schema, count: int = 3) -> Inputs:
    """Return prepared inputs that are not private; refuse a preparation that does not treat each record by itself."""
    inputs = public_records(data, schema, count).inputs
    check_isolated(data.dataset.prepare, inputs)
    prepared: Inputs = data.dataset.prepare(inputs)
    return prepared


def public_lot(data: AgentData, schema: Schema, count: int, device: torch.device) -> Lot:
    """Return records that are not private, as one agent's lot."""
    records = public_records(data, schema, count)
    inputs, targets, offsets = (
        mapped(lambda table: table.to(device), records.inputs),
        records.targets.to(device),
        torch.tensor([0, count], device=device),
    )
    return Lot(inputs, targets, offsets, prepare=isolate(data.dataset.prepare, inputs))


def public_units(data: AgentData, schema: Schema, count: int, unit: Unit, device: torch.device) -> Lot:
    """Return units of records that are not private, with many of them and with few, as one agent's lot."""
    lot = public_lot(data, schema, count, device)
    places = torch.arange(unit.most, device=device)
    taken = 1 + (torch.arange(count, device=device) * max(1, unit.most // 2)) % unit.most
    taken[0] = unit.most
    rows = (torch.arange(count, device=device)[:, None] + places) % count
    return lot._replace(rows=torch.where(places < taken[:, None], rows, -1))


def connect(
    graph: Graphs | None,
    mixing: str | sparse.csr_array,
    *,
    allow_drift: bool,
    agents: int,
    trials: int,
    rounds: int,
    exchanges: int = 1,
) -> list[Topology]:
    """Return who hears whom with which weights, for all trials or for each. Without a graph, nobody hears anybody.

    `exchanges` rounds of a topology make one round of the run, of which there are `rounds`.
    """
    if graph is None:
        return [Static(Links.of(sparse.csr_array(sparse.eye_array(agents, format="csr"))))]
    each = list(graph) if isinstance(graph, Sequence) else [graph]
    if len(each) not in (1, trials):
        raise GraphError(f"{len(each)} graphs for {trials} trials; give one for all, or one for each. {TAKING_TURNS}")
    links = [_topology(one, mixing, allow_drift=allow_drift, agents=agents, rounds=rounds * exchanges) for one in each]
    return links if exchanges == 1 else [Several(one, exchanges) for one in links]


def _topology(
    graph: nx.Graph | Topology, mixing: str | sparse.csr_array, *, allow_drift: bool, agents: int, rounds: int
) -> Topology:
    if not isinstance(graph, nx.Graph):
        if graph.agents != agents:
            raise GraphError(
                f"the topology is for {graph.agents} agents, but the data has {agents}; the numbers must be equal"
            )
        if not isinstance(mixing, str) or mixing != "metropolis":
            raise GraphError("mixing gives weights to the links of a graph, but a topology has its own; leave it out")
        check_topology(graph, rounds)
        return graph
    fixed = as_graph(graph)
    if len(fixed) != agents:
        raise GraphError(
            f"the graph has {len(fixed)} nodes, but the data has {agents} agents; the numbers must be equal"
        )
    heard = adjacency(fixed)
    if (weights := graph.graph.get("weights")) is not None:
        if not isinstance(mixing, str) or mixing != "metropolis":
            raise GraphError("the graph's file has its own weights, so mixing has no effect; leave one of them out")
        return Static(Links.of(check_mixing_matrix(weights, fixed), heard))
    if isinstance(mixing, str):
        return Static(Links.of(mixing_matrix(fixed, mixing, allow_drift=allow_drift), heard))
    if not allow_drift:
        return Static(Links.of(check_mixing_matrix(mixing, fixed), heard))
    if getattr(mixing, "shape", None) != (agents, agents):
        raise GraphError(f"mixing must be a matrix of {agents} rows and columns, or the name of a rule")
    return Static(Links.of(sparse.csr_array(mixing), heard))


_PROBED: set[tuple[Any, ...]] = set()


def probe(model: FlatModel, theta: Float[Tensor, " params"], data: AgentData, schema: Schema) -> None:
    """Compute one clipped gradient of public records, so that a model that cannot be trained fails before anything is asked.

    A model of torch's own layers is tried once per process.
    """
    lot = public_lot(data, schema, 2, theta.device)
    known = code_and_records(model, lot)
    key = None if known is None else (*known, data.dataset.classes)
    if key is None or key not in _PROBED:
        _probe(model, theta, data, lot)
    if key is not None:
        _PROBED.add(key)


def _probe(model: FlatModel, theta: Float[Tensor, " params"], data: AgentData, lot: Lot) -> None:
    with torch.no_grad():
        inputs, targets = lot.take(torch.arange(2, device=theta.device))
        outputs = model.outputs(theta, inputs)
        classes = data.dataset.classes
        if not isinstance(outputs, Tensor):
            raise ModelError(f"the model returns a {type(outputs).__name__}; it must return one tensor of outputs")
        if classes is not None and (outputs.ndim != 2 or outputs.shape[1] < classes):
            shape = tuple(outputs.shape[1:])
            raise ModelError(
                f"the model gives outputs of shape {shape} per record; {classes} classes need as many numbers"
            )
        try:
            VmapEngine(model, (2.0,)).plain_sums(theta[None], lot)
        except TacitError:
            raise
        except Exception as error:
            raise ModelError(
                f"per-sample gradients of this model and loss cannot be computed: {type(error).__name__}: {error}"
            ) from error
        for training in (True, False):  # a model may give something else while it is trained, as views do
            outputs = model.outputs(theta, inputs, training=training)
            alone, beside = model.losses_of(outputs, targets), model.loss(outputs, targets)
            if alone.shape != beside.shape or not torch.allclose(alone, beside, rtol=1e-3, atol=1e-5, equal_nan=True):
                raise ModelError(
                    "the loss of a record changes with the others in its batch; it must be a value of its own"
                )


def declared_sizes(
    data: AgentData, sizes: Sequence[int] | None, agents: int, unit: Unit | None = None
) -> tuple[int, ...]:
    """Return the public number of records, or of units, of each of all agents."""
    if unit is not None:
        column = require_units(data.dataset.train.units, unit, data.dataset.name)
        if sum(data.units_held or ()) > len(column[torch.cat(data.indices)].unique()):
            raise DataError(
                f"the records of a {unit.name} are held by two agents: its ε would be the sum of both, and neither states that. Give all "
                f"records of a {unit.name} to one agent, as split does"
            )
    if sizes is None:
        if data.agents != agents:
            raise InvalidInput(
                f"{data.agents} of {agents} agents are hosted here; give sizes, what each of all agents declares to hold"
            )
        return data.sizes if unit is None else data.units_held or ()
    try:
        declared = tuple(int(size) for size in sizes)
    except (TypeError, ValueError):
        declared = ()
    if len(declared) != agents or min(declared) < 1:
        raise InvalidInput(f"sizes is {sizes!r}; it must declare a positive number for each of {agents} agents")
    return declared


def fresh_label(ledger: Ledger, name: str) -> str:
    """Return a run label that the ledger has not seen."""
    taken = {account.run.split("/")[0] for account in ledger.accounts}
    number = 1
    while f"{name}-{number}" in taken:
        number += 1
    return f"{name}-{number}"
