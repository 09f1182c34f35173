"""`tacit audit coalition`: curious agents who hear everything and pool their masks, and the worst possible record."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from tacit.cli.audit import options as of
from tacit.cli.audit.base import AttackCase, BatchedAudit
from tacit.cli.audit.options import agents_option, observers_option, system
from tacit.errors import InvalidInput
from tacit.privacy.observers import Observer


@dataclass(frozen=True, kw_only=True)
class CoalitionAudit(BatchedAudit):
    """Curious agents who pool their masks: do they learn more than is claimed?

    They hear all messages and subtract the masks that they share. The claim is the ε against that number of curious agents.

    The record is the worst possible one: for any model its gradient is clipped to its full length and points in one direction.

    After a stop, the same command with --folder resumes. Exit code 1 means that the claim is broken.

    Example: tacit audit coalition --graph ring --agents 6 --keys graph --curious 1 --runs 5000
    """

    kind: ClassVar[str] = "coalition"
    noise: ClassVar[str] = "cancelling"
    algorithm: of.Rule = "dsgd"
    agents: Annotated[int | None, agents_option(5)] = None
    graph: of.Graph = "complete"
    curious: Annotated[int, system("N", "How many curious agents --epsilon is claimed against.", min=1)] = 1
    keys: of.OwnKeyPairs = None
    mask_ratio: of.OwnMaskRatio = None
    target: of.Target = 0
    observers: Annotated[list[int] | None, observers_option("the worst --curious agents for the target")] = None
    hears: Annotated[
        Literal["all", "neighbours"], system("WHOM", "Whose messages they see: all, as ε assumes, or neighbours.")
    ] = "all"
    records: of.HeldRecords = 100
    lr: of.StepSize = 0.02
    rounds: of.Rounds = 20
    seed: of.Seed = 0

    def cases(self) -> list[AttackCase]:
        """Return the attack on the worst record."""
        from tacit.audit.attacks.coalition import Coalition, worst_coalition
        from tacit.audit.attacks.known_masks import known_pairs
        from tacit.audit.attacks.worlds import dirac
        from tacit.audit.bounds.findings import Claim
        from tacit.cli.audit import systems

        rule = systems.make_rule(self.algorithm)
        graph = systems.make_graph(self.graph, self.agents, self.seed, default=5)
        systems.check_agents(graph, "target", [self.target])
        systems.check_agents(graph, "observer", self.observers or ())
        world = dirac(
            rule,
            privacy=systems.make_privacy(self),
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
                f"masks would not help {self.algorithm} on this graph, so none are used; give --mask-ratio, or attack with "
                "tacit audit neighbor"
            )
        observers = sorted(set(self.observers or worst_coalition(masks, self.target, self.curious)))
        attack = Coalition(world=world, observers=observers, hears=self.hears)
        attack.scores(1, present=False, seed=0)  # what cannot be played fails here, before a folder is made
        whose = "all agents" if self.hears == "all" else "neighbours"
        target = f"agent {self.target}"
        cut_off = set(masks.keys.by_agent[self.target]) <= known_pairs(masks, observers)
        alone = f" They know all masks of {target}, so only its own noise protects it from them." if cut_off else ""
        description = systems.describe_system(
            "Coalition",
            self.algorithm,
            agents=len(graph),
            graph=self.graph,
            rounds=self.rounds,
            more=[f"keys: {self.keys or 'complete'}"],
            target=self.target,
            observers=observers,
            queries=attack.event.count,
            against=str(Observer(len(observers))),
            saw=f"{systems.describe_observers(observers)} every message of {whose}, the final models, the graph, the key graph, all "
            "settings, and the masks shared with other agents; lots, noise and other masks stay secret. The claim is the ε against "
            f"that many agents.{alone} From these the attack infers the noisy gradients of {target} as well as possible.",
            record=systems.WORST_RECORD,
        )
        settings = {**systems.state_system(graph, observers), "masks": masks.to_json()}
        claim = Claim.of(attack.event, self.delta)
        return [AttackCase(attack=attack, claim=claim, settings=settings, description=description)]
