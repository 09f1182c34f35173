"""Made-up records in the shape of the user's own: ordinary ones, hostile ones, and ones found by gradient ascent.

Only public facts are read: shapes, types, numbers of classes and records, and held-out records, which belong to nobody.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import grad, vmap

from tacit.algorithms import Local
from tacit.audit.attacks.worlds import first_output
from tacit.data import AgentData, DataSet, Records
from tacit.data.inputs import Inputs, mapped, names, parts, rebuild
from tacit.models import FlatModel
from tacit.privacy import Plan, Privacy, Unit
from tacit.training.preparation import Model, declared_sizes
from tacit.training.session import Session
from tacit.training.settings import Training

SCALES = (1e-2, 0.1, 0.5, 1.0, 2.0, 10.0, 1e3)
"""Lengths in which records found by ascent are tried."""
_STEPS, _STRIDE = 12, 0.3
_HELD_OUT = 8  # public records; a session checks engines on this many
_SIZES = (0.0, 1.0, -1.0, 1e-45, 1e-30, 1e-8, 1e4, -1e4, 1e10, 1e30, 3e38)
_NOT_FINITE = (float("nan"), float("inf"), -float("inf"))


def use_made_up_records(training: Training) -> Training:
    """Return the same settings on made-up records, with their own ledger and without taps."""
    data, generator = training.data, torch.Generator().manual_seed(0)
    unit = training.unit
    agents = data.agents if training.sizes is None else len(training.sizes)
    sizes = declared_sizes(data, training.sizes, agents, unit)
    units = None if unit is None else _units(sum(sizes), unit)
    total = sum(sizes) if units is None else len(units)
    train = Records(
        ordinary_inputs(data.dataset, total, generator), ordinary_targets(data.dataset, total, generator), units
    )
    table = DataSet(
        name=f"made up like {data.dataset.name}",
        train=train,
        validation=_few(data.dataset.validation),
        test=_few(data.dataset.test),
        classes=data.dataset.classes,
        prepare=data.dataset.prepare,
    )
    first = [0, *accumulate(sizes)]
    holder = torch.arange(total) if units is None else units
    held = tuple(((holder >= a) & (holder < b)).nonzero()[:, 0] for a, b in pairwise(first))
    owners = tuple(f"made up/agent {agent}" for agent in range(len(sizes)))
    graph = training.graph
    return replace(
        training,
        graph=graph[0] if isinstance(graph, Sequence) else graph,
        data=AgentData(dataset=table, indices=held, owners=owners, partition="made up"),
        sizes=None,
        ledger=None,
        name=None,
        taps=(),
        private_diagnostics=False,
        compile=training.compile is True,
        progress=False,
    )


def _units(count: int, unit: Unit) -> Tensor:
    """Return the unit of each record; units have from one record to one more than may take part."""
    units = torch.arange(count)
    return units.repeat_interleave(1 + units % (unit.most + 1))


def ordinary_inputs(data: DataSet, count: int, generator: torch.Generator) -> Inputs:
    """Return inputs like those of the data set in shape and type."""
    found: Inputs = mapped(lambda like: _ordinary(like, count, generator), data.train.inputs)
    return found


def ordinary_targets(data: DataSet, count: int, generator: torch.Generator) -> Tensor:
    """Return targets like those of the data set, over all classes."""
    return _ordinary(data.train.targets, count, generator, data.classes or 2)


def _ordinary(like: Tensor, count: int, generator: torch.Generator, below: int | None = None) -> Tensor:
    """Return random values of the same shape and type, whole numbers below `below`: by default bytes, or 0 and 1."""
    shape = (count, *like.shape[1:])
    if like.dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=like.dtype)
    dtype, default = (torch.uint8, 256) if like.dtype == torch.uint8 else (torch.int64, 2)
    return torch.randint(0, below or default, shape, generator=generator, dtype=dtype).to(like.dtype)


def hostile_records(data: DataSet, generator: torch.Generator) -> Iterator[tuple[str, Inputs, Tensor]]:
    """Yield odd records before `prepare`: a description, the input and the target, each with a leading axis of one.

    Of several inputs, one at a time is odd. Class labels stay valid; a data set refuses any others.
    """
    target = ordinary_targets(data, 1, generator)
    inputs = data.train.inputs
    for number, (name, like) in enumerate(zip(names(inputs), parts(inputs), strict=True)):
        for about, odd in _hostile(like, generator):
            record = parts(ordinary_inputs(data, 1, generator)) if isinstance(inputs, tuple | dict) else [odd]
            record[number] = odd
            yield about if len(record) == 1 else f"{about} in {name}", rebuild(inputs, record), target
        for _ in range(0 if like.dtype.is_floating_point else 3):
            yield "random", ordinary_inputs(data, 1, generator), ordinary_targets(data, 1, generator)
    if target.is_floating_point():
        plain = ordinary_inputs(data, 1, generator)
        for size in (*_SIZES, *_NOT_FINITE):
            yield f"target {size:g}", plain, torch.full_like(target, size)


def _hostile(like: Tensor, generator: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    """Yield odd values of one input."""
    if not like.dtype.is_floating_point:
        for whole in (0, 1, 128, 255) if like.dtype == torch.uint8 else (0, 1, -1, 2**20):
            yield f"all {whole}", torch.full_like(like[:1], whole)
        return
    chance = _ordinary(like, 1, generator)
    for size in _SIZES:
        yield f"all {size:g}", torch.full_like(chance, size)
        yield f"random of size {size:g}", chance * size
    for value in _NOT_FINITE:
        yield f"all {value}", torch.full_like(chance, value)
        one = chance.clone()
        one.view(-1)[0] = value
        yield f"one {value}", one
    spike = torch.zeros_like(chance)
    spike.view(-1)[-1] = 1e6
    yield "one huge number", spike


def _few(records: Records | None) -> Records | None:
    return None if records is None else records.take(torch.arange(min(_HELD_OUT, len(records))))


def ascend(
    model: FlatModel, theta: Float[Tensor, " params"], inputs: Float[Tensor, "records ..."], targets: Tensor
) -> Float[Tensor, "records ..."]:
    """Return inputs with longer gradients, by gradient ascent on the gradient's length; steps that are not finite are skipped.

    Clipping should make all gradients longer than C alike. A rule that bounds something other than the length, or bounds it late,
    fails on records that are long in every direction.
    """

    def length(input: Tensor, target: Tensor) -> Tensor:
        own = grad(lambda at: model.losses(at, input[None], target[None], training=True)[0])(theta)
        return torch.log(own.square().sum() + 1e-30)

    climb = vmap(grad(length), randomness="error")
    best = inputs.to(model.dtype)
    for _ in range(_STEPS):
        slope = climb(best, targets).flatten(1)
        size = best.flatten(1).norm(dim=1, keepdim=True).clamp(min=1.0)
        step = _STRIDE * size * slope / slope.norm(dim=1, keepdim=True).clamp(min=1e-30)
        moved = best + step.reshape(best.shape)
        fine = moved.flatten(1).isfinite().all(dim=1).reshape(-1, *[1] * (best.ndim - 1))
        best = torch.where(fine, moved, best).detach()
    return best


def ask_oracle(
    training: Training, *, model: Model, data: AgentData, privacy: Privacy, queries: int, planned: int = 0
) -> tuple[Float[Tensor, "agents queries params"], Plan]:
    """Return the real oracle's answers about records of a linear model, and the plan they were given under.

    planned: how many queries the plan is for, where that is more than are asked.
    """
    settings = replace(
        training,
        algorithm=Local(),
        graph=None,
        model=model,
        loss=first_output,
        data=data,
        privacy=privacy,
        rounds=max(queries, planned),
        gossip_rounds=0,
        exchanges_per_query=1,
        absences=(),
        lr=0.1,
        same_start=True,
        spare_queries=0,
        sizes=None,
        compile=False,
    )
    with Session(settings) as session:
        theta = session.state.theta
        answers = [session.real_oracle.gradient(theta).cpu().double() for _ in range(queries)]
        return torch.stack(answers, dim=1), session.plan
