"""What a run's files tell of it: its plan, its snapshots and its summary, as plain facts."""

from collections.abc import Iterable
from typing import Any

import networkx as nx
import numpy as np

from tacit.algorithms.averaged import name_of
from tacit.config import RunConfig
from tacit.results import Result, Snapshot
from tacit.session import Session


def plan_facts(config: RunConfig, session: Session, graph: nx.Graph | None) -> dict[str, Any]:
    """Return what was settled before the first query."""
    data, plan = session.training.data, session.plan
    promise = plan.privacy
    return {
        "fingerprint": config.fingerprint,
        "algorithm": name_of(session.training.algorithm),
        "dataset": data.data.name,
        "agents": data.agents,
        "rounds": session.training.rounds,
        "edges": edges_of(graph),
        # A table of classes tells the true numbers of records, which nobody may know where others are declared.
        "counts": data.counts.tolist() if session.sizes == data.sizes else None,
        "sizes": list(session.sizes),
        "owners": list(data.owners),
        "schema": session.schema.to_dict(),
        "sample_rates": list(plan.sample_rates),
        "lot_sizes": list(plan.lot_sizes),
        "clips": list(plan.clips),
        "noise_multipliers": list(plan.noise_multipliers),
        "queries": plan.queries,
        "spare_queries": session.training.spare_queries,
        "private": promise is not None,
        "epsilon": promise.targets(data.agents) if promise else None,
        "delta": promise.delta if promise else None,
        "adjacency": promise.adjacency if promise else None,
        "accountant": promise.accountant if promise else None,
        "release": session.training.is_release,
        "params": session.model.size,
        "engine": session.chosen.why,
        "compiled": session.chosen.compiled,
    }


def edges_of(graph: nx.Graph | None) -> list[list[int]]:
    """Return who talks to whom as a plain list."""
    return [] if graph is None else [list(map(int, edge)) for edge in graph.edges]


def snapshot_facts(snapshot: Snapshot) -> dict[str, Any]:
    """Return what was seen at one look."""
    return {
        "round": snapshot.round,
        "queries": snapshot.queries,
        "accuracy": None if snapshot.accuracy is None else snapshot.accuracy.tolist(),
        "loss": None if snapshot.loss is None else snapshot.loss.tolist(),
        "consensus_distance": snapshot.consensus_distance,
        "bytes_sent": snapshot.bytes_sent.tolist(),
    }


def snapshots(events: Iterable[dict[str, Any]], *, until: int) -> list[Snapshot]:
    """Return the looks that events tell of, up to a round; of two at one round, the later."""
    looks = {event["round"]: event for event in events if event.get("event") == "snapshot" and event["round"] <= until}
    return [_snapshot(looks[number]) for number in sorted(looks)]


def summary_facts(config: RunConfig, result: Result) -> dict[str, Any]:
    """Return what came of a finished run."""
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
        "epsilon_per_agent": [guarantee.epsilon for guarantee in kept] if privacy else None,
        "exposed": any(guarantee.exposed for guarantee in kept),
        "delta": privacy.delta if privacy else None,
        "adjacency": privacy.adjacency if privacy else None,
        "accountant": privacy.accountant if privacy else None,
        "release": result.release,
        "rounds": last.round,
        "bytes_sent": result.bytes_sent,
        "seconds": result.seconds,
        "samples_per_second": result.samples_per_second,
    }


def _snapshot(event: dict[str, Any]) -> Snapshot:
    scored = {
        key: None if event[key] is None else np.array(event[key], dtype=np.float64) for key in ("accuracy", "loss")
    }
    apart = event["consensus_distance"]
    return Snapshot(
        round=event["round"],
        queries=event["queries"],
        consensus_distance=float("nan") if apart is None else apart,
        bytes_sent=np.array(event["bytes_sent"], dtype=np.int64),
        **scored,
    )
