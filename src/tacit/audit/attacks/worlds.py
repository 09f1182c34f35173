"""Systems to attack.

`dirac` is the worst case, in which a record's gradient is the record itself. A canary along one axis would not reveal clipping by a
norm that is not Euclidean, so its canary may lie in a dense direction and have any length. In `noise_world`, noise and lots can be
separated. `images` is the paper's own system: a network, images, and a blank image labelled 0.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NotRequired, TypedDict, Unpack

import networkx as nx
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tacit.algorithms import Algorithm
from tacit.algorithms.averaged import is_pooled
from tacit.audit.attacks.world import World
from tacit.data import AgentData, DataSet, Records
from tacit.errors import InvalidInput
from tacit.models import convnet
from tacit.privacy import Compile, Privacy
from tacit.training.schedules import Schedule

_CANARY_LENGTH = 100.0  # in clipping norms: more than all other records of a lot together
_WIDTH = 8


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


def noise_world(algorithm: Algorithm[Any], *, records: int = 100, **settings: Unpack[DiracSettings]) -> World:
    """Return a `dirac` world in which all records are equal, along the second axis: the answers there count the lot."""
    world = dirac(algorithm, records=records, **settings)
    inputs = torch.zeros_like(world.data.dataset.train.table)
    inputs[:, 1] = world.data.dataset.train.table.norm(dim=1)
    return replace(world, data=linear_data(inputs, records, "noise"))


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
    central = is_pooled(algorithm)
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
