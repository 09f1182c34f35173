"""The check of noise and lots, made from the options of its command. Every mistake in them is found here."""

from collections.abc import Sequence

from tacit.audit.attacks.worlds import noise_world
from tacit.audit.linear.responses import Responses
from tacit.audit.noise.check import NoiseCheck
from tacit.cli.audit.once import Single
from tacit.cli.audit.systems import at_least, check_agents, links_of, make_graph, make_rule, watchers
from tacit.errors import InvalidInput
from tacit.privacy import Privacy

_LR = 0.1  # the gradients do not depend on the models


def noise_case(
    *,
    algorithm: str,
    agents: int | None,
    graph: str,
    observers: Sequence[int],
    epsilon: float,
    delta: float,
    lot_size: float,
    records: int,
    rounds: int,
    runs: int,
    false_alarm: float,
    seed: int,
) -> Single:
    """Return the check of noise and lots, by the neighbours of agent 0 unless others are named."""
    at_least(2, runs=runs)
    at_least(1, records=records, rounds=rounds)
    rule, links = make_rule(algorithm), make_graph(graph, agents, seed)
    check_agents(links, "observer", observers)
    watching = sorted(set(observers)) or sorted(links[0])
    if not watching:
        raise InvalidInput("agent 0 has no neighbours, so nobody is there to watch it")
    view = Responses.of(rule, links, rounds=rounds, lr=_LR).view(watching)
    seen = [agent for agent in range(len(links)) if view.exact(agent).all()]
    others = [agent for agent in seen if agent not in watching]
    if not others:
        raise InvalidInput(
            f"observers {watching} can reconstruct all answers of nobody but themselves at best; name more of them with "
            "--observer"
        )
    privacy = Privacy(epsilon=epsilon, delta=delta, clip=1.0, lot_size=lot_size)
    world = noise_world(rule, privacy=privacy, rounds=rounds, lr=_LR, graph=links, target=others[0], records=records)
    audit = NoiseCheck(world=world, observers=watching, false_alarm=false_alarm)
    told = {
        "kind": "noise",
        "title": "Noise and lots",
        "about": f"{algorithm} · {len(links)} agents · graph: {graph} · {rounds:,} rounds · {runs:,} runs",
        "algorithm": algorithm,
        "agents": len(links),
        "graph": graph,
        "observers": watching,
        "queries": view.queries,
        "saw": f"{watchers(watching)} every message of neighbours, their final models, the graph and all settings. From "
        "this follow all answers of the agents in the table, exactly.",
        "record": "Records are made so that their gradients are known: along some axes there is noise alone, along one the "
        "answers count who was drawn.",
    }
    settings = {
        "audit": "noise",
        "algorithm": algorithm,
        "agents": len(links),
        "graph": graph,
        "links": links_of(links),
        "observers": watching,
        "epsilon": epsilon,
        "delta": delta,
        "lot_size": lot_size,
        "records": records,
        "rounds": rounds,
        "lr": _LR,
        "runs": runs,
        "false_alarm": false_alarm,
    }
    return Single(play=lambda: audit.run(runs).to_json(), settings=settings, told=told)
