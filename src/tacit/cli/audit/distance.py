"""`tacit audit distance`: how much a curious agent learns about others, by their distance in the graph."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from rich.text import Text

from tacit.cli.audit import options as of
from tacit.cli.audit.base import Audit, saying
from tacit.cli.audit.folder import Document
from tacit.cli.audit.options import agents_option, execution, system
from tacit.cli.terminal.output import check_picture, console, plain_table, print_whole, save_picture, working
from tacit.errors import InvalidInput, choose
from tacit.privacy.observers import Observer
from tacit.report.wording import counted, lower_bound, percent, write_guarantee

Leaks = Mapping[str, Sequence[Mapping[str, Any]]]
"""What an observer learns about each target, by algorithm."""

WARNING = (
    "These shares are not a guarantee, and no ε rests on them: where gradients are steep, models that an observer does not see show "
    "in messages that it does. With DSGD that mixes first, on a path u–w–v, such a share gives v 0.316 of the local μ of u's first "
    "answer; if w's gradient is steep, it is 0.965."
)
_SEEN = (
    "Seen: how much of the target's noisy answers reaches the observer, of each on average and of their sum. A record contributes in "
    "all rounds, so a part of the sum can reveal it."
)
_MASKED = (
    "With masks, 100\u202f% is what an observer of everything sees of noise without masks for the same ε. The observer has removed the "
    "masks that it shares; answers seen exactly still contain the others."
)
_SYMMETRIC = ("ring", "complete", "hypercube")


@dataclass(frozen=True, kw_only=True)
class DistanceAudit(Audit):
    """How much does a curious agent learn about others, near and far?

    Nothing is trained: what reaches an agent follows from the rule and the graph.

    The shares seen are exact. ε is what an attack proves in simulated runs; more may leak than it shows.

    There is no verdict, and no file is written except for the picture.

    Example: tacit audit distance --algorithm all --graph ring --agents 12 --plot leaks.png
    """

    kind: ClassVar[str] = "distance"
    algorithm: Annotated[
        list[str] | None, system("NAME", f"{of.name_list((*of.linear_rules(), 'all'))}; may be repeated. \\[dsgd]")
    ] = None
    agents: Annotated[int | None, agents_option(10)] = None
    graph: of.Graph = "ring"
    observers: Annotated[
        list[int] | None, system("AGENT", "An observer; if repeated, all of them together. \\[0]", "--observer")
    ] = None
    targets: Annotated[
        Literal["nearest", "all"] | None,
        system(
            "WHOM",
            "nearest: one agent at each distance; or all others. Default: nearest where agents at one distance are alike.",
        ),
    ] = None
    epsilon: of.Epsilon = 1.0
    delta: of.Delta = 1e-2
    sample_rate: of.SampleRate = 0.1
    noise: of.NoiseKind = "local"
    curious: of.Curious = None
    keys: of.KeyPairs = None
    mask_ratio: of.MaskRatio = None
    rounds: of.Rounds = 100
    lr: of.StepSize = 0.05
    seed: Annotated[int, execution("N", "Seed of the runs and of random graphs.", min=0)] = 0
    runs: Annotated[int, execution("N", "Runs with a record, and as many without it.", min=10)] = 20_000
    confidence: Annotated[float, execution("SHARE", "Confidence that a bound holds, each by itself.")] = 0.95
    plot: Annotated[Path | None, execution("FILE", "Draw it: png, pdf or svg.")] = None

    def find(self) -> tuple[Document, None]:
        """Compute what leaks."""
        check_picture(self.plot)
        asked = {choose("algorithm", name, (*of.linear_rules(), "all")) for name in self.algorithm or ["dsgd"]}
        observers = sorted(set(self.observers or [0]))
        targets = self.targets or ("nearest" if self._is_symmetric(observers) else "all")
        found: dict[str, list[dict[str, Any]]] = {}
        with saying("stopped; nothing is kept"):
            with working("preparing"):
                from tacit.audit.bounds.rates import check_terms
                from tacit.audit.linear.distance import leaks, nearest_at_each_distance
                from tacit.cli.audit.systems import check_agents, make_graph, make_masks, make_rule, plain_dinno

                graph = make_graph(self.graph, self.agents, self.seed, default=10)
                check_terms(self.delta, self.confidence, positive=True)
                check_agents(graph, "observer", observers)
                if len(graph) == len(observers):
                    raise InvalidInput("all agents are observers, so none is left to observe")
                names = ("rounds", "runs", "lr", "epsilon", "delta", "sample_rate", "confidence", "seed")
                terms: dict[str, Any] = {name: getattr(self, name) for name in names} | {"noise": make_masks(self)}
                terms["targets"] = nearest_at_each_distance(graph, observers) if targets == "nearest" else None
            for rule in [rule for rule in of.linear_rules() if asked & {rule, "all"}]:
                with working(f"{rule}: running"):
                    found[rule] = [asdict(leak) for leak in leaks(make_rule(rule), graph, observers, **terms)]
        stated = ("rounds", "lr", "sample_rate", "runs", "seed", "noise", "curious", "keys", "mask_ratio")
        settings: dict[str, Any] = {name: getattr(self, name) for name in stated} | {"targets": targets}
        if "dinno" in found:
            settings["dinno"] = plain_dinno()
        claim = {"epsilon": self.epsilon, "delta": self.delta, "adjacency": "add_remove"}
        system = {"graph": self.graph, "agents": len(graph), "observers": observers, "claimed": claim}
        document = {**system, "confidence": self.confidence, "settings": settings, "warning": WARNING}
        document["algorithms"] = found
        if self.plot is not None:
            from tacit.cli.audit.distance_picture import draw_leaks

            save_picture(draw_leaks(found, self, title=self._title(document)), self.plot)
        return document, None

    def _title(self, document: Document) -> str:
        from tacit.cli.audit.systems import name_observers

        system = f"{Path(self.graph).name} of {counted(document['agents'], 'agent')}"
        return f"What {name_observers(document['observers'])} can learn: {system} · {self.rounds:,} rounds"

    @property
    def _claimed_against(self) -> str:
        if self.noise == "local":
            return "an observer of everything"
        return str(Observer(1 if self.curious is None else self.curious))

    def _is_symmetric(self, observers: Sequence[int]) -> bool:
        """Say whether one observer learns the same about all agents at one distance, by the kind of graph; most tori do not count."""
        return len(observers) == 1 and self.noise == "local" and self.graph.strip().replace("-", "_") in _SYMMETRIC

    def show(self, document: Document, folder: Path | None) -> None:
        """Print what is seen of every target, and what an attack proves."""
        from tacit.audit.pages.statements import percentage
        from tacit.cli.audit.systems import plain_dinno

        screen, found = console(), document["algorithms"]
        columns = ("algorithm", ">distance", ">agent", ">each seen", ">sum seen", ">exactly", ">ε ≥")
        table = plain_table(None, *columns, no_wrap=True)
        for rule, rows in found.items():
            for place, row in enumerate(rows):
                table.add_row(
                    "" if place else rule,
                    str(row["distance"]),
                    str(row["target"]),
                    percent(row["share"], 2),
                    percent(row["sum_share"], 2),
                    f"{row['exact']:,} of {row['queries']:,}",
                    lower_bound(row["epsilon"]),
                    end_section=place == len(rows) - 1,
                )
        screen.print(Text(self._title(document), style="bold"))
        screen.print()
        print_whole(table)
        screen.print()
        hints = [_SEEN, _MASKED, WARNING] if self.noise == "cancelling" else [_SEEN, WARNING]
        hints += [f"DiNNO: one plain inner step in a round, ρ = {plain_dinno()['rho']:g}."] if "dinno" in found else []
        for hint in hints:
            screen.print(hint, style="dim")
        screen.print(
            f"Claimed: {write_guarantee(self.epsilon, self.delta)}, against {self._claimed_against}. Each ε ≥ holds at "
            f"{percentage(self.confidence)} confidence by itself, from 2 × {counted(self.runs, 'run')}: where more leaks, "
            "more runs show more."
        )
        if self.plot is not None:
            screen.print(f"Picture: {self.plot}")
