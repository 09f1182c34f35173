"""Made-up records in the shape of one's own, and hostile ones.

Only public facts are read: shapes, types, numbers of classes and records, and held-out records, which belong to nobody.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from tacit.data import AgentData, DataSet, Records
from tacit.data.inputs import Inputs, mapped, names, parts, rebuild
from tacit.privacy import Unit
from tacit.training.preparation import declared_sizes
from tacit.training.settings import Training

_HELD_OUT = 8  # as many public records as a session checks engines on, and few enough to be scored at once
_SIZES = (0.0, 1.0, -1.0, 1e-45, 1e-30, 1e-8, 1e4, -1e4, 1e10, 1e30, 3e38)
_NOT_FINITE = (float("nan"), float("inf"), -float("inf"))


def made_up(training: Training, seed: int = 0) -> Training:
    """Return the same settings on made-up records, with a ledger of their own and without whoever listens."""
    data, generator = training.data, torch.Generator().manual_seed(seed)
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
    """Return whose each record is, where units have from one record to one more than take part."""
    units = torch.arange(count)
    return units.repeat_interleave(1 + units % (unit.most + 1))


def ordinary_inputs(data: DataSet, count: int, generator: torch.Generator) -> Inputs:
    """Return inputs like those of the data set in shape and type."""
    found: Inputs = mapped(lambda like: _ordinary(like, count, generator), data.train.inputs)
    return found


def _ordinary(like: Tensor, count: int, generator: torch.Generator) -> Tensor:
    shape = (count, *like.shape[1:])
    if like.dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=like.dtype)
    if like.dtype == torch.uint8:
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    return torch.randint(0, 2, shape, generator=generator).to(like.dtype)


def ordinary_targets(data: DataSet, count: int, generator: torch.Generator) -> Tensor:
    """Return targets like those of the data set, over all classes."""
    like = data.train.targets
    shape = (count, *like.shape[1:])
    if like.dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=like.dtype)
    return torch.randint(0, data.classes or 2, shape, generator=generator).to(like.dtype)


def hostile_records(data: DataSet, generator: torch.Generator) -> Iterator[tuple[str, Inputs, Tensor]]:
    """Yield odd records before `prepare`: what they are, input and target, each with a leading axis of one.

    Of several inputs, one is odd at a time. Targets that are classes stay among them; whatever else a data set refuses.
    """
    target = ordinary_targets(data, 1, generator)
    inputs = data.train.inputs
    for number, (name, like) in enumerate(zip(names(inputs), parts(inputs), strict=True)):
        for words, odd in _hostile(like, generator):
            record = parts(ordinary_inputs(data, 1, generator)) if isinstance(inputs, tuple | dict) else [odd]
            record[number] = odd
            yield words if len(record) == 1 else f"{words} in {name}", rebuild(inputs, record), target
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
