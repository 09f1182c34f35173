"""Run folders for the tests, written from small real trainings in the format that `tacit.report` reads."""

import json
import math
from pathlib import Path

import tacit

DIGITS = tacit.data.load("digits")


def train(algorithm=None, *, agents=6, rounds=20, graph=None, t=0.8, privacy=None, **settings):
    """Train on digits for a moment; a release unless the settings make it none."""
    data = DIGITS.split(agents, tacit.data.ByClass(t=t), seed=0)
    graph = tacit.graphs.ring(agents) if graph is None and agents > 1 else graph
    result = tacit.train(
        algorithm or tacit.DSGT(),
        model=lambda: tacit.models.logistic((1, 8, 8), 10),
        data=data,
        graph=graph,
        privacy=privacy or tacit.Privacy(epsilon=4, delta=1e-3, clip=1.0, lot_size=48),
        rounds=rounds,
        lr=settings.pop("lr", tacit.LogSpaced(4.0, 0.4)),
        **settings,
    )
    return result, graph


def plan_event(result, graph, rounds):
    plan, data = result.plan, result.data
    privacy = plan.privacy
    budget = None
    if privacy is not None and privacy.epsilon is not None:
        budget = [privacy.epsilon] * data.agents
    return {
        "event": "plan",
        "time": "2026-10-20T09:30:00+00:00",
        "algorithm": type(result.algorithm).__name__,
        "dataset": data.data.name,
        "agents": data.agents,
        "rounds": rounds,
        "edges": [] if graph is None else [list(edge) for edge in graph.edges],
        "counts": data.counts.tolist(),
        "sizes": [round(lot / rate) for lot, rate in zip(plan.lot_sizes, plan.sample_rates, strict=True)],
        "owners": list(data.owners),
        "sample_rates": list(plan.sample_rates),
        "lot_sizes": list(plan.lot_sizes),
        "clips": [clip if math.isfinite(clip) else None for clip in plan.clips],
        "noise_multipliers": list(plan.noise_multipliers),
        "queries": plan.queries,
        "private": privacy is not None,
        "epsilon": budget,
        "delta": None if privacy is None else privacy.delta,
        "adjacency": None if privacy is None else privacy.adjacency,
        "accountant": None if privacy is None else privacy.accountant,
        "release": result.release,
        "params": result.theta.shape[1],
    }


def snapshot_events(result):
    last = result.history[-1].round
    return [
        {
            "event": "snapshot",
            "round": s.round,
            "queries": s.queries,
            "accuracy": None if s.accuracy is None else s.accuracy.tolist(),
            "loss": None if s.loss is None else s.loss.tolist(),
            "consensus_distance": s.consensus_distance,
            "bytes_sent": s.bytes_sent.tolist(),
            "seconds": result.seconds * s.round / last,
        }
        for s in result.history
    ]


def summary(result, rounds):
    accuracy, privacy = result.accuracy, result.plan.privacy
    return {
        "algorithm": type(result.algorithm).__name__,
        "accuracy_mean": accuracy.mean(),
        "accuracy_min": accuracy.min(),
        "accuracy_max": accuracy.max(),
        "accuracy_per_agent": accuracy.tolist(),
        "consensus_distance": result.consensus_distance,
        "epsilon_per_agent": None if privacy is None else [g.epsilon for g in result.guarantees()],
        "delta": None if privacy is None else privacy.delta,
        "adjacency": None if privacy is None else privacy.adjacency,
        "release": result.release,
        "rounds": rounds,
        "seconds": result.seconds,
        "samples_per_second": result.samples_per_second,
    }


def toml(config):
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items())


def write_run(folder: Path, result, links, **config) -> Path:
    """Write a finished run's folder."""
    rounds = result.history[-1].round
    plan = plan_event(result, links, rounds)
    config = {
        "algorithm": plan["algorithm"].lower(),
        "dataset": plan["dataset"],
        "agents": plan["agents"],
        "graph": "ring",
        "split": "0.8",
        "rounds": rounds,
        "lr": [4.0, 0.4],
        "seed": 0,
    } | config
    finish = {"event": "finish", "round": rounds, "seconds": result.seconds}
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(toml(config))
    write_events(folder, [plan, *snapshot_events(result), {"event": "checkpoint", "round": rounds}, finish])
    (folder / "summary.json").write_text(json.dumps(summary(result, rounds)))
    return folder


def read_events(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def write_events(folder, events):
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
