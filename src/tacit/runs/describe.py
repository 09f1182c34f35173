"""Describes a session: its plan and snapshots as events, and the summary of a finished run."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import networkx as nx
import numpy as np

from tacit.algorithms.averaged import name_of
from tacit.graphs import as_graph
from tacit.graphs.files import both_ways
from tacit.models.hashing import models_sha256
from tacit.networks import Topology
from tacit.networks.topology import edges_over
from tacit.privacy.accounting import ceil_digits
from tacit.runs.environment import machine_of
from tacit.runs.event_types import PlanEvent, SiteView, SnapshotEvent, now
from tacit.runs.python_config import AnyConfig
from tacit.runs.team import Holdings
from tacit.training.absences import Absence
from tacit.training.results import Result, Snapshot
from tacit.training.session import Session


def plan_event(
    config: AnyConfig,
    session: Session,
    graph: nx.Graph | Topology | None,
    token: str,
    holdings: Holdings | None = None,
    site: SiteView | None = None,
) -> PlanEvent:
    """Return what was settled before the first query: for all agents or, if a site is named, for its agent only.

    `holdings` are all agents' where the session hosts only some of those that are shown.
    """
    data, shown = session.training.data, range(session.hosted.total) if site is None else session.hosted.agents
    held, plan = holdings or Holdings.of(data), session.plan.of(shown)
    privacy = plan.privacy
    targets = None if privacy is None else privacy.targets(session.hosted.total)
    sizes = tuple(session.sizes[agent] for agent in shown)
    # How many records of a class an agent holds is private unless the data set is published anyway. Where other
    # numbers of records are declared, the table would show the true ones.
    counts = held.counts if sizes == held.sizes else None
    return PlanEvent(
        time=now(),
        token=token,
        fingerprint=config.fingerprint,
        algorithm=name_of(session.training.algorithm),
        dataset=data.dataset.name,
        agents=len(shown),
        rounds=session.training.rounds,
        gossip_rounds=session.training.gossip_rounds,
        exchanges_per_query=session.training.exchanges_per_query,
        absences=tuple(_absence_facts(absence) for absence in session.training.absences),
        edges=edges_of(graph, session.training.link_rounds),
        changing=graph is not None and not isinstance(graph, nx.Graph),
        weights=weights_of(graph),
        counts=counts,
        sizes=sizes,
        owners=held.owners,
        schema=session.schema.to_dict(),
        sample_rates=plan.sample_rates,
        lot_sizes=plan.lot_sizes,
        clips=plan.clips,
        noise_multipliers=plan.noise_multipliers,
        masks=None if plan.masks is None else plan.masks.to_json(),
        observer=None if privacy is None else plan.observer.key,
        queries=plan.queries,
        spare_queries=session.training.spare_queries,
        private=privacy is not None,
        epsilon=None if targets is None else tuple(targets[agent] for agent in shown),
        delta=privacy.delta if privacy is not None else None,
        adjacency=privacy.adjacency if privacy is not None else None,
        accountant=privacy.accountant if privacy is not None else None,
        unit=None if session.training.unit is None else str(session.training.unit),
        bands=plan.bands,
        rounding=None if plan.rounding is None else asdict(plan.rounding),
        votes=None if plan.ballot is None else plan.ballot.to_json(),
        release=session.training.is_release,
        params=session.model.size,
        engine=session.chosen.why,
        compiled=session.chosen.compiled,
        machine=machine_of(session),
        site=site,
    )


def _absence_facts(absence: Absence) -> dict[str, int]:
    return {key: value for key, value in asdict(absence).items() if value is not None}


def edges_of(graph: nx.Graph | Topology | None, rounds: int) -> tuple[tuple[int, int], ...]:
    """Return who talks to whom, in some round where that changes."""
    if graph is None:
        return ()
    if isinstance(graph, nx.Graph):
        numbered = set(graph) == set(range(len(graph)))
        edges = list((graph if numbered else as_graph(graph)).edges)
    else:
        edges = edges_over(graph, rounds)
    return tuple((int(one), int(other)) for one, other in edges)


def weights_of(graph: nx.Graph | Topology | None) -> tuple[float, ...] | None:
    """Return the weights that a graph's file gives its links, in their order; None if it gives none.

    If some links have different weights in the two directions, the weights that second agents give first ones follow, for all links.
    """
    if not isinstance(graph, nx.Graph) or (weights := graph.graph.get("weights")) is None:
        return None
    there = tuple(float(weights[one, other]) for one, other in graph.edges)
    back = tuple(float(weights[other, one]) for one, other in graph.edges)
    return there if there == back else there + back


def links_of(edges: Sequence[tuple[int, int]], weights: Sequence[float] | None) -> list[tuple[Any, ...]]:
    """Return who talks to whom and with which weights, in one order."""
    if weights is None:
        return sorted((min(edge), max(edge)) for edge in edges)
    return sorted((*pair, weight) for pair, weight in both_ways(edges, weights).items())


def snapshot_event(snapshot: Snapshot, seconds: float) -> SnapshotEvent:
    """Return a snapshot as an event."""
    return SnapshotEvent(
        time=now(),
        round=snapshot.round,
        queries=snapshot.queries,
        accuracy=None if snapshot.accuracy is None else tuple(snapshot.accuracy.tolist()),
        loss=None if snapshot.loss is None else tuple(snapshot.loss.tolist()),
        consensus_distance=snapshot.consensus_distance,
        bytes_sent=tuple(snapshot.bytes_sent.tolist()),
        scored=snapshot.scored,
        seconds=seconds,
        labels=None if snapshot.labels is None else tuple(snapshot.labels.tolist()),
    )


def snapshot_of(event: SnapshotEvent) -> Snapshot:
    """Return the snapshot that an event holds."""
    return Snapshot(
        round=event.round,
        queries=event.queries,
        loss=None if event.loss is None else np.array(event.loss, dtype=np.float64),
        accuracy=None if event.accuracy is None else np.array(event.accuracy, dtype=np.float64),
        consensus_distance=event.consensus_distance,
        bytes_sent=np.array(event.bytes_sent, dtype=np.int64),
        scored=event.scored,
        labels=None if event.labels is None else np.array(event.labels, dtype=np.int64),
    )


def summary_facts(config: AnyConfig, result: Result, heads: dict[str, Any]) -> dict[str, Any]:
    """Return the summary of a finished run; `heads` are the ends of its two hash chains.

    `epsilon` is the highest of any agent, derived from the ledger and rounded up, against `observer`, whom the run was planned against: the
    number that is shown everywhere. `epsilon_against` has it for any one curious agent, any two, …, and all others together.
    """
    privacy, last = result.plan.privacy, result.history[-1]
    accuracy, kept = last.accuracy, result.guarantees()
    return {
        "algorithm": config.algorithm,
        "dataset": config.dataset,
        "accuracy_mean": None if accuracy is None else float(accuracy.mean()),
        "accuracy_min": None if accuracy is None else float(accuracy.min()),
        "accuracy_max": None if accuracy is None else float(accuracy.max()),
        "accuracy_per_agent": None if accuracy is None else accuracy.tolist(),
        "consensus_distance": result.consensus_distance,
        "labels_per_agent": None if last.labels is None else last.labels.tolist(),
        "epsilon": ceil_digits(max(guarantee.epsilon for guarantee in kept)) if privacy else None,
        "epsilon_per_agent": [guarantee.epsilon for guarantee in kept] if privacy else None,
        "exposed": any(guarantee.exposed for guarantee in kept),
        "delta": privacy.delta if privacy else None,
        "adjacency": privacy.adjacency if privacy else None,
        "accountant": privacy.accountant if privacy else None,
        "release": result.release,
        "epsilon_against": {key: ceil_digits(value) for key, value in result.epsilons_against().items()}
        if privacy
        else None,
        "observer": str(result.plan.observer) if privacy else None,
        "unit": kept[0].unit if privacy else None,
        "models_sha256": models_sha256(result.theta),
        "heads": heads,
        "rounds": last.round,
        "bytes_sent": result.bytes_sent,
        "seconds": result.seconds,
        "evaluation_seconds": result.evaluation_seconds,
        "samples_per_second": result.samples_per_second,
    }
