"""`tacit audit coalition`: curious agents who hear everything and pool their masks, and the worst possible record."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from tacit.cli.audit import options as of
from tacit.cli.audit.batched import AttackCase, BatchedAudit
from tacit.cli.audit.options import execution, system
from tacit.cli.terminal.command import command_of
from tacit.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class CoalitionAudit(BatchedAudit):
    """Curious agents who pool their masks: does more leak to so many of them than is claimed?

    They hear all messages and subtract the masks that they share. The claim is the ε against as many agents as there are observers.

    The record is the worst possible one: for any model its gradient is clipped to its full length and points in one direction.

    After a stop, the same command with --folder resumes. Exit code 1 means that the claim is broken.

    Example: tacit audit coalition --graph ring --agents 6 --keys graph --curious 1 --runs 5000
    """

    kind: ClassVar[str] = "coalition"
    algorithm: of.Rule = "dsgd"
    agents: Annotated[int | None, system("N", "How many; default 5, or the number in the graph's file.")] = None
    graph: of.Graph = "complete"
    curious: Annotated[int, system("N", "How many curious agents --epsilon is claimed against.", min=0)] = 1
    keys: of.KeyPairs = None
    mask_ratio: of.MaskRatio = None
    target: Annotated[int, system("AGENT", "The agent that holds the record, or does not.")] = 0
    observers: Annotated[
        list[int] | None,
        system("AGENT", "A curious agent; may be repeated. Default: the worst --curious for the target.", "--observer"),
    ] = None
    hears: Annotated[
        Literal["all", "neighbours"], system("WHOM", "Whose messages they see: all, as ε assumes, or neighbours.")
    ] = "all"
    records: of.HeldRecords = 100
    lr: of.StepSize = 0.02
    rounds: of.Rounds = 20
    seed: Annotated[int, system("N", "Seed of the other records and of random graphs.", min=0)] = 0
    runs: of.Runs = 1000
    batch: Annotated[int | None, execution("N", "Runs side by side; a finished batch is kept. Default 250.", min=1)] = (
        None
    )

    def cases(self) -> list[AttackCase]:
        """Return the attack on the worst record."""
        from tacit.audit.attacks.coalition import Coalition, worst_coalition
        from tacit.audit.attacks.worlds import dirac
        from tacit.audit.bounds.findings import Claim
        from tacit.cli.audit import systems
        from tacit.privacy import Observer, Privacy

        rule, graph = (
            systems.make_rule(self.algorithm),
            systems.make_graph(self.graph, self.agents, self.seed, default=5),
        )
        systems.check_agents(graph, "target", [self.target])
        systems.check_agents(graph, "observer", self.observers or ())
        noise = systems.make_noise("cancelling", self.curious, self.keys, self.mask_ratio)
        privacy = Privacy(epsilon=self.epsilon, delta=self.delta, clip=1.0, lot_size=self.lot_size, noise=noise)
        world = dirac(
            rule,
            privacy=privacy,
            rounds=self.rounds,
            lr=self.lr,
            graph=graph,
            target=self.target,
            records=self.records,
            dense=True,
            seed=self.seed,
        )
        masks = world.plan.masks
        if masks is None:
            raise InvalidInput(
                f"masks do not pay for {self.algorithm} on this graph, so none are used; give --mask-ratio, or attack with "
                "tacit audit neighbor"
            )
        observers = sorted(set(self.observers or worst_coalition(masks, self.target, max(1, self.curious))))
        attack = Coalition(world=world, observers=observers, hears=self.hears)
        attack.scores(1, present=False, seed=0)  # what cannot be played fails here, before a folder is made
        description = {
            "title": "Coalition",
            "about": f"{systems.display_name(self.algorithm)} · {len(graph)} agents · graph: {self.graph} · keys: "
            f"{self.keys or 'complete'} · {self.rounds:,} rounds",
            "algorithm": self.algorithm,
            "agents": len(graph),
            "graph": self.graph,
            "target": self.target,
            "observers": observers,
            "queries": attack.event.count,
            "against": str(Observer(len(observers))),
            "saw": _describe(self.target, observers, self.hears),
            "record": "The record is the worst possible one: for any model, its gradient is clipped to its full length and points in "
            "one direction, which has a share of every axis and which the attacker knows.",
        }
        settings: dict[str, Any] = {"agents": len(graph), "links": systems.links_of(graph), "observers": observers}
        settings["masks"] = masks.to_json()
        claim = Claim.of(attack.event, self.delta)
        return [AttackCase(attack=attack, claim=claim, settings=settings, description=description)]


def _describe(target: int, observers: Sequence[int], hears: str) -> str:
    from tacit.cli.audit.systems import describe_observers

    whose = "every message of all agents" if hears == "all" else "every message of neighbours"
    return (
        f"{describe_observers(observers)} {whose}, the final models, the graph, the key graph and all settings, and hold all masks "
        f"that they share; lots, noise and other masks stay secret. The claim is the ε against that many agents. From these the "
        f"attack infers the noisy gradients of agent {target} as well as possible."
    )


command = command_of(CoalitionAudit)
