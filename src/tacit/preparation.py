"""What a run needs before its first round: a module, a start, weights for the neighbours, labels."""

from collections.abc import Callable, Sequence

import networkx as nx
import torch
from jaxtyping import Float
from scipy import sparse
from torch import Tensor, nn

from tacit.data import AgentData
from tacit.errors import GraphError, InvalidInput
from tacit.graphs import as_graph, check_mixing_matrix, mixing_matrix
from tacit.models import FlatModel
from tacit.privacy import Ledger

Model = nn.Module | Callable[[], nn.Module]
Graphs = nx.Graph | Sequence[nx.Graph]


def make_module(model: Model, seed: int) -> nn.Module:
    """Return the module itself, or one that its function makes under `seed`; torch's global state stays as it was."""
    if isinstance(model, nn.Module):
        return model
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = model()
    if not isinstance(module, nn.Module):
        raise InvalidInput(f"model must be a module or a function that makes one; it made {type(module).__name__}")
    return module


def starts(
    flat: FlatModel, model: Model, *, seed: int, trials: int, agents: int, same_start: bool
) -> Float[Tensor, "agents params"]:
    """Return every agent's first θ: one for all agents of a trial, or one for each."""
    if isinstance(model, nn.Module):
        if not same_start:
            raise InvalidInput("agents can start apart only if model is a function that makes a new module each time")
        return flat.flatten(model).repeat(trials * agents, 1)
    each = 1 if same_start else agents
    rows = [
        flat.flatten(make_module(model, seed + trial + 1_000_003 * agent))
        for trial in range(trials)
        for agent in range(each)
    ]
    return torch.stack(rows).repeat_interleave(agents // each, dim=0)


def example(data: AgentData, count: int = 3) -> Tensor:
    """Return prepared inputs that are not private: validation records, or made-up ones of the same shape."""
    held_out = data.data.validation or data.data.test
    if held_out is not None and len(held_out) >= count:
        return data.data.prepare(held_out.inputs[:count])
    shape = (count, *data.data.train.inputs.shape[1:])
    generator = torch.Generator().manual_seed(0)
    dtype = data.data.train.inputs.dtype
    if dtype.is_floating_point:
        return data.data.prepare(torch.randn(shape, generator=generator, dtype=dtype))
    return data.data.prepare(torch.randint(0, 2, shape, generator=generator).to(dtype))


def weights(
    graph: Graphs | None,
    mixing: str | sparse.csr_array,
    *,
    allow_drift: bool,
    agents: int,
    trials: int,
    needed: bool,
) -> list[sparse.csr_array]:
    """Return the mixing matrix of all trials, or one for each."""
    if graph is None:
        if needed and agents > 1:
            raise GraphError(f"the algorithm exchanges messages among {agents} agents; say along which graph")
        return [sparse.csr_array(sparse.eye_array(agents, format="csr"))]
    graphs = [as_graph(g) for g in ([graph] if isinstance(graph, nx.Graph) else graph)]
    if len(graphs) not in (1, trials):
        raise GraphError(f"{len(graphs)} graphs for {trials} trials; give one for all, or one for each")
    for each in graphs:
        if len(each) != agents:
            raise GraphError(f"the graph has {len(each)} nodes and the data {agents} agents; they must be as many")
    if isinstance(mixing, str):
        return [mixing_matrix(each, mixing, allow_drift=allow_drift) for each in graphs]
    if allow_drift:
        return [sparse.csr_array(mixing)]
    return [check_mixing_matrix(mixing, each) for each in graphs]


def declared_sizes(data: AgentData, sizes: Sequence[int] | None) -> tuple[int, ...]:
    """Return the public number of records of each agent."""
    if sizes is None:
        return data.sizes
    if len(sizes) != data.agents or min(sizes) < 1:
        raise InvalidInput(f"sizes must declare a positive number for each of {data.agents} agents, got {list(sizes)}")
    return tuple(sizes)


def fresh_label(ledger: Ledger, name: str) -> str:
    """Return a run label that the ledger has not seen."""
    taken = {entry.run.split("/")[0] for entry in ledger.entries()}
    number = 1
    while f"{name}-{number}" in taken:
        number += 1
    return f"{name}-{number}"
