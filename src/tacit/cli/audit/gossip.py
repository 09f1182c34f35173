"""`tacit audit gossip`: how much every agent learns about every other when noisy values are passed on, ε(u→v)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from rich.text import Text

from tacit.cli.audit import options as of
from tacit.cli.audit.base import Audit, saying
from tacit.cli.audit.folder import Document
from tacit.cli.audit.options import agents_option, execution, system
from tacit.cli.terminal.output import console, plain_table, print_whole, round_up, working
from tacit.report.wording import counted, percent, write_guarantee

WARNING = (
    "This is about one value that everybody noises once and then gossips. It is no guarantee for training, and no ε of a run rests on it: "
    "models that an agent does not see flow back through later gradients."
)


@dataclass(frozen=True, kw_only=True)
class GossipAudit(Audit):
    """How much does each agent learn about each other from gossip?

    Every agent adds noise to a value once, and all average by gossip, as in Muffliato. Nothing is trained or drawn: what an agent sees is
    Gaussian, and ε(u→v) follows exactly from all messages that v sees together. The published bound of Muffliato adds messages up as if they
    were independent; it is shown beside it.

    There is no verdict, and no file is written. --json has ε and shares for every pair.

    Example: tacit audit gossip --graph path --agents 3 --exchanges 2
    """

    kind: ClassVar[str] = "gossip"
    agents: Annotated[int | None, agents_option(10)] = None
    graph: of.Graph = "ring"
    exchanges: Annotated[int, system("N", "How often all values are mixed.", min=1)] = 4
    accelerated: Annotated[bool, system(None, "Accelerate gossip by the spectral gap of the weights.")] = False
    epsilon: Annotated[float, system("ε", "ε of a noisy value against somebody who sees it.")] = 1.0
    delta: Annotated[float, system("δ", "The δ of every ε.")] = 1e-5
    seed: Annotated[int, execution("N", "Seed of random graphs.", min=0)] = 0

    def find(self) -> tuple[Document, None]:
        """Compute what every agent sees of every other."""
        with saying("stopped; nothing is kept"), working("computing"):
            import networkx as nx

            from tacit.audit.linear.pairwise import Pairwise, pairwise
            from tacit.cli.audit.systems import make_graph
            from tacit.graphs.measures import spectral_gap
            from tacit.graphs.mixing import mixing_matrix
            from tacit.privacy.calibration import noise_multiplier

            graph = make_graph(self.graph, self.agents, self.seed, default=10)
            noise = noise_multiplier(epsilon=self.epsilon, delta=self.delta, sample_rate=1.0, queries=1)
            gap = spectral_gap(mixing_matrix(graph)) if self.accelerated else None
            found = pairwise(graph, exchanges=self.exchanges, gap=gap)
            published = Pairwise(share=found.published, published=found.published)
            exact, claimed = (each.epsilon(noise, self.delta) for each in (found, published))
            rows: dict[int, list[tuple[int, int]]] = {}
            for target, distances in nx.all_pairs_shortest_path_length(graph):
                for observer, distance in distances.items():
                    rows.setdefault(distance, []).append((target, observer))
        by_distance = [
            {
                "distance": distance,
                "pairs": len(pairs),
                "epsilon": max(float(exact[pair]) for pair in pairs),
                "least_epsilon": min(float(exact[pair]) for pair in pairs),
                "share": max(float(found.share[pair]) for pair in pairs),
                "published_epsilon": max(float(claimed[pair]) for pair in pairs),
            }
            for distance, pairs in sorted(rows.items())
            if distance
        ]
        local = {"epsilon": self.epsilon, "delta": self.delta, "adjacency": "add_remove", "noise_multiplier": noise}
        document: dict[str, Any] = {"graph": self.graph, "agents": len(graph), "exchanges": self.exchanges, "gap": gap}
        document |= {"local": local, "warning": WARNING, "distances": by_distance}
        # An agent knows its own value, which JSON has no number for.
        off = [[None if u == v else float(exact[u, v]) for v in range(len(graph))] for u in range(len(graph))]
        return document | {"epsilon": off, **found.to_json()}, None

    def show(self, document: Document, folder: Path | None) -> None:
        """Print the highest and lowest ε at each distance."""
        screen = console()
        kind = "accelerated gossip" if self.accelerated else "gossip"
        system = f"{Path(self.graph).name} of {counted(document['agents'], 'agent')}"
        screen.print(
            Text(
                f"What agents learn of each other: {system} · {counted(self.exchanges, 'exchange')} of {kind}",
                style="bold",
            )
        )
        screen.print()
        table = plain_table(None, ">distance", ">pairs", ">highest ε", ">lowest ε", ">most seen", ">ε as published")
        for row in document["distances"]:
            table.add_row(
                str(row["distance"]),
                f"{row['pairs']:,}",
                *(round_up(row[name]) for name in ("epsilon", "least_epsilon")),
                percent(row["share"], 1),
                round_up(row["published_epsilon"]),
            )
        print_whole(table)
        screen.print()
        screen.print(
            f"A noisy value alone has {write_guarantee(self.epsilon, self.delta)}, against whoever sees it. Most seen: the share of its μ² that "
            "reaches an agent. As published: by Muffliato's bound for plain gossip, which can say too little.",
            style="dim",
        )
        screen.print(WARNING, style="dim")
