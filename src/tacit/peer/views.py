"""What a site knows about itself, as its status page, its metrics and `tacit peer status` show it: its own view, and nothing private."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tacit.peer.wire.hub import LinkView

STARTING = "waiting for neighbours"
"""The phase in which a site needs a word of every neighbour before it sends anything new."""


class WaitView(NamedTuple):
    """For how long a site has been waiting for a neighbour in its open round, and for what."""

    seconds: float
    why: str


@dataclass
class SiteStatus:
    """The state of a site. The service changes it; everything else reads it."""

    name: str
    run: str
    agreement: str
    version: int
    rounds: int
    members: tuple[str, ...]
    links: Mapping[int, LinkView]
    phase: str = "starting"
    round: int = 0
    queries: int = 0
    epsilon_charged: float | None = None
    """Of what the ledger charges this run: its whole plan until it is finished, then the queries that it made."""
    epsilon_against_all: float | None = None
    """The same with masks, if all other members pool what they know; None without masks, where it is no larger."""
    epsilon_made: float | None = None
    """Of the queries that it has made so far, or of an eighth more."""
    epsilon_allowed: float | None = None
    epsilon_terms: str = ""
    accuracy: float | None = None
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    used: Counter[int] = field(default_factory=Counter)
    """In how many exchanges each neighbour's link was used."""
    skipped: Counter[int] = field(default_factory=Counter)
    last_used: tuple[int, int] | None = None
    """Links that the last round used, and those of the graph."""
    lost: set[int] = field(default_factory=set)
    foreign: set[int] = field(default_factory=set)
    """Neighbours who speak under a version of the agreement that is not known here."""
    waits: dict[int, WaitView] = field(default_factory=dict)
    """Whom the open round waits for."""

    @property
    def ready(self) -> bool:
        """Whether the site takes part in rounds, or is through with all."""
        return self.phase in ("training", "finishing", "finished")

    @property
    def alive(self) -> bool:
        """Whether the process does what it should."""
        return self.phase != "failed"

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain data."""
        links = [
            {
                "neighbor": self.members[number],
                "up": view.up,
                "lost": number in self.lost,
                "dials": view.dials,
                "why": "" if view.up else view.why,
                "waits_seconds": self.waits[number].seconds if number in self.waits else None,
                "waits_why": self.waits[number].why if number in self.waits else "",
                "used": self.used[number],
                "skipped": self.skipped[number],
                "connections": view.connections,
                "sent": view.traffic.sent,
                "received": view.traffic.received,
            }
            for number, view in self.links.items()
        ]
        apart = ("links", "used", "skipped", "lost", "foreign", "waits", "members")
        facts = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in apart}
        return facts | {"links": links, "members": list(self.members)}

    def metrics(self) -> bytes:
        """Return the state as Prometheus reads it."""
        registry = CollectorRegistry()
        registry.register(_Metrics(self))
        return generate_latest(registry)


class _Metrics(Collector):
    def __init__(self, status: SiteStatus) -> None:
        self._status = status

    def collect(self) -> list[Metric]:
        """Return all metrics."""
        status, stated = self._status, self._status.epsilon_terms
        found: list[Metric] = []
        for name, words, value in (
            ("round", "Rounds that this site has played.", status.round),
            ("rounds", "Rounds of the run.", status.rounds),
            ("ready", "Whether the site takes part in rounds.", int(status.ready)),
            ("agreement_version", "The version of the agreement in force here.", status.version),
            ("queries", "Queries of this site's data that the ledger holds for this run.", status.queries),
            (
                "epsilon_charged",
                f"Epsilon that the ledger charges: the whole plan until the end; {stated}.",
                status.epsilon_charged,
            ),
            (
                "epsilon_against_all",
                f"Epsilon that the ledger charges if all other members pool what they know; {stated.partition(', against')[0]}.",
                status.epsilon_against_all,
            ),
            (
                "epsilon_made",
                f"Epsilon of the queries that were made so far, or of an eighth more; {stated}.",
                status.epsilon_made,
            ),
            ("epsilon_allowed", f"Epsilon that this run may spend; {stated}.", status.epsilon_allowed),
        ):
            if value is not None:
                found.append(GaugeMetricFamily(f"tacit_peer_{name}", words, value=float(value)))
        counters: tuple[tuple[str, str, Callable[[int, LinkView], float]], ...] = (
            ("links_used", "Exchanges that used the link to a neighbour.", lambda number, _: status.used[number]),
            ("links_skipped", "Exchanges that did not use it.", lambda number, _: status.skipped[number]),
            ("connections", "How often the link came up.", lambda _, view: view.connections),
            ("sent_bytes", "Bytes sent to a neighbour.", lambda _, view: view.traffic.sent),
            ("received_bytes", "Bytes received from a neighbour.", lambda _, view: view.traffic.received),
        )
        up = GaugeMetricFamily("tacit_peer_link_up", "Whether the link to a neighbour is up.", labels=["neighbor"])
        for number, view in status.links.items():
            up.add_metric([status.members[number]], float(view.up))
        found.append(up)
        waits = GaugeMetricFamily(
            "tacit_peer_link_wait_seconds",
            "For how long the open round has waited for a neighbour.",
            labels=["neighbor"],
        )
        for number in status.links:
            waits.add_metric([status.members[number]], status.waits[number].seconds if number in status.waits else 0.0)
        found.append(waits)
        for name, words, value_of in counters:
            family = CounterMetricFamily(f"tacit_peer_{name}", words, labels=["neighbor"])
            for number, view in status.links.items():
                family.add_metric([status.members[number]], float(value_of(number, view)))
            found.append(family)
        return found
