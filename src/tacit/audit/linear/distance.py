"""How much leaks to whom: what curious agents learn of another agent, by distance in the graph.

What agents see of a target's answers follows from the rule alone (`views`): N(r·Hb, σ²H) for lots b, so their best attack can be
simulated without training. The share of information is exact for messages that are linear in the answers. The lower bound is on the ε
that the target claims, as proven from the observers' position; more may leak than an attack shows.

A share below 1 is not a guarantee, and no ε in Tacit rests on one. Models that an observer does not see flow into gradients that it
does: where these are steep, they may carry what mixing seems to hide.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.algorithms import Algorithm
from tacit.audit.attacks.collection import Collected
from tacit.audit.attacks.known_masks import hidden_covariance, known_pairs
from tacit.audit.bounds.findings import Claim, judge
from tacit.audit.linear.responses import Responses
from tacit.audit.linear.views import log_ratio
from tacit.errors import InvalidInput
from tacit.networks.topology import edges_over
from tacit.privacy import Cancelling
from tacit.privacy.calibration import noise_multiplier
from tacit.privacy.cancelling import best_ratio, masks_for, usual_ratio
from tacit.privacy.event import Event
from tacit.training.noise_response import expected_response
from tacit.training.schedules import Schedule


@dataclass(frozen=True, kw_only=True)
class Leak:
    """What observers learn of one target.

    share: the average share of the target's answers that is seen, from 0 to 1: μ² relative to that of noise without masks of the same
    claim, for an observer of everything; sum_share: the share of their sum, to which a record adds in all rounds; exact: how many
    answers, with the masks in them, are reconstructed fully.
    epsilon: the lower bound that an attack from there proves on the target's ε, if only its noise may be wrong.
    """

    target: int
    distance: int
    share: float
    sum_share: float
    exact: int
    queries: int
    epsilon: float


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
    noise: Cancelling | None = None,
) -> list[Leak]:
    """Return what the observers together learn of each target: by default of everyone else, the nearest first.

    With `noise` agents share masks, of which the observers know those that they share; ε is then claimed against `noise.curious` agents.
    """
    responses = Responses.of(algorithm, graph, rounds=rounds, lr=lr)
    plain = responses.view(observers)
    view = plain if noise is None else responses.view(observers, covariance=_covariance(noise, responses, observers))
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
                exact=int(plain.exact(target).sum()),
                queries=responses.queries,
                epsilon=judge(scores, claim, confidence=confidence).epsilon,
            )
        )
    return found


def _covariance(noise: Cancelling, responses: Responses, observers: Collection[int]) -> Float[Tensor, "agents agents"]:
    """Return the covariance of what the observers do not know, in units of the noise that equal agents without masks would need."""
    pairs = edges_over(responses.topology, responses.rounds)
    keys, removed = noise.keys_of(responses.agents, pairs), noise.curious + noise.lost
    needed, ratio = [1.0] * responses.agents, noise.ratio
    if isinstance(ratio, str):
        rounds, schedule, seed = responses.rounds, responses.schedule, responses.seed
        expected = expected_response(responses.algorithm, [responses.topology], keys, removed, rounds, schedule, seed)
        ratio = (
            usual_ratio(needed, keys, removed)
            if expected is None
            else best_ratio(needed, keys, removed, expected.response)
        )
    if ratio == 0:
        raise InvalidInput(
            "masks would disturb this rule on this graph more than the noise that they save; give a ratio"
        )
    masks = masks_for(needed, keys, removed, ratio=ratio, lost=noise.lost)
    return hidden_covariance(masks, known_pairs(masks, observers))


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
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T  # whatever signs and bases the library chooses
    noise = torch.randn(runs, queries, dtype=torch.float64, generator=generator) @ root
    lots = torch.rand(runs, queries, dtype=torch.float64, generator=generator) < event.sample_rate
    seen = sigma * noise + (lots.double() @ information if present else 0.0)
    return log_ratio(information, seen, rate=event.sample_rate, noise=sigma).numpy()
