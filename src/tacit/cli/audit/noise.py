"""`tacit audit noise`: is the noise as large, independent and normal as stated, and are lots drawn as stated?"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from tacit.cli.audit import options as of
from tacit.cli.audit.base import SingleAudit, SingleCase
from tacit.cli.audit.options import execution, observers_option, system
from tacit.errors import InvalidInput

_LR = 0.1  # the gradients do not depend on the models
_MASKED = (
    " Answers contain masks. σ is what the noise of the other agents leaves of an agent's noise and masks together; ε is against an "
    "observer of all messages who has no agent's secrets."
)


@dataclass(frozen=True, kw_only=True)
class NoiseAudit(SingleAudit):
    """Are the noise and the lots as stated? The cheapest attack on a running system.

    The noise is extracted from what neighbours see. Its size, shape and independence are tested, and how lots are drawn.

    Faults in anything else are not found.

    Exit code 1 means that something is not as stated.

    Example: tacit audit noise --algorithm dsgt --runs 200
    """

    kind: ClassVar[str] = "noise"
    algorithm: of.Rule = "dsgd"
    agents: of.Agents = None
    graph: of.Graph = "complete"
    observers: Annotated[list[int] | None, observers_option("the neighbours of agent 0")] = None
    epsilon: of.Epsilon = 1.0
    delta: of.Delta = 1e-2
    noise: of.NoiseKind = "local"
    curious: of.Curious = None
    keys: of.KeyPairs = None
    mask_ratio: of.MaskRatio = None
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

        rule, graph = systems.make_rule(self.algorithm), systems.make_graph(self.graph, self.agents, self.seed)
        observers = systems.choose_observers(graph, 0, self.observers)
        view = Responses.of(rule, graph, rounds=self.rounds, lr=_LR).view(observers)
        others = [agent for agent in range(len(graph)) if agent not in observers and view.exact(agent).all()]
        if not others:
            raise InvalidInput(
                f"observers {observers} cannot reconstruct all answers of any other agent; name more of them with --observer"
            )
        privacy = systems.make_privacy(self)
        world = noise_world(
            rule, privacy=privacy, rounds=self.rounds, lr=_LR, graph=graph, target=others[0], records=self.records
        )
        audit = NoiseCheck(world=world, observers=observers, false_alarm=self.false_alarm)
        masked = "" if audit.plan.masks is None else _MASKED
        description = systems.describe_system(
            "Noise and lots",
            self.algorithm,
            agents=len(graph),
            graph=self.graph,
            rounds=self.rounds,
            observers=observers,
            queries=view.queries,
            saw=f"{systems.describe_observers(observers)} every message of neighbours, their final models, the graph and all settings. "
            f"All answers of the agents in the table follow from these exactly.{masked}",
            record="Records are made so that their gradients are known: along some axes there is only noise, and along one the answers "
            "count the records that were drawn.",
        )
        description["about"] += f" · {self.runs:,} runs"
        settings = {**systems.state_system(graph, observers), "lr": _LR}
        return SingleCase(play=lambda: audit.run(self.runs).to_json(), settings=settings, description=description)
