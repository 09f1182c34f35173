"""Public preprocessing, applied to records after they were gathered.

A preparation treats every record alike and alone: its constants are published or agreed on, never measured on
the private data, so that a record's prepared value depends on no other record. `apart` makes that so: it shows a
preparation one record at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.func import vmap

from tacit.data.guards import Guard, chance_state, restore_chance
from tacit.data.products import EvenProducts
from tacit.errors import DataError

Prepare = Callable[[Tensor], Tensor]


def bytes_to_unit(inputs: Shaped[Tensor, "records *shape"]) -> Shaped[Tensor, "records *shape"]:
    """Map bytes to float32 in [0, 1]; leave every other type as it is."""
    return inputs.to(torch.float32) / 255 if inputs.dtype == torch.uint8 else inputs


@dataclass(frozen=True, kw_only=True)
class Normalise:
    """(x / top − mean) / std, channel by channel, with constants that were published for the data set."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    top: float = 255.0

    def __call__(
        self, inputs: Shaped[Tensor, "records channels height width"]
    ) -> Float[Tensor, "records channels height width"]:
        """Return `inputs` as normalised float32."""
        std = torch.tensor(self.std, device=inputs.device).view(-1, 1, 1)
        mean = torch.tensor(self.mean, device=inputs.device).view(-1, 1, 1)
        return torch.mul(inputs, 1 / (self.top * std)).sub_(mean / std)


@dataclass(frozen=True)
class Apart:
    """The preparation of a batch that shows `prepare` each record by itself, as a batch of one; see `apart`."""

    prepare: Prepare
    in_loop: bool = False

    def __call__(self, inputs: Shaped[Tensor, "records *shape"]) -> Tensor:
        """Return all records, prepared."""
        if self.prepare is bytes_to_unit or type(self.prepare) is Normalise:
            return self.prepare(inputs)  # number by number, each operation rounded once: wherever it stands
        if self.in_loop:
            return _stacked([self._alone(record) for record in inputs])
        with Guard() as guard, EvenProducts() as products:
            prepared = vmap(self._one)(inputs)
        guard.check()
        if strange := guard.strange | products.strange:
            raise NotImplementedError(
                f"{', '.join(sorted(strange))} may not keep records apart"
            )  # `apart` takes a loop
        return prepared

    def _alone(self, record: Tensor) -> Tensor:
        """Prepare a record that lies in memory as every other does, and leave no trace of it in a generator."""
        before = chance_state()
        try:
            prepared = self._one(record.clone())
        finally:
            if drew := chance_state() != before:
                restore_chance(before)
        if drew:
            raise DataError("prepare draws random numbers for some records")
        return prepared

    def _one(self, record: Tensor) -> Tensor:
        prepared = self.prepare(record[None])
        if len(prepared) != 1:
            raise DataError(f"prepare turned 1 record into {len(prepared)}; it must keep the first axis")
        return prepared[0]


def _stacked(records: list[Tensor]) -> Tensor:
    """Return records of one shape and type as a batch; torch would turn one type into another where they differ."""
    if len({(each.shape, each.dtype) for each in records}) > 1:
        raise DataError("prepare gives records of several shapes or types")
    return torch.stack(records)


def apart(prepare: Prepare, like: Shaped[Tensor, "records *shape"]) -> Apart:
    """Return the preparation record by record: a `vmap`, or, for code that no `vmap` can take, a loop.

    Which of the two follows from the shape and type of `like`, never from what it holds.
    """
    batched = Apart(prepare)
    try:
        batched(torch.zeros(2, *like.shape[1:], dtype=like.dtype, device=like.device))
    except DataError:
        raise
    except Exception:  # numpy inside, a branch on values, anything that needs real numbers
        return Apart(prepare, in_loop=True)
    return batched


def check_apart(prepare: Prepare, public: Shaped[Tensor, "records *shape"]) -> None:
    """Refuse a preparation that mixes records or draws by chance; `public` holds at least two public records."""
    alone, before = apart(prepare, public), chance_state()
    first, *again = (alone(public) for _ in range(3))
    alike = all(torch.equal(first.nan_to_num(nan=-1), each.nan_to_num(nan=-1)) for each in again)
    if not alike or chance_state() != before:
        raise DataError(
            "prepare gives another value for the same record the second time: it draws random numbers or keeps something. "
            "A record's contribution must depend on that record alone; see tacit.models.Views for augmentation"
        )
    for batch, known in ((public, first), (public.flip(0), first.flip(0)), (public[:1], first[:1])):
        if not _same(prepare(batch), known):
            raise DataError(
                "prepare mixes records: a record's value changes with the others in its batch or its place there. Use "
                "published constants, such as tacit.data.Normalise(mean=..., std=...)"
            )


def _same(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True)
