"""What one tensor of a record may be: its shape, its type and, where known, its range.

A field finds the rows of a table that do not fit it, and draws synthetic rows that do. What it finds in a private table is
private too and stays with the table's owner.
"""

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int64, Shaped
from torch import Tensor

from tacit.errors import DataError, choose

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_COMPLEX = (torch.complex64, torch.complex128)
_NAMES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.bool, *_INTEGERS, *_FLOATS, *_COMPLEX)}
_AT_ONCE = 1 << 22  # numbers checked at once, so that a large table needs no copy
_WIDE = 1 << 52  # above it float64 cannot represent every integer
Misfits = dict[str, Int64[Tensor, "rows"]]


@dataclass(frozen=True, kw_only=True)
class Field:
    """What the input or the target of one record may be, before `prepare`.

    Bounds are inclusive, optional, and rounded to the field's type. Floats must be finite unless `finite=False`; bounds then
    apply to every value except NaN. Bytes always lie between 0 and 255.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    low: float | None = None
    high: float | None = None
    finite: bool = True

    @classmethod
    def like(cls, table: Tensor) -> "Field":
        """Return what the rows of a table are: their shape and type, without a range."""
        return cls(shape=tuple(table.shape[1:]), dtype=table.dtype)

    def __post_init__(self) -> None:
        try:
            shape = tuple(operator.index(side) for side in self.shape)
        except TypeError:
            shape = (-1,)
        if min(shape, default=0) < 0:
            raise DataError(f"shape is {self.shape!r}; give the whole numbers of one record's shape, () for a number")
        if self.dtype not in _NAMES.values():
            raise DataError(f"dtype is {self.dtype!r}; it must be one of torch's {', '.join(_NAMES)}")
        if not isinstance(self.finite, bool):
            raise DataError(f"finite is {self.finite!r}; it must be True or False")
        if not self.finite and self.dtype not in (*_FLOATS, *_COMPLEX):
            raise DataError(f"finite=False has no effect on {self._type}, which has neither NaN nor infinity")
        object.__setattr__(self, "shape", shape)
        for name, default in (("low", 0), ("high", 255)):
            bound = getattr(self, name)
            if bound is None and self.dtype == torch.uint8:
                object.__setattr__(self, name, default)
            elif bound is not None:
                object.__setattr__(self, name, self._bound(name, bound))
        if self.low is not None and self.high is not None and self.low > self.high:
            raise DataError(f"low is {self.low} and high is {self.high}; no value lies between them")

    @property
    def is_integer(self) -> bool:
        """Whether values are whole numbers by their type."""
        return self.dtype in _INTEGERS

    def __str__(self) -> str:
        shape = f" {list(self.shape)}" if self.shape else ""
        if self.low is not None and self.high is not None:
            range = f", {self.low} to {self.high}"
        elif self.low is not None or self.high is not None:
            range = f", at least {self.low}" if self.high is None else f", at most {self.high}"
        else:
            range = ""
        if self.dtype in (*_FLOATS, *_COMPLEX):
            range += ", finite" if self.finite else ", NaN and infinity allowed"
        return f"{self._type}{shape}{range}"

    def to_dict(self) -> dict[str, Any]:
        """Return the declared parts of the field as plain data for JSON or TOML."""
        plain = {"shape": list(self.shape), "dtype": self._type, "low": self.low, "high": self.high}
        return {key: value for key, value in plain.items() if value is not None} | {"finite": self.finite}

    @staticmethod
    def of(plain: Mapping[str, Any]) -> "Field":
        """Read what `to_dict` wrote."""
        if not isinstance(plain, Mapping) or not {"shape", "dtype"} <= plain.keys():
            raise DataError(f"a field of a schema is {plain!r}; it needs at least shape and dtype")
        for key in plain:
            choose("key of a schema's field", key, ("shape", "dtype", "low", "high", "finite"))
        dtype = _NAMES[choose("dtype", plain["dtype"], _NAMES)]
        return Field(**{**plain, "dtype": dtype})

    def within(self, low: int, high: int, reason: str) -> "Field":
        """Return the field with these bounds where it has none; declared bounds that are wider are an error."""
        if (self.low is not None and self.low < low) or (self.high is not None and self.high > high):
            raise DataError(f"the schema allows {self}, but {reason}; declare {low} to {high}, or less")
        return Field(
            shape=self.shape,
            dtype=self.dtype,
            low=low if self.low is None else self.low,
            high=high if self.high is None else self.high,
            finite=self.finite,
        )

    def misfits(self, table: Shaped[Tensor, "records *shape"]) -> Misfits:
        """Return the rows that do not fit, by what is wrong with them; a row may be wrong in several ways."""
        found: dict[str, list[Tensor]] = {}
        anything = (
            self.low is None and self.high is None and (self.dtype not in (*_FLOATS, *_COMPLEX) or not self.finite)
        )
        if table.numel() == 0 or anything or (self.low, self.high, self.dtype) == (0, 255, torch.uint8):
            return {}
        rows = max(1, _AT_ONCE // math.prod(self.shape))
        for start in range(0, len(table), rows):
            part = _comparable(table[start : start + rows].detach())
            if not self._holds_all(part):
                for words, wrong in self._wrong(part).items():
                    which = torch.nonzero(wrong.reshape(len(part), -1).any(dim=1))[:, 0]
                    if len(which):
                        found.setdefault(words, []).append(which + start)
        return {words: torch.cat(parts) for words, parts in found.items()}

    def sample(self, count: int, generator: torch.Generator) -> Shaped[Tensor, "count *shape"]:
        """Draw rows that fit: whole numbers spread over the range, 0 and 1 without one; floats normal, clipped."""
        shape = (count, *self.shape)
        if self.dtype in _COMPLEX:
            return torch.randn(shape, generator=generator, dtype=self.dtype)
        if self.dtype in _FLOATS:
            return self._sample_floats(shape, generator)
        low, high = self._finite_range() if self.is_integer else (0, 1)
        return _spread(shape, low, high, generator).to(self.dtype)

    @property
    def _type(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    def _bound(self, name: str, bound: Any) -> float:
        """Return a declared bound in the field's type, or raise."""
        if not (self.is_integer or self.dtype in _FLOATS):
            raise DataError(f"{name} is {bound!r}; {self._type} has no order, so leave {name} out")
        if self.is_integer:
            limits = torch.iinfo(self.dtype)
            if isinstance(bound, bool) or not hasattr(bound, "__index__"):
                raise DataError(f"{name} is {bound!r}; for {self._type} it must be a whole number")
            if not limits.min <= operator.index(bound) <= limits.max:
                raise DataError(f"{name} is {bound!r}; {self._type} holds {limits.min} to {limits.max}")
            return operator.index(bound)
        if (
            isinstance(bound, bool)
            or not isinstance(bound, int | float)
            or not abs(bound) <= torch.finfo(self.dtype).max
        ):
            raise DataError(
                f"{name} is {bound!r}; it must be a number that {self._type} can hold. Leave it out for none"
            )
        # Rounded once, here, so that records and bounds are compared in one type. −0 becomes 0.
        return torch.tensor(bound, dtype=torch.float64).to(self.dtype).item() + 0.0

    def _holds_all(self, part: Tensor) -> bool:
        """Return whether all of a part fits, from its extremes alone: one pass, without allocating."""
        if not self.finite:
            return False
        least, most = (value.item() for value in torch.aminmax(part))  # NaN anywhere makes both NaN
        lowest = -math.inf if self.low is None else self.low
        highest = math.inf if self.high is None else self.high
        return math.isfinite(least) and math.isfinite(most) and least >= lowest and most <= highest

    def _wrong(self, part: Tensor) -> dict[str, Tensor]:
        wrong = {"that are not finite": ~torch.isfinite(part)} if self.finite else {}
        if self.low is not None:
            wrong[f"below {self.low}"] = (part < self.low) & ~wrong.get("that are not finite", torch.tensor(False))
        if self.high is not None:
            wrong[f"above {self.high}"] = (part > self.high) & ~wrong.get("that are not finite", torch.tensor(False))
        return wrong

    def _finite_range(self) -> tuple[int, int]:
        """Return bounds for drawing whole numbers: a missing one is 0 or 1, or next to the other bound."""
        limits = torch.iinfo(self.dtype)
        low, high = (None if bound is None else int(bound) for bound in (self.low, self.high))
        if low is None:
            low = max(limits.min, 0 if high is None else min(0, high - 1))
        if high is None:
            high = min(limits.max, max(1, low + 1))
        return low, high

    def _sample_floats(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        limit = torch.finfo(self.dtype).max
        low = -limit if self.low is None else self.low
        high = limit if self.high is None else self.high
        # Around 0, or the bound nearest to it; wide enough that numbers of this type differ there.
        centre = min(max(0.0, low), high)
        width = min(max(1.0, abs(centre) / 8), high / 2 - low / 2 if low < high else 0.0)
        drawn = centre + width * torch.randn(shape, generator=generator, dtype=torch.float64)
        return drawn.clamp(low, high).to(self.dtype)


def _comparable(part: Tensor) -> Tensor:
    """Return a part of a table in a type that can be compared."""
    if part.is_complex():
        return torch.view_as_real(part.resolve_conj())
    return part.long() if part.dtype in (torch.uint16, torch.uint32) else part


def _spread(shape: tuple[int, ...], low: int, high: int, generator: torch.Generator) -> Int64[Tensor, "*shape"]:
    """Draw whole numbers from a range, each row from another part of it, so that few rows cover it."""
    count, wide = shape[0], high - low >= _WIDE
    steps = 4 if wide else high - low + 1
    order = torch.rand(shape, generator=generator).argsort(dim=0)
    within = torch.rand(shape, generator=generator, dtype=torch.float64)
    drawn = ((order + within) * (steps / max(1, count))).long().clamp(max=steps - 1)
    if not wide:
        return drawn + low
    quarter, rest = divmod(high - low, 4)
    return low + drawn * quarter + torch.randint(0, quarter + rest + 1, shape, generator=generator)
