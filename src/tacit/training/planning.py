"""What a run will ask and what noise covers it: both are settled, and public, before the first query."""

import logging
from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from typing import Any, TypedDict

import torch

from tacit.algorithms.averaged import name_of, rule_of
from tacit.errors import GraphError, InvalidInput, PrivacyError
from tacit.networks import DENSE, EchoNetwork, Topology
from tacit.networks.topology import edges_over
from tacit.privacy import Cancelling, NoPrivacy, Plan, Privacy
from tacit.privacy.votes import Ballot
from tacit.training.absences import Absences
from tacit.training.counting import Cost, check_rows_apart, count, rows_to_check
from tacit.training.noise_response import Expected, expected_response
from tacit.training.preparation import connect
from tacit.training.runtimes import Hosted
from tacit.training.schedules import Schedule, as_schedule, only_rows
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
        raise GraphError(f"the algorithm exchanges messages among {hosted.total} agents; give a graph")
    if len(agents) * trials > 1:
        some, of_trials = rows_to_check(len(agents), trials, width)
        rows = [trial * len(agents) + agent for trial in range(of_trials) for agent in range(some)]
        nobody = connect(None, "", allow_drift=False, agents=hosted.total, trials=1, rounds=rounds)

        def alone(device: torch.device) -> EchoNetwork:
            return EchoNetwork(nobody, agents[:some], trials=of_trials, device=device)

        check_rows_apart(rule, rounds, only_rows(schedule, rows, len(agents) * trials), alone, seed, **shape)
    return cost


def settle_plans(
    training: Training,
    privacies: Sequence[Privacy | NoPrivacy],
    sizes: Sequence[int],
    cost: Cost,
    topologies: Sequence[Topology],
    absences: Absences,
    *,
    trials: int,
    width: int,
) -> list[Plan]:
    """Settle everybody's plan in each trial: one for all, unless trials have privacy settings of their own."""
    if len(privacies) not in (0, trials):
        raise InvalidInput(f"{len(privacies)} privacy settings for {trials} trials; give one for each")
    if any(isinstance(privacy, Privacy) and privacy.unit != training.unit for privacy in privacies):
        raise PrivacyError("trials protect the same units as their training; give its privacy settings the same unit")
    plans = [
        settle_plan(
            replace(training, privacy=privacy) if privacies else training,
            sizes,
            cost.queries + training.spare_queries,
            topologies,
            absences,
            as_schedule(training.lr),
            width=width,
            ballot=cost.ballot,
        )
        for privacy in privacies or [training.privacy]
    ]
    return plans if privacies else plans * trials


def settle_plan(
    training: Training,
    sizes: Sequence[int],
    queries: int,
    topologies: Sequence[Topology],
    absences: Absences,
    schedule: Schedule,
    *,
    width: int,
    ballot: Ballot | None = None,
) -> Plan:
    """Settle every agent's mechanism for this many queries. Masks are chosen for the graph and, with ratio "auto", for the rule on it.

    Trials may have a graph each. All have the same masks: the size is chosen for the graph on which masks disturb most.
    `width` is the number of parameters, and `ballot` is what teachers are asked in a query, where they are.
    """
    noise = training.cancelling
    if not isinstance(training.privacy, Privacy):
        if ballot is not None:
            raise PrivacyError(
                f"{name_of(training.algorithm)} asks teachers so that records stay hidden; without privacy, train on the records themselves, "
                "by DSGD for example"
            )
        return training.privacy.plan(sizes, queries)
    if ballot is not None:
        _check_teachers(ballot, sizes)
        return _check_noise(training.privacy.plan_votes(len(sizes), queries, ballot))
    if noise is None:
        return _check_noise(training.privacy.plan(sizes, queries, width=width))
    if absences.lost > noise.lost:
        raise PrivacyError(
            f"masks are to be shared without {absences.lost} of the agents, which leave, but the noise is planned for {noise.lost}; give "
            f"Cancelling(lost={absences.lost})"
        )
    rule, pairs, expected = training.algorithm, _common_pairs(noise, topologies, training.rounds), None
    if noise.ratio == "auto":
        expected = _expect(training, noise, topologies, pairs, schedule)
        if expected is None:
            _refuse_codec(training, noise, topologies, pairs, schedule)
            log.warning(
                "%s is not linear in its gradients, so masks would not cancel in it: every agent adds only its own noise",
                name_of(rule),
            )
            return _check_noise(replace(training.privacy, noise=None).plan(sizes, queries))
    response = None if expected is None else expected.response
    plan = training.privacy.plan(sizes, queries, pairs=pairs, response=response)
    if plan.masks is None:
        log.warning(
            "masks would disturb the agents' models under %s on this graph more than the noise that they save: every agent adds only "
            "its own noise",
            name_of(rule),
        )
    elif expected is not None and expected.left is not None:
        log.warning(
            "masks gain little under %s on this graph: they should leave about %.0f %% of the mean square by which noise without masks moves "
            "an agent's model, since it takes masks out of the differences between agents too slowly; with DSGT they would leave %.0f %%",
            name_of(rule),
            100 * expected.left,
            100 * expected.by_dsgt,
        )
    return _check_noise(plan)


