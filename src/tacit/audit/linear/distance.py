"""How much leaks to whom: what curious agents learn of another agent, by distance in the graph.

What agents see of a target's answers follows from the rule alone (`views`): N(r·Hb, σ²H) for lots b, so their best attack can be
simulated without training. The share of information is exact. The lower bound is on the ε that the target promises, as proven from
the observers' position; more may leak than an attack shows.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import networkx as nx
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.algorithms import Algorithm
from tacit.audit.attacks.collection import Collected
from tacit.audit.bounds.findings import Claim, judge
from tacit.audit.linear.responses import Responses
from tacit.audit.linear.views import log_ratio
from tacit.errors import InvalidInput
from tacit.privacy.accounting import Event, noise_multiplier
from tacit.training.schedules import Schedule


@dataclass(frozen=True, kw_only=True)
class Leak:
    """What observers learn of one target.

    share: the average share of the target's answers that is seen, from 0 to 1; sum_share: the share of their sum, to which a record
    adds in all rounds; exact: how many answers are reconstructed fully.
    epsilon: the lower bound that an attack from there proves on the target's ε, if only its noise may be wrong.
    """

    target: int
    distance: int
    share: float
    sum_share: float
    exact: int
    queries: int
    epsilon: float

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def leaks(
    algorithm: Algorithm[Any],
    graph: nx.Graph,
    observers: Collection[int],
    *,
    rounds: int,
    lr: float | Schedule,
    epsilon: float = 1.0,
    delta: float = 1e-2,
    sample_rate: float = 0.1,
    targets: Sequence[int] | None = None,
    runs: int = 20_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[Leak]:
    """Return what the observers together learn of each target: by default of everyone else, the nearest first."""
    responses = Responses.of(algorithm, graph, rounds=rounds, lr=lr)
    view = responses.view(observers)
    away = _distances(graph, observers)
    if targets is None:
        targets = [agent for agent in sorted(away, key=lambda agent: (away[agent], agent)) if agent not in observers]
    if missing := [agent for agent in targets if agent not in away]:
        raise InvalidInput(f"agent {missing[0]} is not in the graph, or no path leads there from the observers")
    sigma = noise_multiplier(epsilon=epsilon, delta=delta, sample_rate=sample_rate, queries=responses.queries)
    event = Event(sample_rate=sample_rate, noise_multiplier=sigma, count=responses.queries)
    claim = Claim.of(event, delta)
    generator = torch.Generator().manual_seed(seed)
    found = []
    for target in targets:
        information = view.information(target)
        absent, present = (_simulate(information, event, runs, side, generator) for side in (False, True))
        scores = Collected({"likelihood": absent}, {"likelihood": present})
        found.append(
            Leak(
                target=target,
                distance=away[target],
                share=view.share(target),
                sum_share=view.sum_share(target),
                exact=int(view.exact(target).sum()),
                queries=responses.queries,
                epsilon=judge(scores, claim, confidence=confidence).epsilon,
            )
        )
    return found


def nearest_at_each_distance(graph: nx.Graph, observers: Collection[int]) -> list[int]:
    """Return the first agent at each distance from the observers.

    That is enough where all agents at one distance are equivalent for one observer: on a ring, a complete graph, a hypercube.
    """
    away = _distances(graph, observers)
    return [min(agent for agent in away if away[agent] == links) for links in sorted({*away.values()} - {0})]


def _distances(graph: nx.Graph, observers: Collection[int]) -> dict[int, int]:
    return dict(nx.multi_source_dijkstra_path_length(graph, set(observers), weight=None))


def _simulate(
    information: Float[Tensor, "queries queries"], event: Event, runs: int, present: bool, generator: torch.Generator
) -> Float[np.ndarray, " runs"]:
    """Score runs whose reconstructions are drawn from their distribution."""
    queries, sigma = len(information), event.noise_multiplier
    values, vectors = torch.linalg.eigh(information)
    root = vectors * values.clamp(min=0).sqrt()
    noise = torch.randn(runs, queries, dtype=torch.float64, generator=generator) @ root.T
    lots = torch.rand(runs, queries, dtype=torch.float64, generator=generator) < event.sample_rate
    seen = sigma * noise + (lots.double() @ information if present else 0.0)
    return log_ratio(information, seen, rate=event.sample_rate, noise=sigma).numpy()
