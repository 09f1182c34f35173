"""Systems to attack: how they run, and the record whose presence is in question.

With and without that record, the canary, everything else is the same: the public facts, q among them, follow from
declared sizes. `dirac` is the worst case, in which a record's gradient is the record itself. Along one axis it would not show a
norm that is not Euclidean, so its canary may lie in a dense direction and have any length. `images` is a real one, the paper's:
a network, images, and a blank image labelled 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import networkx as nx
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tacit.algorithms import SGD, Algorithm
from tacit.algorithms.averaged import rule_of
from tacit.api import train_trials
from tacit.data import AgentData, DataSet, Records
from tacit.data.records import concatenate
from tacit.errors import InvalidInput
from tacit.models import FlatModel, convnet
from tacit.models.functional import Loss, cross_entropy
from tacit.networks import Tap
from tacit.privacy import Compile, Plan, Privacy, Sources
from tacit.privacy.randomness import Source
from tacit.training.preparation import Model, starts
from tacit.training.results import Result
from tacit.training.schedules import Schedule

_CANARY_LENGTH = 100.0  # in clipping norms: more than all other records of a lot together
_WIDTH = 8


@dataclass(frozen=True)
class _From:
    """The same sources from a later trial on, so that no two batches draw the same."""

    sources: Sources
    first: int

    @property
    def secret(self) -> bool:
        return self.sources.secret

    def make(self, agents: int, trial: int = 0) -> Sequence[Source]:
        return self.sources.make(agents, self.first + trial)


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """A system under attack; the fields are those of `Training`.

    data: what the agents hold without the canary. They declare as many records with it.
    canary: one record, which the target holds or does not hold.
    """

    algorithm: Algorithm[Any]
    model: Model
    loss: Loss = cross_entropy
    data: AgentData
    canary: Records
    target: int
    privacy: Privacy
    rounds: int
    lr: float | Sequence[float] | Schedule
    graph: nx.Graph | None
    compile: Compile = "auto"

    def __post_init__(self) -> None:
        if (self.privacy.adjacency, self.privacy.accountant) != ("add_remove", "pld"):
            raise InvalidInput(
                f"the promise is by {self.privacy.accountant} under {self.privacy.adjacency} adjacency; attacks add or remove "
                "a record and are held against the tightest ε for that: use adjacency='add_remove' and accountant='pld'"
            )
        if len(self.canary) != 1:
            raise InvalidInput(f"{len(self.canary)} canaries were given; this attack is on one record")
        if self.target not in range(self.data.agents):
            raise InvalidInput(f"target is {self.target}; it must be an agent, from 0 to {self.data.agents - 1}")

    def data_with(self, canary: bool) -> AgentData:
        """Return what the agents hold, with the canary in the target's hands or without."""
        if not canary:
            return self.data
        train = concatenate([self.data.dataset.train, self.canary])
        indices = list(self.data.indices)
        indices[self.target] = torch.cat([indices[self.target], torch.tensor([len(train) - 1])])
        return replace(self.data, dataset=replace(self.data.dataset, train=train), indices=tuple(indices))

    @cached_property
    def direction(self) -> Float[Tensor, " params"]:
        """Where the canary's gradient points, in a world where that is the record itself."""
        record = self.canary.table[0].double().flatten()
        return record / record.norm()

    def starts(self, model: FlatModel, trials: int, seed: int) -> Float[Tensor, "stack params"]:
        """Return where every agent of every trial starts, which is public."""
        return starts(model, self.model, seed=seed, trials=trials, agents=self.data.agents, same_start=True)

    def play(
        self, trials: int, *, present: bool, seed: int, sources: Sources | None = None, taps: Sequence[Tap] = ()
    ) -> list[Result]:
        """Train so many independent systems side by side, trial t from `seed + t`: its start, and its seeded sources."""
        return train_trials(
            trials,
            self.algorithm,
            model=self.model,
            loss=self.loss,
            data=self.data_with(present),
            sizes=self.data.sizes,
            privacy=self.privacy,
            rounds=self.rounds,
            lr=self.lr,
            graph=self.graph,
            seed=seed,
            sources=None if sources is None else _From(sources, seed),
            taps=taps,
            evaluate_every=self.rounds,
            compile=self.compile,
        )


