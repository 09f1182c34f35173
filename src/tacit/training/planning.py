"""What a run will ask and what noise covers it: both are settled, and public, before the first query."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict

import torch

from tacit.algorithms.averaged import name_of
from tacit.errors import GraphError, PrivacyError
from tacit.networks import EchoNetwork, Topology
from tacit.networks.topology import edges_over
from tacit.privacy import Plan, Privacy
from tacit.training.absences import Absences
from tacit.training.counting import Cost, check_rows_apart, count, rows_to_check
from tacit.training.noise_response import noise_response
from tacit.training.preparation import connect
from tacit.training.runtimes import Hosted
from tacit.training.schedules import Schedule, only_rows
from tacit.training.settings import Training

LEAST_NOISE = 0.02

log = logging.getLogger(__name__)


class _ThetaShape(TypedDict):
    width: int
    dtype: torch.dtype


def count_queries(
    training: Training,
    hosted: Hosted,
    trials: int,
    topologies: Sequence[Topology],
    schedule: Schedule,
    *,
    width: int,
    dtype: torch.dtype,
) -> Cost:
    """Play the rule through for the hosted agents without data: along the run's own graph, and without links to check its rows."""
    rule, rounds, seed = training.algorithm, training.rounds, training.seed
    agents, shape = hosted.agents, _ThetaShape(width=width, dtype=dtype)

    def echo(device: torch.device) -> EchoNetwork:
        return EchoNetwork(topologies, agents, trials=trials, device=device)

    cost = count(rule, rounds, schedule, echo, seed, **shape, gossip_rounds=training.gossip_rounds)
    if cost.messages and training.graph is None and hosted.total > 1:
        raise GraphError(f"the algorithm exchanges messages among {hosted.total} agents; say along which graph")
    if len(agents) * trials > 1:
        some, of_trials = rows_to_check(len(agents), trials, width)
        rows = [trial * len(agents) + agent for trial in range(of_trials) for agent in range(some)]
        nobody = connect(None, "", allow_drift=False, agents=hosted.total, trials=1, rounds=rounds)

        def alone(device: torch.device) -> EchoNetwork:
            return EchoNetwork(nobody, agents[:some], trials=of_trials, device=device)

        check_rows_apart(rule, rounds, only_rows(schedule, rows, len(agents) * trials), alone, seed, **shape)
    return cost


def settle_plan(
    training: Training,
    sizes: Sequence[int],
    queries: int,
    topology: Topology,
    absences: Absences,
    schedule: Schedule,
) -> Plan:
    """Settle every agent's mechanism for so many queries. Masks are chosen for the graph and, with ratio "auto", for the rule on it."""
    noise = training.cancelling
    if not isinstance(training.privacy, Privacy) or noise is None:
        return _check_noise(training.privacy.plan(sizes, queries))
    if absences.lost > noise.lost:
        raise PrivacyError(
            f"masks are to be shared without {absences.lost} of the agents, which leave, but the noise is planned for {noise.lost}; give "
            f"Cancelling(lost={absences.lost})"
        )
    rule, pairs, response = training.algorithm, edges_over(topology, training.rounds), None
    if noise.ratio == "auto":
        keys = noise.keys_of(topology.agents, pairs)
        response = noise_response(rule, topology, keys, training.rounds, schedule, training.seed)
        if response is None:
            log.warning(
                "%s is not linear in its gradients, so masks would not cancel in it: every agent adds noise of its own alone",
                name_of(rule),
            )
            return _check_noise(replace(training.privacy, noise=None).plan(sizes, queries))
    plan = training.privacy.plan(sizes, queries, pairs=pairs, response=response)
    if plan.masks is None:
        log.warning(
            "masks would disturb the agents' models under %s on this graph more than the noise that they save: every agent adds noise "
            "of its own alone",
            name_of(rule),
        )
    return _check_noise(plan)


def _check_noise(plan: Plan) -> Plan:
    """Return a plan, or refuse one with so little noise that no ε can be derived."""
    if plan.privacy is not None and min(plan.noise_multipliers) < LEAST_NOISE:
        raise PrivacyError(
            f"the noise multiplier is {min(plan.noise_multipliers):g}; below {LEAST_NOISE} a single query costs "
            "thousands of ε, which nobody could derive in the end. Use NoPrivacy for none"
        )
    return plan
