"""Whether links keep the agents' average in every round and join everybody over a stated number of rounds."""

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from tacit.errors import GraphError
from tacit.graphs.mixing import TOLERANCE
from tacit.networks.topology import Links, Topology


def check_topology(topology: Topology, rounds: int) -> None:
    """Raise unless every round keeps the average and every window of rounds joins all agents.

    All rounds of a run are looked at, or one period; of a run that is shorter than the window, the rounds that would follow.
    """
    agents, window = topology.agents, topology.window
    last = max(rounds, window)
    if topology.period is not None:
        last = min(last, topology.period + window - 1)
    seen: list[sparse.csr_array] = []
    known: set[int] = set()
    for round in range(last):
        exchanges = topology.at(round)
        for links in exchanges:
            if id(links) not in known:
                _check_average(links, agents, round)
        known = {id(links) for links in exchanges}
        seen = [*seen[1 - window :], sum((links.heard for links in exchanges[1:]), exchanges[0].heard)][-window:]
        if len(seen) == window and agents > 1:
            parts = csgraph.connected_components(sum(seen[1:], seen[0]), directed=True, connection="strong")[0]
            if parts > 1:
                within = f"rounds {round - window + 1} to {round}" if window > 1 else f"round {round}"
                raise GraphError(
                    f"the agents fall into {parts} groups that hear nothing of each other within {within}; links must join "
                    f"all agents within {window} rounds, or give a longer window, such as window={5 * window}"
                )


def _check_average(links: Links, agents: int, round: int) -> None:
    if links.agents != agents:
        raise GraphError(f"in round {round} there are {links.agents} agents in the place of {agents}")
    weights = links.weights
    if weights.nnz and (not np.isfinite(weights.data).all() or weights.data.min() < -TOLERANCE):
        raise GraphError(f"in round {round} a weight is negative or not finite")
    for line, axis in (("row", 1), ("column", 0)):
        sums = np.asarray(weights.sum(axis=axis)).ravel()
        worst = int(abs(sums - 1).argmax())
        if abs(sums[worst] - 1) > TOLERANCE:
            raise GraphError(
                f"in round {round}, {line} {worst} of the weights sums to {sums[worst]:.12g} in the place of one, so that the "
                "agents' average would drift"
            )
    off = sparse.csr_array(weights - sparse.diags_array(links.own_weights))
    off.eliminate_zeros()
    if (off - off.multiply(links.heard)).nnz:
        raise GraphError(f"in round {round} an agent takes something of one whom it does not hear")
