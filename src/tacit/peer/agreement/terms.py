"""What an agreement means: the settings of its run, its graph, and whether all of it fits together."""

from collections.abc import Mapping
from typing import Any

import networkx as nx

from tacit.algorithms import LEASGD, PATE
from tacit.algorithms.links import check_links
from tacit.errors import GraphError, InvalidInput
from tacit.graphs.files import graph_of
from tacit.networks import Topology, as_topology
from tacit.networks.topology import edges_over, rounds_of
from tacit.peer.agreement.document import MOST_MEMBERS, Agreement
from tacit.peer.public_records import KEY, PublicRecords
from tacit.privacy.guarantees import terms
from tacit.privacy.mechanisms import RECORD, unit_in
from tacit.privacy.observers import EVERYBODY, Observer
from tacit.registry import rule_line
from tacit.runs.config import RunConfig
from tacit.runs.config_checks import PER_AGENT
from tacit.runs.rules import make_shipped_rule
from tacit.runs.specs import is_schedule, parse_graph, parse_links
from tacit.training.preparation import connect

LINKS = "links"
"""The graph whose edges are the links of the agreement themselves."""
SITES_OWN = (
    "dataset",
    "data_dir",
    "agents",
    "split",
    "private_diagnostics",
    "absences",
    "device",
    "compile",
    "step_agents",
    "evaluate_every",
    "checkpoint_every",
    "tensorboard",
    "code",
)
"""Settings that are a site's own business, or mean nothing where every agent is a site."""


OWN_VALIDATION = (
    "the rule sends a loss on validation records as if everybody had them, and between peers these are each site's own"
)


def check_settings(settings: Mapping[str, Any], members: int | None = None) -> None:
    """Refuse settings that a consortium cannot agree on. How many members there will be is not known at first."""
    if own := [key for key in settings if key in SITES_OWN]:
        raise InvalidInput(f"{own[0]} is a site's own setting and has no place in an agreement")
    listed = [len(settings[key]) for key in PER_AGENT if isinstance(settings.get(key), list)]
    agents = members or (listed[0] if listed else MOST_MEMBERS)
    check_rule(str(settings.get("algorithm", RunConfig.model_fields["algorithm"].default)))
    config = RunConfig.of({**settings, "graph": _known_graph(settings), "agents": agents})
    if not config.has_exchanges or config.is_pooled:
        raise InvalidInput(f"{config.algorithm} does not exchange messages, so there is nothing for peers to do")
    if not config.private:
        raise InvalidInput("an agreement without privacy is not offered: what peers send would reveal records")
    # A member's own rule is made only once `check_code` has compared its source.
    if rule_line(config.algorithm) is not None:
        config.rule()


def check_rule(algorithm: str) -> None:
    """Refuse a shipped rule that peers cannot play."""
    line = rule_line(algorithm)
    if line is not None and line.replicas:
        raise InvalidInput(
            f"{algorithm} keeps what it has read of its neighbours, and peers skip a link that fails, after which that would be wrong "
            "for good; use a rule without such a memory, such as dsgt with codec qsgd:8"
        )
    rule = None if line is None else make_shipped_rule(algorithm)
    if isinstance(rule, LEASGD) and not rule.private_ranking:
        raise InvalidInput(f"{OWN_VALIDATION}. Rank by private losses, which are charged: leasgd:private_ranking=true")


def records_to_label(algorithm: str) -> int | None:
    """Return how many public records a shipped rule asks teachers about; None if it asks for gradients, or is a member's own."""
    line = rule_line(algorithm)
    rule = make_shipped_rule(algorithm) if line is not None and line.votes else None
    assert rule is None or isinstance(rule, PATE)
    return None if rule is None else rule.records


def config_of(agreement: Agreement) -> RunConfig:
    """Return the settings of the run as `tacit train` takes them."""
    check_settings(agreement.settings, len(agreement.members))
    settings = {**agreement.settings, "graph": _known_graph(agreement.settings), "agents": len(agreement.members)}
    # One agent's lots shape a step wherever it runs, and nothing is compiled: the same bits at every site of one kind.
    return RunConfig.of({**settings, "step_agents": 1, "compile": False})


def privacy_terms(config: RunConfig) -> str:
    """Say what every ε of a run is stated with: per whom, δ, adjacency, accountant, and against whom it holds."""
    unit = RECORD if config.unit is None else f"{unit_in(config.unit)[0]} of one site alone"
    against = Observer(config.curious) if config.noise == "cancelling" else EVERYBODY
    return f"per {unit} at {terms(config.delta, config.adjacency, config.accountant)}, against {against}"


def topology_of(agreement: Agreement) -> nx.Graph | Topology:
    """Return who talks to whom."""
    members, settings = len(agreement.members), agreement.settings
    if settings.get("graph", "ring") == LINKS:
        return graph_of(members, agreement.edges)
    return parse_links(settings.get("graph", "ring"), members, settings.get("seed", 0))


