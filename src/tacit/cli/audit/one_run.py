"""`tacit audit one-run`: many canaries in a single run, and an attacker who guesses which of them are in."""

import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tacit.cli.audit import options as of
from tacit.cli.audit.base import SingleAudit, SingleCase
from tacit.cli.audit.folder import Document
from tacit.cli.audit.options import execution, system
from tacit.errors import InvalidInput

if TYPE_CHECKING:
    from tacit.audit.attacks.one_run import OneRun

_WORST, _NATURAL = 1000, 200  # canaries
_HIDDEN = 16  # units of the small network

_SEEN = {
    "answers": "The attacker sees all noisy gradients of agent 0, as any neighbour can infer them on a complete graph; lots "
    "and noise stay secret.",
    "models": "The attacker sees everyone's final models and nothing else, and measures their loss on each canary.",
}
_WORST_CANARIES = (
    "They are the worst possible ones: each one's gradient is clipped to its full length and lies along an axis of its own, "
    "which the attacker knows."
)
_NATURAL_CANARIES = "They are images with wrong labels. Worse records may reveal more."


@dataclass(frozen=True, kw_only=True)
class OneRunAudit(SingleAudit):
    """Many canaries in one run: for how many does an attacker guess correctly whether they are in?

    A coin decides whether each canary is in. The bound is weaker than that of many runs, but one run is enough.

    With a data set, canaries are images with wrong labels, and a small network learns.

    --guesses must be chosen before the outcome is seen. Exit code 1 means that the claim is broken.

    Example: tacit audit one-run --dataset digits --epsilon 8 --canaries 300
    """

    kind: ClassVar[str] = "one-run"
    algorithm: of.Rule = "dsgd"
    dataset: Annotated[str | None, system("NAME", "Images, such as digits; default: the worst possible records.")] = (
        None
    )
    data_dir: of.DataFolder = None
    canaries: Annotated[int | None, system("N", f"Default {_WORST}, or {_NATURAL} with a data set.", min=2)] = None
    sees: Annotated[Literal["answers", "models"], system("WHAT", "answers of agent 0, or models at the end.")] = (
        "answers"
    )
    epsilon: of.Epsilon = 8.0
    delta: of.Delta = 1e-5
    sample_rate: of.SampleRate = 1.0
    records: Annotated[int, system("N", "Other records that each agent holds.", min=1)] = 100
    rounds: of.Rounds = 10
    lr: of.StepSize = 0.5
    guesses: Annotated[
        int | None, execution("N", "How many of the surest guesses count; default: a third of the canaries.", min=1)
    ] = None
    confidence: of.Confidence = 0.95
    seed: Annotated[int | None, execution("N", "Seed of the coins; default: a random one.", min=0)] = None

    def case(self) -> SingleCase:
        """Return the audit of one run, with the worst possible canaries or with mislabelled images."""
        import networkx as nx

        from tacit.audit.attacks.one_run import OneRun, dirac_canaries
        from tacit.audit.bounds.one_run import Guesses
        from tacit.audit.bounds.rates import check_terms
        from tacit.cli.audit.systems import AGENTS, describe_system, make_rule
        from tacit.privacy import Privacy

        if self.data_dir is not None and self.dataset is None:
            raise InvalidInput("--data-dir is an option of --dataset; the worst canaries are not from a data set")
        check_terms(self.delta, self.confidence, positive=True)
        if not 0 < self.sample_rate <= 1:
            raise InvalidInput(f"sample rate is {self.sample_rate}; it must be above 0 and at most 1")
        canaries = self.canaries or (_WORST if self.dataset is None else _NATURAL)
        seed = secrets.randbits(31) if self.seed is None else self.seed
        sizes = [self.records + canaries // 2] + [self.records] * (AGENTS - 1)
        lots = [self.sample_rate * size for size in sizes]
        world: dict[str, Any] = {
            "privacy": Privacy(epsilon=self.epsilon, delta=self.delta, clip=1.0, lot_size=lots),
            "rounds": self.rounds,
            "lr": self.lr,
            "graph": nx.complete_graph(AGENTS),
        }
        if self.dataset is None:
            made = dirac_canaries(make_rule(self.algorithm), canaries=canaries, records=self.records, **world)
            attack = OneRun(world=made.world, canaries=made.canaries, sees=self.sees)
        else:
            attack = self._mislabelled(self.dataset, canaries, world)
        guesses = attack.guesses if self.guesses is None else self.guesses
        Guesses(canaries=canaries, guesses=guesses, correct=0)  # complains where there are too many
        description = describe_system(
            "Canaries in one run",
            self.algorithm,
            agents=AGENTS,
            graph="complete",
            rounds=self.rounds,
            on=self.dataset,
            dataset=self.dataset,
            target=0,
            saw=_SEEN[self.sees],
            record="A coin decides for each canary whether it is among agent 0's records. "
            + (_WORST_CANARIES if self.dataset is None else _NATURAL_CANARIES),
        )

        def play() -> Document:
            found = attack.judge(attack.play(seed), guesses=guesses, confidence=self.confidence)
            return {**found.to_json(), "confidence": self.confidence}

        settings = {"canaries": canaries, "guesses": guesses, "seed": seed}
        return SingleCase(play=play, settings=settings, description=description)

    def _mislabelled(self, dataset: str, canaries: int, world: dict[str, Any]) -> "OneRun":
        """Return an attack on agents that train a small network on the first images; the next ones are the canaries."""
        import torch

        from tacit.audit.attacks.one_run import OneRun
        from tacit.audit.attacks.world import World
        from tacit.cli.audit.systems import AGENTS, make_rule
        from tacit.data import AgentData, Records, load
        from tacit.models import mlp

        data = load(dataset, self.data_dir)
        held, classes = AGENTS * self.records, data.classes
        if classes is None:
            raise InvalidInput(f"{dataset} has no classes, so there are no labels that could be wrong")
        if len(data.train) < held + canaries:
            raise InvalidInput(
                f"{dataset} has {len(data.train):,} images; {held:,} records and {canaries:,} canaries need more"
            )
        parts = [data.train.take(torch.arange(first, first + self.records)) for first in range(0, held, self.records)]
        images = data.train.take(torch.arange(held, held + canaries))
        wrong = torch.randint(1, classes, (canaries,), generator=torch.Generator().manual_seed(0))
        known = Records(images.inputs, (images.targets + wrong) % classes)
        made = World(
            algorithm=make_rule(self.algorithm),
            model=partial(mlp, data.input_shape, classes, hidden=(_HIDDEN,)),
            data=AgentData.from_parts(parts, name=dataset, classes=classes, prepare=data.prepare),
            canary=known.take(torch.tensor([0])),
            target=0,
            compile=False,
            **world,
        )
        return OneRun(world=made, canaries=known, sees=self.sees)
