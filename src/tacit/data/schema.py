"""The public declaration of what a record may be, and the check that training records fit it.

A schema is public and stored with a run. Whether records fit it is private: the check runs where they are held, before
anything is queried or sent, and its error is for their holder only.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from tacit.data.fields import Field, Misfits
from tacit.data.inputs import Several, describe_inputs, mapped, names, parts, same_structure
from tacit.data.records import Records
from tacit.errors import DataError

if TYPE_CHECKING:
    from tacit.data.datasets import AgentData, DataSet

_SHOWN = 3  # agents named in one message


@dataclass(frozen=True, kw_only=True)
class Schema:
    """What the inputs and targets of every record may be, before `prepare`. Public."""

    inputs: Several[Field]
    """For a model with several inputs: a tuple or dictionary of fields, like the inputs."""
    targets: Field

    def __post_init__(self) -> None:
        if isinstance(self.inputs, dict):
            object.__setattr__(self, "inputs", {name: self.inputs[name] for name in sorted(self.inputs)})
        for name, field in self._fields():
            if not isinstance(field, Field):
                raise DataError(f"{name} of a schema is a {type(field).__name__}; give a Field(shape=..., dtype=...)")

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @staticmethod
    def draft(data: "DataSet", model: nn.Module | None = None) -> "Schema":
        """Write down what is public: shapes, types, classes, and the rows of an embedding that reads the inputs.

        No training value is read, and no range is guessed from records: floats must be finite, nothing more.
        """
        from tacit.data.drafting import draft, narrowed  # which makes schemas

        return narrowed(draft(data), data, model)

    def __str__(self) -> str:
        return "; ".join(f"{name}: {field}" for name, field in self._fields())

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain data for JSON or TOML."""
        inputs: Any = mapped(Field.to_dict, self.inputs)
        if isinstance(self.inputs, dict):
            inputs = {"named": inputs}
        elif isinstance(self.inputs, tuple):
            inputs = list(inputs)
        return {"inputs": inputs, "targets": self.targets.to_dict()}

    @staticmethod
    def of(plain: Mapping[str, Any]) -> "Schema":
        """Read what `to_dict` wrote."""
        if not isinstance(plain, Mapping) or plain.keys() != {"inputs", "targets"}:
            raise DataError(f"a schema has inputs and targets, not {plain!r}")
        inputs = plain["inputs"]
        if isinstance(inputs, list):
            inputs = tuple(inputs)
        elif isinstance(inputs, Mapping) and inputs.keys() == {"named"} and isinstance(inputs["named"], Mapping):
            inputs = dict(inputs["named"])
        elif isinstance(inputs, Mapping):
            return Schema(inputs=Field.of(inputs), targets=Field.of(plain["targets"]))
        return Schema(inputs=mapped(Field.of, inputs), targets=Field.of(plain["targets"]))

    @property
    def is_finite(self) -> bool:
        """Whether no number may be NaN or infinite."""
        return all(field.finite for _, field in self._fields())

    @property
    def fingerprint(self) -> str:
        """Identifies this schema, the same on every machine."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def classes(self) -> int | None:
        """How many classes the targets name, if they are whole numbers with a declared maximum; otherwise None."""
        highest = self.targets.high
        if highest is None or highest < 0 or self.targets.shape or not self.targets.is_integer:
            return None
        return int(highest) + 1

    def check_kind(self, records: Records, name: str) -> None:
        """Refuse a table of another shape or type; these are public facts."""
        if not same_structure(records.inputs, self.inputs):
            raise DataError(
                f"inputs of {name} are {describe_inputs(records.inputs)}, but the schema says {self}; make them match"
            )
        for part, field, table in self._columns(records):
            if (tuple(table.shape[1:]), table.dtype) != (field.shape, field.dtype):
                kind = f"{str(table.dtype).removeprefix('torch.')} of shape {tuple(table.shape[1:])}"
                raise DataError(f"{part} of {name} are {kind}, but the schema says {field}; make them match")

    def fits(self, records: Records) -> Bool[Tensor, "records"]:
        """Return which records fit. For private records the answer is private."""
        self.check_kind(records, "these records")
        fit = torch.ones(len(records), dtype=torch.bool, device=records.targets.device)
        for rows in self.misfits(records).values():
            fit[rows.to(fit.device)] = False
        return fit

    def misfits(self, records: Records) -> Misfits:
        """Return the rows that do not fit, by what is wrong with them."""
        return {
            f"{name} {words}": rows
            for name, field, table in self._columns(records)
            for words, rows in field.misfits(table).items()
        }

    def sample(self, count: int, generator: torch.Generator) -> Records:
        """Draw made-up records that fit."""
        inputs = mapped(lambda field: field.sample(count, generator), self.inputs)
        return Records(inputs, self.targets.sample(count, generator))

    def _fields(self) -> list[tuple[str, Field]]:
        return [*zip(names(self.inputs), parts(self.inputs), strict=True), ("targets", self.targets)]

    def _columns(self, records: Records) -> list[tuple[str, Field, Tensor]]:
        """Return every field with its name and the table that it is about."""
        tables = [*parts(records.inputs), records.targets]
        return [(name, field, table) for (name, field), table in zip(self._fields(), tables, strict=True)]


_checked: WeakKeyDictionary[Records, dict[tuple[Schema, tuple[int, ...]], Misfits]] = WeakKeyDictionary()


def check_records(data: "AgentData", schema: Schema) -> None:
    """Refuse records that do not fit. Held-out ones are public, and are counted; for training records the message only says what is wrong.

    A table is read once per schema, unless torch knows that it has changed.
    """
    for part, held_out in (("validation", data.dataset.validation), ("test", data.dataset.test)):
        if held_out is not None:
            schema.check_kind(held_out, f"the {part} set")
            if wrong := _misfits(held_out, schema):
                raise DataError(f"the {part} set does not fit its schema: {_counted(wrong)}")
    schema.check_kind(data.dataset.train, "the training set")
    _check_missing(data, schema)
    wrong = _misfits(data.dataset.train, schema)
    if not wrong:
        return
    bad = torch.zeros(len(data.dataset.train), dtype=torch.bool)
    bad[torch.cat(list(wrong.values())).cpu()] = True
    holders = [agent for agent, rows in enumerate(data.indices) if bool(bad[rows.cpu()].any())]
    if not holders:  # rows that nobody holds are never read
        return
    lines = [f"agent {agent} ({data.owners[agent]}): {_held(wrong, data.indices[agent])}" for agent in holders[:_SHOWN]]
    if len(holders) > _SHOWN:
        lines.append(f"and {len(holders) - _SHOWN} more agents")
    raise DataError(
        f"training records do not fit the schema of {data.dataset.name}. {'; '.join(lines)}. Drop them (schema.fits(records) "
        f"returns which fit), correct them, or declare a wider range with schema={_missing(wrong)}. This message is about private "
        "records: do not forward it"
    )


def _check_missing(data: "AgentData", schema: Schema) -> None:
    """Refuse an agent if more of its records hold NaN or infinity than `most_missing` allows."""
    if data.dataset.most_missing >= 1 or schema.is_finite:
        return
    missing = find_missing(data.dataset.train)
    check_share(
        data.dataset.name,
        data.dataset.most_missing,
        [(f"agent {agent} ({data.owners[agent]})", missing[rows.cpu()]) for agent, rows in enumerate(data.indices)],
    )


def find_missing(records: Records) -> Bool[Tensor, "records"]:
    """Return which records hold NaN or infinity. For private records the answer is private."""
    whole = Schema(inputs=mapped(Field.like, records.inputs), targets=Field.like(records.targets))
    found = [rows.cpu() for rows in _misfits(records, whole).values()]
    missing = torch.zeros(len(records), dtype=torch.bool)
    missing[torch.cat(found) if found else []] = True
    return missing


def check_share(name: str, most: float, holders: Sequence[tuple[str, Bool[Tensor, "held"]]]) -> None:
    """Refuse a holder if more than this share of its records, marked in a column, hold NaN or infinity."""
    beyond = [whose for whose, missing in holders if int(missing.sum()) > most * len(missing)]
    if beyond:
        more = f"; and {len(beyond) - _SHOWN} more agents" if len(beyond) > _SHOWN else ""
        raise DataError(
            f"more records of {name} hold NaN or infinity than the share of {most:g} that allow_missing lets in: "
            f"{'; '.join(beyond[:_SHOWN])}{more}. Drop or correct them, or let in more. This message is about private records: do "
            "not forward it"
        )


def _misfits(records: Records, schema: Schema) -> Misfits:
    """Check a table, or return the cached result, which lives as long as the table."""
    tables = (*parts(records.inputs), records.targets)
    versions = tuple(0 if table.is_inference() else table._version for table in tables)
    seen, key = _checked.setdefault(records, {}), (schema, versions)
    if key not in seen:
        seen[key] = schema.misfits(records)
    return seen[key]


def _held(wrong: Misfits, held: Tensor) -> str:
    """Say what is wrong with the records that an agent holds, but not with how many of them: that is private."""
    return ", ".join(words for words, rows in wrong.items() if bool(torch.isin(rows.cpu(), held.cpu()).any()))


def _missing(wrong: Misfits) -> str:
    """Describe how to allow NaN, if there is any."""
    if not any(words.endswith("that are not finite") for words in wrong):
        return ""
    return "; allow_missing=0.05 lets in a share of what is not finite, which training mostly counts as zero"


def _counted(wrong: Misfits) -> str:
    return ", ".join(f"{len(rows)} with {words}" for words, rows in wrong.items())
