"""Systems to attack: how they run, and the record whose presence is in question.

With and without that record, the canary, everything else is the same: all public facts, q included, follow from declared sizes.
`dirac` is the worst case, in which a record's gradient is the record itself. A canary along one axis would not reveal clipping by a
norm that is not Euclidean, so its canary may lie in a dense direction and have any length. `images` is the paper's own system: a
network, images, and a blank image labelled 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NotRequired, TypedDict

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
from tacit.networks import StackedNetwork, Tap
from tacit.privacy import Compile, Plan, Privacy, Sources
from tacit.privacy.accounting import Event
from tacit.privacy.randomness import Source
from tacit.training.counting import count
from tacit.training.preparation import Model, connect, starts
from tacit.training.results import Result
from tacit.training.schedules import Schedule, as_schedule

_CANARY_LENGTH = 100.0  # in clipping norms: more than all other records of a lot together
_WIDTH = 8


@dataclass(frozen=True)
class _From:
    """The same sources, starting at a later trial, so that no two batches draw the same."""

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

    data: what the agents hold without the canary. They declare the same sizes with it.
    canary: one record, which the target either holds or does not hold.
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
                f"ε is claimed by {self.privacy.accountant} under {self.privacy.adjacency} adjacency; attacks add or remove a "
                "record and are compared with the tightest ε for that: use adjacency='add_remove' and accountant='pld'"
            )
        if len(self.canary) != 1:
            raise InvalidInput(f"the canary has {len(self.canary)} records; it must be one")
        if self.target not in range(self.data.agents):
            raise InvalidInput(f"target is {self.target}; it must be an agent, from 0 to {self.data.agents - 1}")

    def data_with(self, records: Records) -> AgentData:
        """Return what the agents hold when the target also holds these records."""
        train = concatenate([self.data.data.train, records])
        indices = list(self.data.indices)
        indices[self.target] = torch.cat([indices[self.target], torch.arange(len(train) - len(records), len(train))])
        return replace(self.data, data=replace(self.data.data, train=train), indices=tuple(indices))

    @cached_property
    def plan(self) -> Plan:
        """q and σ of every agent, for as many queries as the rule asks."""
        links = {"agents": self.data.agents, "trials": 1, "rounds": self.rounds}
        (topology,) = connect(self.graph, "metropolis", allow_drift=False, **links)
        cost = count(
            self.algorithm, self.rounds, as_schedule(self.lr), lambda device: StackedNetwork(topology, device=device), 0
        )
        return self.privacy.plan(self.data.sizes, cost.queries)

    @property
    def event(self) -> Event:
        """The target's mechanism, as stated."""
        return self.plan.event(self.target)

    @cached_property
    def direction(self) -> Float[Tensor, " params"]:
        """Where the canary's gradient points, in a world where that is the record itself."""
        record = self.canary.table[0].double().flatten()
        return record / record.norm()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a run, except for its data and sizes."""
        names = ("algorithm", "model", "loss", "privacy", "rounds", "lr", "graph", "compile")
        return {name: getattr(self, name) for name in names} | {"evaluate_every": self.rounds}

    def starts(self, model: FlatModel, trials: int, seed: int) -> Float[Tensor, "stack params"]:
        """Return where every agent of every trial starts, which is public."""
        return starts(model, self.model, seed=seed, trials=trials, agents=self.data.agents, same_start=True)

    def play(
        self, trials: int, *, present: bool, seed: int, sources: Sources | None = None, taps: Sequence[Tap] = ()
    ) -> list[Result]:
        """Train this many independent systems side by side; `seed + t` seeds the start and the seeded sources of trial t."""
        return train_trials(
            trials,
            data=self.data_with(self.canary) if present else self.data,
            sizes=self.data.sizes,
            seed=seed,
            sources=None if sources is None else _From(sources, seed),
            taps=taps,
            **self.settings,
        )


def first_output(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the model's first output as the loss, so that the gradient of a linear model is the record."""
    return outputs[:, 0]


def linear_model(width: int) -> nn.Module:
    """Return a linear map from `width` inputs to one output, starting at zero."""
    model = nn.Linear(width, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


def linear_data(inputs: Float[Tensor, "all width"], records: int, name: str) -> AgentData:
    """Return data whose gradients are its inputs, `records` of them for each agent."""
    return AgentData.from_parts([(part, torch.zeros(len(part))) for part in inputs.split(records)], name=name)


class DiracSettings(TypedDict):
    """Settings that worlds derived from `dirac` pass on to it."""

    privacy: Privacy
    rounds: int
    graph: nx.Graph
    lr: NotRequired[float | Schedule]
    target: NotRequired[int]


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

    All other gradients are random and two clipping norms long: orthogonal to it, or with a share `pull` of their length against it.
    `dense` rotates the whole world at random, so that the canary has the same share of every axis.
    """
    if not 0 <= pull <= 1:
        raise InvalidInput(f"pull is {pull}; it must lie between 0 and 1")
    if not length >= 1:
        raise InvalidInput(f"length is {length}; a canary must be at least one clipping norm long")
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
        axes[:, 0] = axes[:, 0].sign()  # the canary's: every coordinate of the same size
        turn = torch.linalg.qr(axes).Q.T
        inputs, canary = inputs @ turn, canary @ turn
    return World(
        algorithm=algorithm,
        model=linear_model(_WIDTH),
        loss=first_output,
        data=linear_data(inputs, records, "dirac"),
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
    """Return the paper's system: agent i holds the first images of class i, and the canary is a blank image labelled 0, agent 0's.

    `SGD` trains in one place on the data of all agents; its lot is all of theirs together.
    """
    targets = data_set.train.targets
    if data_set.classes is None or data_set.classes < agents:
        raise InvalidInput(f"{data_set.name} has too few classes for {agents} agents with one each")
    held = [torch.nonzero(targets == label).flatten()[:records] for label in range(agents)]
    short = min(len(rows) for rows in held)
    if short < records:
        raise InvalidInput(f"{data_set.name} has only {short} images of one class; {records} of each are needed")
    chosen = [data_set.train.take(rows) for rows in held]
    # Engines are checked on these public records. As validation records they would be scored too, which takes longer than training.
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
        raise InvalidInput(f"{name} is {value!r}; all agents of this world must have the same")
    return value
