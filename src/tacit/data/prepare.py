"""Public preprocessing, applied to records after they are gathered.

It treats every record alike and alone: its constants are published or agreed on, never measured on the private
data, so that a record's prepared value depends on no other record. `isolate` guarantees that: it passes one record
at a time.
"""

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vmap

from tacit.data.guards import Guard, chance_state, restore_chance
from tacit.data.inputs import Inputs, mapped, parts, same_structure, stack_records
from tacit.data.products import EvenProducts
from tacit.errors import DataError

# Bytes that a preparation may hold to be copied for a test: it may be the method of a whole data set.
_MOST_COPIED = 2**26
Prepare = Callable[[Any], Any]
"""Maps the inputs of a batch to what the model reads: a tensor, or a tuple or dictionary of some, both."""


def bytes_to_unit(inputs: Inputs) -> Inputs:
    """Map bytes to float32 in [0, 1]; leave every other type as it is."""
    found: Inputs = mapped(lambda table: table.to(torch.float32) / 255 if table.dtype == torch.uint8 else table, inputs)
    return found


@dataclass(frozen=True, kw_only=True)
class Normalise:
    """(x / top − mean) / std, channel by channel, with constants that were published for the data set."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    top: float = 255.0

    def __call__(self, inputs: Inputs) -> Float[Tensor, "records channels height width"]:
        """Return images, [records, channels, height, width], as normalised float32."""
        if not isinstance(inputs, Tensor):
            raise DataError(
                "Normalise reads one tensor of images, but these records have several inputs; call it on one of them in a prepare "
                "of your own"
            )
        std = torch.tensor(self.std, device=inputs.device).view(-1, 1, 1)
        mean = torch.tensor(self.mean, device=inputs.device).view(-1, 1, 1)
        return torch.mul(inputs, 1 / (self.top * std)).sub_(mean / std)


@dataclass(frozen=True)
class Isolated:
    """The preparation of a batch that shows `prepare` each record by itself, as a batch of one; see `isolate`."""

    prepare: Prepare
    in_loop: bool = False

    def __call__(self, inputs: Inputs) -> Inputs:
        """Return all records, prepared."""
        if self.prepare is bytes_to_unit or type(self.prepare) is Normalise:
            return self.prepare(inputs)  # elementwise, each operation rounded once: the same at every place
        if self.in_loop:
            count = len(parts(inputs)[0])
            return _stacked([self._alone(mapped(itemgetter(number), inputs)) for number in range(count)])
        with Guard() as guard, EvenProducts() as products:
            prepared: Inputs = vmap(self._one)(inputs)
        guard.check()
        if strange := guard.strange | products.strange:
            raise NotImplementedError(
                f"{', '.join(sorted(strange))} may not keep records apart"
            )  # `isolate` then uses a loop
        return prepared

    def _alone(self, record: Inputs) -> Inputs:
        """Prepare one record, laid out in memory like every other, and leave no trace of it in a generator."""
        before = chance_state()
        try:
            prepared = self._one(mapped(Tensor.clone, record))
        finally:
            if drew := chance_state() != before:
                restore_chance(before)
        if drew:
            raise DataError("prepare draws random numbers for some records")
        return prepared

    def _one(self, record: Inputs) -> Inputs:
        prepared = self.prepare(mapped(lambda tensor: tensor[None], record))
        for tensor in parts(prepared):
            if not isinstance(tensor, Tensor):
                raise DataError(
                    f"prepare returns a {type(tensor).__name__}; it must return tensors, like those it is given"
                )
            if len(tensor) != 1:
                raise DataError(f"prepare turned 1 record into {len(tensor)}; it must keep the first axis")
        found: Inputs = mapped(itemgetter(0), prepared)
        return found


def _stacked(records: list[Inputs]) -> Inputs:
    """Return records of one shape and type as a batch; torch would convert differing types silently."""
    kinds = [mapped(lambda tensor: (tensor.shape, tensor.dtype), record) for record in records]
    if any(kind != kinds[0] for kind in kinds):
        raise DataError("prepare gives records of several shapes or types")
    return stack_records(records)


def isolate(prepare: Prepare, like: Inputs) -> Isolated:
    """Return the preparation record by record: a `vmap` or, for code that does not work under `vmap`, a loop.

    Which of the two depends on the shape and type of `like`, never on its values.
    """
    batched = Isolated(prepare)
    try:
        batched(mapped(lambda table: table.new_zeros(2, *table.shape[1:]), like))
    except DataError:
        raise
    except Exception:  # numpy inside, a branch on values, anything that needs actual values
        return Isolated(prepare, in_loop=True)
    return batched


def check_isolated(prepare: Prepare, public: Inputs) -> None:
    """Refuse a preparation that mixes records or is random; `public` holds at least two public records."""
    untouched = _copied(prepare)
    alone, before = isolate(prepare, public), chance_state()
    first, *again = (alone(public) for _ in range(3))
    changed = not all(_equal(first, other) for other in again) or chance_state() != before
    # Under `vmap` nothing is seen that could be remembered: only a loop shows actual values.
    if changed or (alone.in_loop and untouched is not None and _remembers(untouched, public, first)):
        raise DataError(
            "prepare returns another value for the same record the second time: it draws random numbers or keeps state. "
            "A record's contribution must depend on that record alone; see tacit.models.Views for augmentation"
        )
    changes: tuple[Callable[[Tensor], Tensor], ...] = (Tensor.clone, lambda table: table.flip(0), itemgetter(slice(1)))
    for change in changes:
        if not _same(prepare(mapped(change, public)), mapped(change, first)):
            raise DataError(
                "prepare mixes records: a record's value changes with the others in its batch or its place there. Use "
                "published constants, such as tacit.data.Normalise(mean=..., std=...)"
            )


def _copied(prepare: Prepare) -> Prepare | None:
    """Return a copy with a state of its own, or None if there is none to be had, or if it would be large."""
    held = getattr(getattr(prepare, "__self__", prepare), "__dict__", {}).values()
    if sum(getattr(each, "nbytes", None) or sys.getsizeof(each) for each in held) > _MOST_COPIED:
        return None
    try:
        return copy.deepcopy(prepare)
    except Exception:  # what it holds cannot be copied
        return None


def _remembers(prepare: Prepare, public: Inputs, together: Inputs) -> bool:
    """Say whether a preparation that has seen nothing yet gives a record another value than one that saw the others before it.

    Repeating it shows less: a largest number so far stays the same from the second time on.
    """
    for number in range(len(parts(public)[0])):
        own = mapped(itemgetter(slice(number, number + 1)), public)
        after_others = mapped(itemgetter(slice(number, number + 1)), together)
        if not _same(isolate(copy.deepcopy(prepare), public)(own), after_others):
            return True
    return False


def _equal(one: Inputs, other: Inputs) -> bool:
    return same_structure(one, other) and all(
        torch.equal(ours.nan_to_num(nan=-1), theirs.nan_to_num(nan=-1))
        for ours, theirs in zip(parts(one), parts(other), strict=True)
    )


def _same(one: Inputs, other: Inputs) -> bool:
    return same_structure(one, other) and all(map(close, parts(one), parts(other)))


def close(one: Tensor, other: Tensor) -> bool:
    """Say whether two results are the same up to the order of additions."""
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True)
