"""Whether links keep the agents' average in every round and connect all agents over a stated number of rounds."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from tacit.errors import GraphError
from tacit.graphs.mixing import TOLERANCE
from tacit.networks.topology import Links, Topology
from tacit.ties import first_largest


def check_topology(topology: Topology, rounds: int) -> None:
    """Raise unless every round keeps the average and every window of rounds connects all agents.

    All rounds of a run are checked, or one period; for a run shorter than the window, also the rounds that would follow.
    """
    window = topology.window
    last = max(rounds, window)
    if topology.period is not None:
        last = min(last, topology.period + window - 1)
    known: set[int] = set()
    end = window - 1
    for round in range(last):
        exchanges = topology.at(round)
        for links in exchanges:
            if id(links) not in known:
                _check_average(links, topology.agents, round)
        known = {id(links) for links in exchanges}
        if round == end:
            # Every window that ends before the next `end` contains the rounds found to connect all agents.
            end = _joined_since(topology, round) + window


def _joined_since(topology: Topology, end: int) -> int:
    """Return the latest round from which the links up to `end` connect all agents; raise if that takes more than a window.

    If rows and columns of weights sum to one, the flow into a group equals the flow out of it, so the direction of links
    does not matter.
    """
    window, groups = topology.window, topology.agents
    group: NDArray[np.integer[Any]] = np.arange(groups)
    for round in range(end, end - window, -1):
        for links in topology.at(round):
            rows, columns = links.weights.nonzero()
            between = sparse.csr_array((np.ones(len(rows)), (group[rows], group[columns])), shape=(groups, groups))
            groups, merged = csgraph.connected_components(between, directed=False)
            group = merged[group]
        if groups == 1:
            return round
    when = f"within rounds {end - window + 1} to {end}" if window > 1 else f"in round {end}"
    needed = f"within any {window} rounds" if window > 1 else "in every round"
    longer = "" if topology.period is not None else f", or the window must be longer, such as window={5 * window}"
    raise GraphError(
        f"the agents fall into {groups} groups that hear nothing of each other {when}; links must join all agents {needed}{longer}"
    )


def _check_average(links: Links, agents: int, round: int) -> None:
    if links.agents != agents:
        raise GraphError(f"in round {round} there are {links.agents} agents instead of {agents}")
    weights = links.weights
    if (bad := ~np.isfinite(weights.data) | (weights.data < -TOLERANCE)).any():
        place, first = weights.tocoo(), int(bad.argmax())
        raise GraphError(
            f"in round {round}, agent {place.row[first]} takes {place.data[first]:g} of agent {place.col[first]}; a weight must be "
            "finite and not negative"
        )
    for line, axis in (("row", 1), ("column", 0)):
        sums = np.asarray(weights.sum(axis=axis)).ravel()
        drift = abs(sums - 1)
        if drift.max() > TOLERANCE:
            worst = first_largest(drift, scale=1.0)
            raise GraphError(
                f"in round {round}, {line} {worst} of the weights sums to {sums[worst]:.12g} instead of one, so the agents' "
                "average would drift"
            )
    off = sparse.csr_array(weights - sparse.diags_array(links.own_weights))
    unheard = sparse.csr_array(off - off.multiply(links.heard))
    unheard.eliminate_zeros()
    if unheard.nnz:
        place = unheard.tocoo()
        raise GraphError(
            f"in round {round}, agent {place.row[0]} takes {place.data[0]:g} of agent {place.col[0]}, whom it does not hear"
        )
