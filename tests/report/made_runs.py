"""Run folders for the tests, written from small real trainings in the format that `tacit.report` reads."""

import json
import math
import shutil
from contextlib import closing
from pathlib import Path

from tampering import edit_lines, edit_log, read_events, write_events

import tacit
from tacit.algorithms.averaged import name_of
from tacit.models.hashing import models_sha256
from tacit.privacy import DurableLedger
from tacit.privacy.accounting import ceil_digits

TIME = "2026-10-20T09:30:00+00:00"
MACHINE = {
    "processor": "x86_64",
    "torch": "2.13.0",
    "threads": 1,
    "blocks": [8, 4],
    "device": "cpu",
    "code": "0" * 64,
}
DIGITS = tacit.data.load("digits")


def train(algorithm=None, *, agents=6, rounds=20, graph=None, t=0.8, privacy=None, **settings):
    """Train on digits for a moment, looking at every round; a release unless the settings make it none."""
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
        **{"evaluate_every": 1} | settings,
    )
    return result, graph


def plan_event(result, graph, rounds, token):
    plan, data = result.plan, result.data
    privacy = plan.privacy
    budget = None
    if privacy is not None and privacy.epsilon is not None:
        budget = [privacy.epsilon] * data.agents
    return {
        "event": "plan",
        "time": TIME,
        "token": token,
        "fingerprint": "0" * 64,
        "algorithm": name_of(result.algorithm),
        "dataset": data.dataset.name,
        "agents": data.agents,
        "rounds": rounds,
        "gossip_rounds": 0,
        "exchanges_per_query": 1,
        "absences": [],
        "edges": [] if graph is None else [list(edge) for edge in graph.edges],
        "changing": False,
        "weights": None,
        "counts": data.counts.tolist(),
        "sizes": [round(lot / rate) for lot, rate in zip(plan.lot_sizes, plan.sample_rates, strict=True)],
        "owners": list(data.owners),
        "schema": result.schema.to_dict(),
        "sample_rates": list(plan.sample_rates),
        "lot_sizes": list(plan.lot_sizes),
        "clips": [clip if math.isfinite(clip) else None for clip in plan.clips],
        "noise_multipliers": list(plan.noise_multipliers),
        "masks": None if plan.masks is None else plan.masks.to_json(),
        "observer": None if privacy is None else plan.observer.key,
        "queries": plan.queries,
        "spare_queries": 0,
        "private": privacy is not None,
        "unit": None,
        "epsilon": budget,
        "delta": None if privacy is None else privacy.delta,
        "adjacency": None if privacy is None else privacy.adjacency,
        "accountant": None if privacy is None else privacy.accountant,
        "release": result.release,
        "params": result.theta.shape[1],
        "engine": "layer by layer",
        "compiled": False,
        "machine": MACHINE,
    }


def snapshot_events(result):
    last = result.history[-1].round
    return [
        {
            "event": "snapshot",
            "time": TIME,
            "round": s.round,
            "queries": s.queries,
            "accuracy": None if s.accuracy is None else s.accuracy.tolist(),
            "loss": None if s.loss is None else s.loss.tolist(),
            "consensus_distance": s.consensus_distance,
            "bytes_sent": s.bytes_sent.tolist(),
            "scored": None if s.scored is None else list(s.scored),
            "seconds": result.seconds * s.round / last,
        }
        for s in result.history
    ]


def summary(result, rounds):
    accuracy, privacy = result.accuracy, result.plan.privacy
    return {
        "algorithm": name_of(result.algorithm),
        "accuracy_mean": accuracy.mean(),
        "accuracy_min": accuracy.min(),
        "accuracy_max": accuracy.max(),
        "accuracy_per_agent": accuracy.tolist(),
        "consensus_distance": result.consensus_distance,
        "epsilon": None if privacy is None else ceil_digits(max(g.epsilon for g in result.guarantees())),
        "epsilon_per_agent": None if privacy is None else [g.epsilon for g in result.guarantees()],
        "epsilon_against": None
        if privacy is None
        else {key: ceil_digits(e) for key, e in result.epsilons_against().items()},
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
    plan = plan_event(result, links, rounds, _write_ledger(folder, result))
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
    finish = {"event": "finish", "time": TIME, "round": rounds, "seconds": result.seconds}
    finish["models_sha256"] = models_sha256(result.theta)
    folder.mkdir()
    (folder / "config.toml").write_text(toml(config))
    write_events(
        folder,
        [
            plan,
            *snapshot_events(result),
            {"event": "checkpoint", "time": TIME, "round": rounds, "sha256": "0" * 64},
            finish,
        ],
    )
    (folder / "summary.json").write_text(json.dumps(summary(result, rounds)))
    return folder


def _write_ledger(folder, result):
    """Put what the run asked on record beside its folder, and return the token by which the record knows it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    plan, data = result.plan, result.data
    whose = {"owners": data.owners, "mechanisms": plan.mechanisms}
    whose |= {"records": data.dataset.name, "partition": data.partition}
    with closing(DurableLedger(folder.parent / "ledger.sqlite")) as ledger:
        if plan.privacy is None:
            account = ledger.open_without_privacy(runs=[folder.name], **whose)[0]
            account.spend()
        else:
            terms = {"queries": plan.queries, "release": result.release}
            account = ledger.open(run=folder.name, **whose, **terms)
            for _ in range(result.history[-1].queries):
                account.spend()
        account.close(finished=True)
        return account.token


def record_as_stopped(folder, queries):
    """Let the ledger know a finished run as one that stopped after so many queries."""
    edit_log(
        folder.parent / "ledger.sqlite",
        lambda row: None if row["kind"] == "close" or (row["kind"] == "query" and row["number"] > queries) else row,
    )


def copy_with_record(folder, target, owners=None):
    """Copy a run under another name, and maybe with other owners, in its events and in the ledger beside it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder, target)
    shutil.copy(folder.parent / "ledger.sqlite", target.parent / "ledger.sqlite")
    plan, *rest = read_events(target)
    owners = plan["owners"] if owners is None else owners
    write_events(target, [plan | {"owners": owners}, *rest])
    record = target.parent / "ledger.sqlite"
    edit_lines(record, lambda place, line: line | {"owner": owners[place]})
    name = {"run": target.name, "together": target.name}
    edit_log(record, lambda row: row | name if row["kind"] == "open" else row)
    return target