def edges_of_settings(agreement: Agreement) -> list[tuple[int, int]]:
    """Return the pairs that exchange messages in some round."""
    links = topology_of(agreement)
    if isinstance(links, nx.Graph):
        return sorted((min(edge), max(edge)) for edge in links.edges)
    config = config_of(agreement)
    return edges_over(as_topology(links), config.total_rounds * config.exchanges_per_query)


def key_graph_of(agreement: Agreement) -> nx.Graph | None:
    """Return the graph of those who share masks; None where `keys` is a word that the library knows, or noise is local."""
    config = config_of(agreement)
    if config.noise != "cancelling" or config.keys.strip() in ("complete", "graph"):
        return None
    if is_schedule(config.keys):
        raise InvalidInput(
            f"keys is {config.keys!r}, whose links change; masks are shared by the same pairs in all rounds"
        )
    return parse_graph(config.keys, len(agreement.members), config.seed)


def key_partners(agreement: Agreement, agent: int) -> set[int]:
    """Return with whom an agent shares masks."""
    if (graph := key_graph_of(agreement)) is not None:
        return set(graph.neighbors(agent))
    if config_of(agreement).keys.strip() == "graph":
        return set(agreement.links_of(agent))
    return set(range(len(agreement.members))) - {agent}


def check_terms(agreement: Agreement) -> None:
    """Refuse an agreement that cannot work: settings, graph, links that nobody can dial, a quorum that cannot be had."""
    if len(agreement.members) < 2:
        raise InvalidInput("an agreement needs at least two members; add them with `tacit peer agreement add CARD`")
    config = config_of(agreement)
    _check_public_records(agreement, records_to_label(config.algorithm))
    if agreement.edges != (needed := edges_of_settings(agreement)):
        missing = sorted(set(needed) - set(agreement.edges)) or sorted(set(agreement.edges) - set(needed))
        names = " and ".join(agreement.members[end].name for end in missing[0])
        raise InvalidInput(
            f"the links are not those of the graph {agreement.settings.get('graph', 'ring')!r}: see {names}"
        )
    if not nx.is_connected(nx.Graph([*((i, i) for i in range(len(agreement.members))), *agreement.edges])):
        raise GraphError("the links leave the members in groups that never hear of each other")
    _check_rounds(agreement)
    for link in agreement.links:
        to, dials = (agreement.members[agreement.number_of(name)] for name in (link.to, link.dials))
        if not to.address:
            both = (
                ""
                if dials.address
                else f", and neither has {dials.name!r}: one of them needs an address that the other can reach"
            )
            raise InvalidInput(f"{link.dials!r} dials {link.to!r}, which has no address{both}")
    if agreement.limits.quorum > len(agreement.members):
        raise InvalidInput(
            f"the quorum is {agreement.limits.quorum}, and there are only {len(agreement.members)} members"
        )
    if 2 * agreement.limits.quorum <= len(agreement.members):
        raise InvalidInput(
            f"the quorum is {agreement.limits.quorum} of {len(agreement.members)} members; it must be more than half, or two "
            "groups could each declare the other gone"
        )


def _check_public_records(agreement: Agreement, wanted: int | None) -> None:
    """Refuse an agreement that does not pin the records on which teachers vote, or pins some where nobody votes."""
    declared = agreement.data.get(KEY)
    if (wanted is None) != (declared is None):
        words = (
            "asks teachers about public records, and it names none"
            if wanted
            else "asks no teachers, and it names public records for them"
        )
        raise InvalidInput(f"the rule of the agreement {words}; write it anew with `tacit peer agreement new`")
    if declared is not None and (found := PublicRecords.read(declared)).records != wanted:
        raise InvalidInput(
            f"the agreement names {found.records} public records, and its rule asks about {wanted}; write it anew"
        )


def _check_rounds(agreement: Agreement) -> None:
    """Refuse links and weights on which the rule cannot be played, and links that only one end uses."""
    config = config_of(agreement)
    (links,) = connect(
        topology_of(agreement),
        "metropolis" if config.is_robust else config.mixing,
        allow_drift=config.allow_drift,
        agents=len(agreement.members),
        trials=1,
        rounds=config.total_rounds,
        exchanges=config.exchanges_per_query,
    )
    if rule_line(config.algorithm) is not None:
        check_links(config.rule(), [links], config.total_rounds)
    for round in rounds_of(links, config.total_rounds):
        if not all(each.symmetric for each in links.at(round)):
            raise GraphError(
                f"the links of {agreement.settings.get('graph', 'ring')!r} in round {round} are not mutual with equal weights, which peers need: "
                "a link is used by both ends or by neither. Use a graph with mixing metropolis, or a schedule of mutual links, such as matchings"
            )


def _known_graph(settings: Mapping[str, Any]) -> str:
    graph = str(settings.get("graph", "ring"))
    return "ring" if graph == LINKS else graph
