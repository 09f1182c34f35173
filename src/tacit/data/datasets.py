"""A data set, and who holds which of its records.

`DataSet` is what an experiment names; `AgentData` is what the oracle reads. Training records are private to
the agent that holds them; validation and test records are public and belong to nobody.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from tacit.data.inputs import Inputs, describe_inputs, mapped, parts
from tacit.data.labels import check_labels, check_range, count_classes, is_labels, read_records
from tacit.data.missing import share_of_missing, warn_of_missing, with_missing
from tacit.data.partition import Partition
from tacit.data.prepare import Prepare, bytes_to_unit
from tacit.data.records import Records, RecordsLike, concatenate
from tacit.data.schema import Schema, check_share, find_missing
from tacit.errors import DataError


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSet:
    """Records to learn from, to tune on and to report on."""

    name: str
    train: Records
    validation: Records | None
    test: Records | None
    classes: int | None
    """How many classes the int64 targets name, or None if the task is not classification."""
    prepare: Prepare = bytes_to_unit
    """Public preprocessing of a batch that treats each record alone; applied after gathering."""
    schema: Schema | None = None
    """What a record may be. Public. By default it is drafted when a session is made."""
    most_missing: float = 1.0
    """The largest share of an agent's records that may hold NaN or infinity, if the schema allows them."""
    published: bool = False
    """Whether these records are publicly available, as those of `tacit.data.load` and `synthetic` are. Only then does a run show class counts."""
    pool: Inputs | None = None
    """Public records without labels, for teachers to label. Without them, a run takes some of the validation records."""

    def __post_init__(self) -> None:
        shape = _shapes(self.train.inputs)
        for part, records in self._parts():
            if len(records) == 0:
                raise DataError(f"the {part} set of {self.name} has no records; leave it out")
            if _shapes(records.inputs) != shape:
                raise DataError(
                    f"{part} inputs of {self.name} have shape {_shapes(records.inputs)} but training inputs have {shape}"
                )
            if self.classes is not None:
                check_labels(f"{part} targets of {self.name}", records.targets, self.classes)
            if self.schema is not None:
                self.schema.check_kind(records, f"the {part} set of {self.name}")

    @staticmethod
    def from_records(
        *,
        name: str,
        train: RecordsLike,
        validation: RecordsLike | None = None,
        test: RecordsLike | None = None,
        classes: int | None = None,
        prepare: Prepare = bytes_to_unit,
        schema: Schema | None = None,
        allow_missing: bool | float = False,
        units: Any = None,
    ) -> "DataSet":
        """Make a data set from your own records: anything `Records.of` takes.

        One integer per record is taken as a class, and unless `classes` is given, the number of classes is read
        from the targets. Give it for a release: the largest label is a fact about private data. For regression,
        give targets as floats.

        `schema` declares what a record may be. Its shapes and types are those of the tables, in which one
        integer per record is int64; a highest target that it declares gives the number of classes.

        Records that hold NaN or infinity are refused before the first query; a warning says so here. `allow_missing` accepts a share
        of them: with 0.05 at most one in twenty of each agent's records, with True any number. More are refused here. A record whose gradient is not finite then counts
        as zero, silently.

        `units` is a column that says to whom each training record belongs, such as the patient's number: `Privacy(unit=...)` then
        protects each patient with all its records, and `split` keeps them together.
        """
        if not isinstance(name, str):
            raise DataError(f"name is {name!r}; it must be a string")
        if schema is not None and not isinstance(schema, Schema):
            raise DataError(f"schema is a {type(schema).__name__}; give a Schema(inputs=..., targets=...)")
        held_out = [None if source is None else read_records(source) for source in (validation, test)]
        records = read_records(train)
        if units is not None:
            records = records.of_units(units)
        if most_missing := share_of_missing(allow_missing):
            schema = with_missing(name, records, schema)
            check_share(name, most_missing, [("training records", find_missing(records))])
        elif schema is None or schema.is_finite:
            warn_of_missing(name, records)
        if classes is None and schema is not None:
            classes = schema.classes
        if classes is None:
            classes = count_classes([records, *(table for table in held_out if table is not None)])
        return DataSet(
            name=name,
            train=records,
            validation=held_out[0],
            test=held_out[1],
            classes=classes,
            prepare=prepare,
            schema=schema,
            most_missing=most_missing or 1.0,
        )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one prepared record, as the model reads it; found with a synthetic record."""
        schema = Schema.draft(self) if self.schema is None else self.schema
        prepared = self.prepare(schema.sample(1, torch.Generator().manual_seed(0)).inputs)
        if not isinstance(prepared, Tensor):
            raise DataError(
                f"a record of {self.name} has several inputs, so it has no single shape: {describe_inputs(prepared)}"
            )
        if len(prepared) != 1:
            raise DataError(f"prepare of {self.name} turned 1 record into {len(prepared)}; it must keep the first axis")
        return tuple(prepared.shape[1:])

    def split(self, agents: int, how: Partition, seed: int = 0) -> "AgentData":
        """Divide the training records among agents; the same seed gives the same division."""
        if isinstance(how, type) or not callable(how):
            raise DataError(f"how is {how!r}; give a partition such as ByClass(t=1.0), Dirichlet(alpha=0.5) or IID()")
        if not isinstance(seed, int) or seed < 0:
            raise DataError(f"seed is {seed!r}; it must be a whole number that is not negative")
        if not isinstance(agents, int | np.integer) or isinstance(agents, bool):
            raise DataError(f"agents is {agents!r}; it must be a whole number, such as 10")
        if not 1 <= agents <= len(self.train):
            raise DataError(
                f"cannot divide {len(self.train)} training records of {self.name} among {agents} agents; "
                f"between 1 and {len(self.train)} agents can each hold one"
            )
        parts = self._divide(how, agents, np.random.default_rng(seed))
        # A label must identify these records without revealing anything about them: public facts only.
        whole = "" if self.train.units is None else "/by unit"
        partition = f"{self.name}/{how}/seed {seed}/{agents} agents{whole}"
        return AgentData(
            dataset=self,
            indices=tuple(torch.from_numpy(part) for part in parts),
            owners=tuple(f"{partition}/agent {i}" for i in range(agents)),
            partition=partition,
        )

    def with_pool(self, count: int) -> "DataSet":
        """Return the data set with a pool of `count` public records: its own or, without one, validation records, which are then left out of scores."""
        if self.pool is not None:
            if (held := len(parts(self.pool)[0])) < count:
                raise DataError(f"{count} public records are to be labelled, but the pool of {self.name} has {held}")
            return replace(self, pool=mapped(lambda table: table[:count], self.pool))
        held = 0 if self.validation is None else len(self.validation)
        if self.validation is None or count >= held:
            raise DataError(
                f"{count} public records are to be labelled, but {self.name} has {held} validation records, some of which are needed to score "
                "models; ask about fewer"
            )
        order = torch.randperm(held, generator=torch.Generator().manual_seed(0))
        asked, scored = (rows.sort().values for rows in (order[:count], order[count:]))
        return replace(self, pool=self.validation.take(asked).inputs, validation=self.validation.take(scored))

    def _divide(self, how: Partition, agents: int, chance: np.random.Generator) -> list[np.ndarray]:
        """Divide records, or whole units by the target of their first record."""
        if self.train.units is None:
            return how(self.train.targets, self.classes, agents, chance)
        _, first, whose = np.unique(self.train.units.cpu().numpy(), return_index=True, return_inverse=True)
        if len(first) < agents:
            raise DataError(f"{self.name} has {len(first)} units, too few for {agents} agents to hold one each")
        parts = how(self.train.targets[torch.from_numpy(first)], self.classes, agents, chance)
        holder = np.full(len(first), -1, dtype=np.int64)
        for agent, units in enumerate(parts):
            if (holder[units] >= 0).any() or len(np.unique(units)) < len(units):
                raise DataError(f"{how} gives a unit to two agents; only one can hold it")
            holder[units] = agent
        return [np.flatnonzero(holder[whose] == agent) for agent in range(agents)]

    def _parts(self) -> list[tuple[str, Records]]:
        parts = (("training", self.train), ("validation", self.validation), ("test", self.test))
        return [(part, records) for part, records in parts if records is not None]


@dataclass(frozen=True, kw_only=True, eq=False)
class AgentData:
    """Who holds which training record. No record has two holders, and every agent holds at least one."""

    dataset: DataSet
    indices: tuple[Int64[Tensor, "held"], ...]
    """For each agent, the rows of `dataset.train` that it holds."""
    owners: tuple[str, ...]
    """For each agent, the name under which the ledger counts queries of its records."""
    partition: str = ""
    """How the data set was divided among these owners; by default made from their names. In another division, the same record has
    another owner."""
    local_units: bool = False
    """Whether each agent numbers its units itself, so that one person may have several numbers."""

    def __post_init__(self) -> None:
        if not self.partition:
            names = hashlib.sha256("\n".join(self.owners).encode()).hexdigest()
            object.__setattr__(self, "partition", f"{self.dataset.name}/owners {names[:12]}")
        if len(self.owners) != len(self.indices):
            raise DataError(f"{len(self.owners)} owners for {len(self.indices)} agents; name one for each")
        if len(set(self.owners)) != len(self.owners):
            twice = next(owner for owner in self.owners if self.owners.count(owner) > 1)
            raise DataError(f"two agents are called {twice!r}; the ledger needs a name for each")
        if wrong := [i for i, held in enumerate(self.indices) if held.dtype != torch.int64 or held.ndim != 1]:
            held = self.indices[wrong[0]]
            raise DataError(
                f"indices of agent {wrong[0]} are {held.dtype} of shape {tuple(held.shape)}; "
                "they must be int64 on one axis"
            )
        if empty := [i for i, size in enumerate(self.sizes) if size == 0]:
            shown = ", ".join(map(str, empty[:10])) + (", …" if len(empty) > 10 else "")
            raise DataError(
                f"{len(empty)} of {self.agents} agents hold no records (agents {shown}); "
                "use fewer agents or a more even partition"
            )
        self._check_indices()

    @staticmethod
    def from_parts(
        parts: Sequence[RecordsLike],
        *,
        name: str,
        validation: RecordsLike | None = None,
        test: RecordsLike | None = None,
        classes: int | None = None,
        prepare: Prepare = bytes_to_unit,
        schema: Schema | None = None,
        allow_missing: bool | float = False,
        owners: Sequence[str] | None = None,
    ) -> "AgentData":
        """Use records that are already divided, one part per agent; for the settings see `DataSet.from_records`.

        Parties with their own data should name themselves in `owners` and keep the name from run to run: the
        ledger adds up queries under one name.
        """
        if not isinstance(parts, list | tuple):
            raise DataError(f"parts is a {type(parts).__name__}; give a list with the records of each agent")
        if not parts:
            raise DataError(f"{name} has no parts; give the records of at least one agent")
        tables = [Records.of(part) for part in parts]
        if owners is None:
            owners = [f"{name}/{len(parts)} agents/agent {i}" for i in range(len(parts))]
        known = schema.classes if classes is None and isinstance(schema, Schema) else classes
        for agent, (table, owner) in enumerate(zip(tables, owners, strict=False)):
            if known is not None and is_labels(table.targets):
                check_range(f"targets of agent {agent} ({owner})", table.targets, known)
        if most_missing := share_of_missing(allow_missing):
            held = [find_missing(table) for table in tables]
            names = [f"agent {agent} ({owner})" for agent, owner in enumerate(owners)]
            check_share(name, most_missing, list(zip(names, held, strict=False)))
        data = DataSet.from_records(
            name=name,
            train=concatenate(tables),
            validation=validation,
            test=test,
            classes=classes,
            prepare=prepare,
            schema=schema,
            allow_missing=allow_missing,
        )
        rows = torch.split(torch.arange(len(data.train)), [len(table) for table in tables])
        local = data.train.units is not None and len(parts) > 1
        return AgentData(dataset=data, indices=rows, owners=tuple(owners), local_units=local)

    def __repr__(self) -> str:
        return self.described()

    def described(self, sizes: Sequence[int] | None = None, counted: str = "record") -> str:
        """Describe who holds how many records: the true numbers, the declared `sizes` instead, or none if these are empty.

        `counted` is what the sizes count, if not records.
        """
        # Who holds which record is private, and too long to read.
        numbers = self.sizes if sizes is None else sizes
        span = " to ".join(str(each) for each in sorted({min(numbers), max(numbers)})) if len(numbers) else ""
        held = f"with {span} {counted}s each, " if span else ""
        kind = f"{held}of {describe_inputs(self.dataset.train.inputs)}"
        return f"AgentData({self.partition!r}: {self.agents} agents {kind})"

    def only(self, agents: Sequence[int]) -> "AgentData":
        """Return the data of some of the agents, without others' records, for a process that hosts these."""
        if strangers := [agent for agent in agents if agent not in range(self.agents)]:
            raise DataError(f"there is no agent {strangers[0]}; they are numbered from 0 to {self.agents - 1}")
        held = [self.indices[agent] for agent in agents]
        rows = torch.split(torch.arange(sum(map(len, held))), [len(part) for part in held])
        own = replace(self.dataset, train=self.dataset.train.take(torch.cat(held)))
        owners = tuple(self.owners[agent] for agent in agents)
        return AgentData(
            dataset=own, indices=rows, owners=owners, partition=self.partition, local_units=self.local_units
        )

    def pooled(self) -> "AgentData":
        """Give all records to one agent, for a centrally trained baseline."""
        if self.local_units:
            raise DataError(
                "each part numbers its units by itself, and one person may be in several parts: pooled, that person would count as several. "
                "Put all records into one DataSet.from_records(..., units=...)"
            )
        rows = torch.cat(self.indices).sort().values
        name = f"{self.dataset.name}/pooled"
        return AgentData(dataset=self.dataset, indices=(rows,), owners=(name,), partition=name)

    @property
    def agents(self) -> int:
        """The number of agents."""
        return len(self.indices)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of records of each agent."""
        return tuple(len(held) for held in self.indices)

    @property
    def units_held(self) -> tuple[int, ...] | None:
        """The number of units of each agent; None if the data has no units."""
        units = self.dataset.train.units
        return None if units is None else tuple(len(units[held].unique()) for held in self.indices)

    @property
    def counts(self) -> Int64[np.ndarray, "agents classes"]:
        """The number of records of each class that each agent holds."""
        classes = self.dataset.classes
        if classes is None:
            raise DataError(f"{self.dataset.name} has no classes to count")
        counts = [torch.bincount(self.dataset.train.targets[held], minlength=classes) for held in self.indices]
        return torch.stack(counts).numpy()

    def _check_indices(self) -> None:
        rows, records = torch.cat(self.indices), len(self.dataset.train)
        outside = rows[(rows < 0) | (rows >= records)]
        if len(outside):
            raise DataError(f"index {int(outside[0])} points at no record: {self.dataset.name} has {records}")
        holders = torch.bincount(rows, minlength=records)
        if int(holders.max()) > 1:
            row = int(holders.argmax())
            who = [i for i, held in enumerate(self.indices) for _ in range(int((held == row).sum()))]
            raise DataError(f"record {row} is held {len(who)} times (by agents {who}); it can be held only once")


def _shapes(inputs: Inputs) -> Any:
    """Return the shapes of one record's inputs."""
    return mapped(lambda table: tuple(table.shape[1:]), inputs)