def _common_pairs(noise: Cancelling, topologies: Sequence[Topology], rounds: int) -> Sequence[tuple[int, int]]:
    """Return the pairs of neighbours, which must be the same in all trials where they are to share keys."""
    pairs, *others = [edges_over(topology, rounds) for topology in topologies]
    if noise.keys == "graph" and any(set(other) != set(pairs) for other in others):
        raise PrivacyError(
            "keys='graph' lets neighbours share masks, but the trials have different graphs; give one graph for all trials, keys='complete', or a "
            "graph of keys"
        )
    return pairs


def _expect(
    training: Training,
    noise: Cancelling,
    topologies: Sequence[Topology],
    pairs: Sequence[tuple[int, int]],
    schedule: Schedule,
) -> Expected | None:
    """Return what is expected of masks under the rule; None if it is not linear."""
    keys, removed = noise.keys_of(topologies[0].agents, pairs), noise.curious + noise.lost
    rule, rounds, seed = training.algorithm, training.rounds, training.seed
    return expected_response(rule, topologies, keys, removed, rounds, schedule, seed)


def _refuse_codec(
    training: Training,
    noise: Cancelling,
    topologies: Sequence[Topology],
    pairs: Sequence[tuple[int, int]],
    schedule: Schedule,
) -> None:
    """Raise if masks would cancel in the rule without its codec."""
    rule: Any = rule_of(training.algorithm)
    codec = getattr(rule, "codec", DENSE)
    has_another = codec != DENSE and is_dataclass(rule)
    if not has_another:
        return
    whole = replace(training, algorithm=replace(rule, codec=DENSE))
    if _expect(whole, noise, topologies, pairs, schedule) is not None:
        raise PrivacyError(
            f"masks do not cancel in messages that {codec} shortens or rounds; send them whole (codec 'dense'), or let every agent "
            "add only its own noise"
        )


def _check_noise(plan: Plan) -> Plan:
    """Return a plan, or refuse one with so little noise that no ε can be derived."""
    if plan.privacy is not None and min(plan.noise_multipliers) < LEAST_NOISE:
        raise PrivacyError(
            f"the noise multiplier is {min(plan.noise_multipliers):g}; below {LEAST_NOISE} a single query costs "
            "thousands of ε, too much to be computed. Use NoPrivacy for none"
        )
    return plan


def _check_teachers(ballot: Ballot, sizes: Sequence[int]) -> None:
    """Refuse more teachers than an agent has records: most would know nothing, and their votes would still cost ε."""
    fewest = min(sizes)
    if ballot.teachers > fewest:
        raise InvalidInput(
            f"there are {ballot.teachers} teachers for each agent, but agent {list(sizes).index(fewest)} has {fewest} records; "
            "each teacher needs records of its own, and ten or more to be of use"
        )
