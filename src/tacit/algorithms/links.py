"""What some rules need of the links: the same in every round, pairs, or weights that are not too negative.

A rule that needs something has a method `check_links(topology, rounds)`, which raises. A run asks it before its first query.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from tacit.algorithms.averaged import rule_of
from tacit.algorithms.interface import Algorithm
from tacit.errors import GraphError
from tacit.graphs.eigen import smallest
from tacit.networks.topology import Links, Topology, rounds_of


def check_links(algorithm: Algorithm[Any], topologies: Sequence[Topology], rounds: int) -> None:
    """Raise if a rule cannot be played on these links."""
    check = getattr(rule_of(algorithm), "check_links", None)
    if check is not None:
        for topology in topologies:
            check(topology, rounds)


def require_same_links(name: str, topology: Topology, rounds: int) -> None:
    """Raise unless all rounds have the same links with the same weights: replicas of neighbours would be wrong afterwards."""
    first = topology.at(0)
    for round in rounds_of(topology, rounds):
        links = topology.at(round)
        if len(links) != len(first) or not all(map(_equal, links, first)):
            raise GraphError(
                f"{name} keeps what it has read of its neighbours, and in round {round} the links are not those of round 0, so that this "
                "would be wrong from then on; use a fixed graph without absences, or a rule without such a memory, such as DSGT"
            )


def require_pairs(name: str, topology: Topology, rounds: int) -> None:
    """Raise unless every agent has at most one neighbour at a time."""
    for round in rounds_of(topology, rounds):
        for links in topology.at(round):
            if links.degrees.max(initial=0) > 1:
                agent = int(links.degrees.argmax())
                raise GraphError(
                    f"{name} averages in pairs, and in round {round} agent {agent} hears {links.degrees[agent]} others; use links in pairs, "
                    "such as the schedule matchings"
                )


def smallest_eigenvalue(exchanges: Sequence[Links]) -> float:
    """Return λ_min of the weights of a round, the product of those of its exchanges. Raises if they are not symmetric."""
    weights = exchanges[0].weights
    for links in exchanges[1:]:
        weights = sparse.csr_array(links.weights @ weights)
    if abs(weights - weights.T).max() > 1e-9:
        raise GraphError("the weights are not symmetric; without that, how far they may be negative is not known")
    eye = sparse.eye_array(weights.shape[0], format="csr")
    value, _ = smallest(sparse.csr_array(weights + eye), beside_ones=False)
    return float(value - 1)


def _equal(one: Links, other: Links) -> bool:
    if one is other:
        return True
    apart = (abs(one.heard - other.heard), abs(one.weights - other.weights))
    return all(gap.nnz == 0 or float(np.max(gap.data)) == 0.0 for gap in apart)
