"""`tacit audit neighbor`: curious neighbours, and a record that is the worst possible one or a natural one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tacit.cli.audit import options as of
from tacit.cli.audit.base import AttackCase, BatchedAudit
from tacit.cli.audit.options import observers_option, system
from tacit.cli.terminal.command import NOT_RECORDED
from tacit.errors import InvalidInput
from tacit.privacy.observers import Observer

if TYPE_CHECKING:
    from tacit.algorithms import Algorithm
    from tacit.audit.attacks.natural import NaturalNeighbor
    from tacit.audit.attacks.neighbor import Neighbor
    from tacit.data import DataSet

_WORTH_COMPILING = 2e7  # rounds times numbers in an image, of all runs of a process; compiling takes about a minute
_MESSAGES = 1e9  # bytes of messages that a process keeps until their runs are scored

_BLANK = (
    "The record is a blank image labelled 0. The attacker knows all other records of the attacked agent, but not which of them "
    "were drawn. A worse record may reveal more."
)


@dataclass(frozen=True, kw_only=True)
class NeighborAudit(BatchedAudit):
    """A curious neighbour and the worst possible record: does more leak than is claimed?

    The neighbour sees all messages that reach it, and infers what it can.

    With --noise cancelling, observers also subtract the masks that they share, and the claim is the ε against that number of curious
    agents. With --bands, they undo the correlation of the noise and look at the turns of the record's group.

    With --canary blank, a network learns images, and the record is a blank one. The observers must then see all answers.

    After a stop, the same command with --folder resumes. Exit code 1 means that the claim is broken.

    Example: tacit audit neighbor --algorithm dsgt --graph ring --agents 5 --runs 5000
    """

    kind: ClassVar[str] = "neighbor"
    algorithm: of.Rule = "dsgd"
    agents: of.Agents = None
    graph: of.Graph = "complete"
    target: of.Target = 0
    observers: Annotated[
        list[int] | None, observers_option("a neighbour of the target, or as many as --curious says")
    ] = None
    canary: Annotated[
        Literal["worst", "blank"], system("RECORD", "worst, or blank: a blank image, learned by a network.")
    ] = "worst"
    dataset: Annotated[str | None, system("NAME", "blank: the agents' images; default mnist.")] = None
    data_dir: Annotated[
        Path | None, system("FOLDER", "blank: where the data set is stored; default: TACIT_DATA."), NOT_RECORDED
    ] = None
    noise: of.AnyNoiseKind = "local"
    curious: of.Curious = None
    keys: of.KeyPairs = None
    mask_ratio: of.MaskRatio = None
    rounding_bits: of.RoundingBits = None
    bands: of.Bands = 1
    records: of.HeldRecords = 100
    lr: of.StepSize = 0.02
    inner_steps: Annotated[int | None, system("N", "dinno: inner steps, and queries, in a round; default 1.")] = None
    adam: Annotated[bool | None, system("", "dinno: the inner step; default plain.", "--adam/--plain")] = None
    seed: of.Seed = 0

    def cases(self) -> list[AttackCase]:
        """Return the attack on the worst record, or on a blank image."""
        from tacit.audit.bounds.findings import Claim
        from tacit.cli.audit import systems

        self._check_data_options()
        rule = systems.make_rule(self.algorithm, self.inner_steps, self.adam)
        graph = systems.make_graph(self.graph, self.agents, self.seed)
        observers = systems.choose_observers(graph, self.target, self.observers, most=max(1, self.curious or 1))
        system = {"rounds": self.rounds, "lr": self.lr, "records": self.records, "graph": graph}
        system["privacy"] = systems.make_privacy(self)
        settings = systems.state_system(graph, observers)
        attack: Neighbor | NaturalNeighbor
        if self.canary == "worst":
            attack, most, dataset, images = self._worst(rule, observers, system), None, None, None
            signs = attack.shows_signs_only
        else:
            settings["dataset"] = dataset = self.dataset or "mnist"
            attack, most = self._natural(dataset, rule, observers, system)
            signs, images = False, f"{dataset}, {sum(attack.world.data.sizes):,} images"
        if hasattr(rule, "inner_steps"):
            settings |= {"inner_steps": rule.inner_steps, "step": "adam" if self.adam else "plain"}
        masks = attack.plan.masks
        settings |= {} if masks is None else {"masks": masks.to_json()}
        against = {} if masks is None else {"against": str(Observer(len(observers)))}
        kept = "lots and noise stay secret" if masks is None else "lots, noise and masks of other pairs stay secret"
        inferred = (
            "Adam's steps show the signs of the gradients but hardly their sizes, so the attack uses the signs"
            if signs
            else f"From these the attack infers the noisy gradients of agent {self.target} as well as possible"
        )
        description = systems.describe_system(
            "Curious neighbour" if len(observers) == 1 else "Curious neighbours",
            self.algorithm,
            agents=len(graph),
            graph=self.graph,
            rounds=self.rounds,
            on=dataset,
            more=self._describe_noise(masks is not None),
            dataset=images,
            target=self.target,
            observers=observers,
            queries=attack.plan.queries,
            exact_answers=None if signs else int(attack.view.exact(self.target).sum()),
            share_seen=None if signs else attack.view.share(self.target),
            saw=f"{systems.describe_observers(observers)} every message of neighbours, their final models, the graph and all settings; "
            f"{kept}. {inferred}.",
            record=systems.WORST_RECORD if self.canary == "worst" else _BLANK,
            **against,
        )
        claim = Claim.of(attack.event, self.delta, attack.grid)
        return [AttackCase(attack=attack, claim=claim, settings=settings, description=description, most=most)]

    def _describe_noise(self, masked: bool) -> list[str]:
        """Name noise that is not each agent's own and independent, for the line about the system."""
        found = [f"masks: {self.keys or 'complete'} keys"] if masked else []
        found += ["no masks, which would not help"] if self.noise == "cancelling" and not masked else []
        found += ["discrete noise"] if self.noise == "discrete" else []
        return found + ([f"{self.bands} bands"] if self.bands > 1 else [])

    def _check_data_options(self) -> None:
        for name, value in (("--dataset", self.dataset), ("--data-dir", self.data_dir)):
            if self.canary == "worst" and value is not None:
                raise InvalidInput(f"{name} is an option of --canary blank; the worst record is not from a data set")
        if self.canary == "blank" and (self.noise == "cancelling" or self.bands > 1):
            raise InvalidInput("a blank image is attacked under independent noise only; leave out masks and --bands")
        if self.canary == "blank" and self.target != 0:
            raise InvalidInput(
                f"--target is {self.target}; a blank image is labelled 0, and agent 0 has the images of class 0"
            )

    def _worst(self, rule: "Algorithm[Any]", observers: Sequence[int], system: dict[str, Any]) -> "Neighbor":
        from tacit.audit.attacks.neighbor import Neighbor
        from tacit.audit.attacks.worlds import dirac

        system = {**system, "target": self.target, "seed": self.seed}
        attack = Neighbor(world=dirac(rule, **system), observers=observers)
        if not attack.shows_signs_only:  # Adam's signs can be read along one axis only
            attack = replace(attack, world=dirac(rule, **system, dense=True))
        attack.scores(1, present=False, seed=0)  # what cannot be played fails here, before a folder is made
        return attack

    def _natural(
        self, dataset: str, rule: "Algorithm[Any]", observers: Sequence[int], system: dict[str, Any]
    ) -> "tuple[NaturalNeighbor, int]":
        """Return the attack on a blank image, and how many runs fit into memory side by side."""
        from tacit.audit.attacks.natural import NaturalNeighbor
        from tacit.audit.attacks.worlds import images
        from tacit.data import load
        from tacit.models import convnet

        data, agents = load(dataset, self.data_dir), len(system["graph"])
        compiled = is_worth_compiling(data, self.rounds, self.runs_each)
        world = images(data, rule, agents=agents, compile=compiled, **system)
        numbers = sum(each.numel() for each in convnet(data.input_shape, data.classes or 0).parameters())
        most = max(1, int(_MESSAGES / (8 * self.rounds * agents * numbers)))
        return NaturalNeighbor(world=world, observers=observers), most


def is_worth_compiling(data: "DataSet", rounds: int, runs: float) -> bool:
    """Say whether this many runs in one process take so long that compiling gradients pays off."""
    return runs * rounds * math.prod(data.input_shape) > _WORTH_COMPILING
