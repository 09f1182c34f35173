"""`tacit audit noise`: is the noise as large, independent and normal as stated, and are lots drawn as stated?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from tacit.cli.audit import options as of
from tacit.cli.audit.folder import Document
from tacit.cli.audit.options import execution, system
from tacit.cli.audit.single import SingleAudit, SingleCase
from tacit.cli.terminal.command import command_of
from tacit.errors import InvalidInput

_LR = 0.1  # the gradients do not depend on the models


@dataclass(frozen=True, kw_only=True)
class NoiseAudit(SingleAudit):
    """Are the noise and the lots as stated? The cheapest audit, and the first to run.

    The noise is extracted from what neighbours see. Its size, shape and independence are tested, and how lots are drawn.

    Faults in anything else are not found.

    Exit code 1 means that something is not as stated.

    Example: tacit audit noise --algorithm dsgt --runs 200
    """

    kind: ClassVar[str] = "noise"
    algorithm: of.Rule = "dsgd"
    agents: of.Agents = None
    graph: of.Graph = "complete"
    observers: Annotated[
        list[int] | None,
        system("AGENT", "An observer; may be repeated. Default: the neighbours of agent 0.", "--observer"),
    ] = None
    epsilon: of.Epsilon = 1.0
    delta: of.Delta = 1e-2
    lot_size: of.LotSize = 10.0
    records: of.HeldRecords = 100
    rounds: of.Rounds = 20
    seed: Annotated[int, system("N", "Seed of random graphs.", min=0)] = 0
    runs: Annotated[int, execution("N", "More runs show smaller faults.", min=2)] = 50
    false_alarm: Annotated[
        float, execution("SHARE", "Highest probability that a sound system is reported as faulty.")
    ] = 1e-3

    def case(self) -> SingleCase:
        """Return the test of noise and lots, by the neighbours of agent 0 unless others are named."""
        from tacit.audit.attacks.worlds import noise_world
        from tacit.audit.linear.responses import Responses
        from tacit.audit.noise.check import NoiseCheck
        from tacit.cli.audit import systems
        from tacit.privacy import Privacy

        rule, graph = systems.make_rule(self.algorithm), systems.make_graph(self.graph, self.agents, self.seed)
        observers = systems.choose_observers(graph, 0, self.observers)
        view = Responses.of(rule, graph, rounds=self.rounds, lr=_LR).view(observers)
        others = [agent for agent in range(len(graph)) if agent not in observers and view.exact(agent).all()]
        if not others:
            raise InvalidInput(
                f"observers {observers} cannot reconstruct all answers of any other agent; name more of them with --observer"
            )
        privacy = Privacy(epsilon=self.epsilon, delta=self.delta, clip=1.0, lot_size=self.lot_size)
        world = noise_world(
            rule, privacy=privacy, rounds=self.rounds, lr=_LR, graph=graph, target=others[0], records=self.records
        )
        audit = NoiseCheck(world=world, observers=observers, false_alarm=self.false_alarm)
        description = {
            "title": "Noise and lots",
            "about": f"{systems.display_name(self.algorithm)} · {len(graph)} agents · graph: {self.graph} · "
            f"{self.rounds:,} rounds · {self.runs:,} runs",
            "algorithm": self.algorithm,
            "agents": len(graph),
            "graph": self.graph,
            "observers": observers,
            "queries": view.queries,
            "saw": f"{systems.describe_observers(observers)} every message of neighbours, their final models, the graph and "
            "all settings. All answers of the agents in the table follow from these exactly.",
            "record": "Records are made so that their gradients are known: along some axes there is only noise, and along one "
            "the answers count the records that were drawn.",
        }
        settings = {"agents": len(graph), "links": systems.links_of(graph), "observers": observers, "lr": _LR}
        return SingleCase(play=lambda: audit.run(self.runs).to_json(), settings=settings, description=description)

    def show(self, document: Document, folder: Path) -> None:
        """Print σ, q and ε of every agent, and what each test found."""
        from rich.text import Text

        from tacit.audit.pages import noise as words
        from tacit.cli.audit.printing import print_title, print_verdict
        from tacit.cli.terminal.output import console, plain_table, print_apart

        screen = console()
        print_title(screen, document)
        table = plain_table(None, ">agent", "", ">stated", ">estimated", "interval", no_wrap=True)
        for each in document["agents"]:
            for place, row in enumerate(words.quantities(each)):
                table.add_row("" if place else str(each["agent"]), *row)
        tests = plain_table(None, "test", ">number", ">least p", "found")
        for looks_at, count, least, found, failed in words.tests(document):
            tests.add_row(looks_at, count, least, Text(found, style="bold red" if failed else ""))
        print_apart(screen, table, tests)
        for sentence in (words.ABOUT_EPSILON, f"A test fails where p is below {document['threshold']:.2g}."):
            screen.print(sentence, style="dim")
        screen.print()
        consequence = f"{words.consequence(document)} {words.risk(document)}"
        print_verdict(screen, words.verdict(document), consequence, folder, bad=document["verdict"] == "not as stated")


command = command_of(NoiseAudit)