def first_output(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the model's output as the loss, so that a linear model's gradient is the record."""
    return outputs[:, 0]


def linear_model(width: int) -> nn.Module:
    """Return a linear map of so many inputs to one output, which starts at zero."""
    model = nn.Linear(width, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


def dirac(
    algorithm: Algorithm[Any],
    *,
    privacy: Privacy,
    rounds: int,
    lr: float | Schedule = 0.1,
    graph: nx.Graph,
    target: int = 0,
    records: int = 100,
    pull: float = 0.0,
    dense: bool = False,
    length: float = _CANARY_LENGTH,
    seed: int = 0,
) -> World:
    """Return the worst case: the canary's gradient is `length` clipping norms along the first axis, wherever θ is.

    All other gradients are random and two clipping norms long across it, or with `pull` share of their length against it.
    `dense` turns the whole world by a random rotation, after which the canary has the same share of every axis.
    """
    if not 0 <= pull <= 1:
        raise InvalidInput(f"pull is {pull}; it must lie between 0 and 1")
    if not length >= 1:
        raise InvalidInput(f"length is {length}; a canary shorter than one clipping norm hides behind it")
    agents, clip = len(graph), _one_number("clip", privacy.clip)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(agents * records, _WIDTH, generator=generator)
    inputs[:, 0] = 0
    inputs = 2 * clip * inputs / inputs.norm(dim=1, keepdim=True)
    inputs *= (1 - pull**2) ** 0.5
    inputs[:, 0] = -2 * clip * pull
    canary = torch.zeros(1, _WIDTH)
    canary[0, 0] = length * clip
    if dense:
        axes = torch.randn(_WIDTH, _WIDTH, generator=generator)
        axes[:, 0] = axes[:, 0].sign()  # the canary's: no direction is longer by its largest coordinate than this
        turn = torch.linalg.qr(axes).Q.T
        inputs, canary = inputs @ turn, canary @ turn
    parts = [(part, torch.zeros(len(part))) for part in inputs.split(records)]
    return World(
        algorithm=algorithm,
        model=linear_model(_WIDTH),
        loss=first_output,
        data=AgentData.from_parts(parts, name="dirac"),
        canary=Records(canary, torch.zeros(1)),
        target=target,
        privacy=privacy,
        rounds=rounds,
        lr=lr,
        graph=graph,
        compile=False,
    )


def images(
    data_set: DataSet,
    algorithm: Algorithm[Any],
    *,
    privacy: Privacy,
    rounds: int,
    lr: float | Schedule,
    agents: int = 3,
    records: int = 100,
    graph: nx.Graph | None = None,
    compile: Compile = "auto",
) -> World:
    """Return the paper's: agent i holds the first images of class i; the canary is a blank image labelled 0, agent 0's.

    `SGD` trains in one place on what all of them hold; its lot is that of all agents together.
    """
    targets = data_set.train.targets
    if data_set.classes is None or data_set.classes < agents:
        raise InvalidInput(f"{data_set.name} has too few classes for {agents} agents with one each")
    held = [torch.nonzero(targets == label).flatten()[:records] for label in range(agents)]
    short = min(len(rows) for rows in held)
    if short < records:
        raise InvalidInput(f"{data_set.name} has only {short} images of some class; {records} of each are wanted")
    chosen = [data_set.train.take(rows) for rows in held]
    # Public records, to check engines on. As validation records they would be scored on, which takes longer than training.
    data = AgentData.from_parts(
        chosen, name=data_set.name, test=data_set.validation, classes=data_set.classes, prepare=data_set.prepare
    )
    central = type(rule_of(algorithm)) is SGD
    if central:
        data, privacy = data.pooled(), replace(privacy, lot_size=agents * _one_number("lot_size", privacy.lot_size))
    blank = torch.zeros_like(data_set.train.table[:1])
    return World(
        algorithm=algorithm,
        model=partial(convnet, data_set.input_shape, data_set.classes),
        data=data,
        canary=Records(blank, torch.zeros(1, dtype=targets.dtype)),
        target=0,
        privacy=privacy,
        rounds=rounds,
        lr=lr,
        graph=None if central else graph or nx.complete_graph(agents),
        compile=compile,
    )


def _one_number(name: str, value: float | Sequence[float]) -> float:
    if isinstance(value, Sequence):
        raise InvalidInput(f"{name} is {value!r}; in this world all agents have the same")
    return value


def plan_of(world: World, queries: int) -> Plan:
    """Return what the agents promise: q and σ for each."""
    return world.privacy.plan(world.data.sizes, queries)
