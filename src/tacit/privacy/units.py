"""Who is protected: a record, or a unit that several records belong to, such as a patient.

A unit is sampled as a whole and counts as one vector: the sum of its records' vectors, clipped like any other. At most `most` of its
records take part in a query, chosen by the secret source if it has more, so that every unit has the same public shape: its records
side by side, and which places are filled. Everything else (lots, clipping, noise, accounting) is as for records.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.func import vmap

from tacit.data.inputs import Inputs
from tacit.errors import DataError, PrivacyError, refuse_misspelt
from tacit.models.functional import FlatModel
from tacit.privacy.gradients.clipping import PerSample, Sample
from tacit.privacy.mechanisms import unit_in
from tacit.privacy.randomness import Stream

Rows = npt.NDArray[np.int64]


@refuse_misspelt
@dataclass(frozen=True)
class Unit:
    """Records with the same number in the data's `units` column are protected together, as one `name`.

    most: the largest number of a unit's records in one query. Public; a unit may have more.
    """

    name: str
    most: int

    def __post_init__(self) -> None:
        if type(self.name) is not str or type(self.most) is not int:
            raise PrivacyError(
                f"unit is {self.name!r} with at most {self.most!r} records; give a name and a whole number"
            )
        unit_in(str(self))

    def __str__(self) -> str:
        return f"{self.name}:{self.most}"

    @staticmethod
    def of(text: str) -> "Unit":
        """Parse what `str` writes, as in patient:8."""
        return Unit(*unit_in(text))


class AgentUnits:
    """The units of one agent: which rows of the table belong to each."""

    def __init__(self, units: Int[Tensor, " records"], rows: Rows) -> None:
        numbers = units.cpu().numpy()[rows]
        order = np.argsort(numbers, kind="stable")
        self._rows = rows[order]
        self.numbers, self._starts, self._sizes = np.unique(numbers[order], return_index=True, return_counts=True)

    def __len__(self) -> int:
        return len(self._starts)

    def members(self, stream: Stream, chosen: Rows, most: int) -> Int[np.ndarray, "chosen most"]:
        """Return the rows of the chosen units, side by side, -1 where a unit has fewer.

        If a unit has more than `most`, those with the smallest random words take part. Every row has a word, so the choice for one
        unit does not depend on another.
        """
        words = stream.words(len(self._rows)) if int(self._sizes.max(initial=0)) > most else None
        members = np.full((len(chosen), most), -1, dtype=np.int64)
        for place, unit in enumerate(chosen):
            start, size = self._starts[unit], self._sizes[unit]
            rows = self._rows[start : start + size]
            if size > most:
                assert words is not None
                rows = rows[np.sort(np.argsort(words[start : start + size], kind="stable")[:most])]
            members[place, : len(rows)] = rows
        return members


class UnitModel(FlatModel):
    """A model whose records are units. The loss of a unit is the sum of its records'.

    Inputs are side by side, and the last number of every target says whether its place is filled; see `Lot`.
    """

    def __init__(self, model: FlatModel, unit: Unit, target_shape: Sequence[int]) -> None:
        super().__init__(model.training_module, model.loss)
        self.named, self._one, self._target_shape = unit.name, model, tuple(target_shape)

    def loss_of_one(
        self, theta: Float[Tensor, " params"], input: Inputs, target: Tensor, *, training: bool = True
    ) -> Float[Tensor, ""]:
        """Return the sum of the losses of a unit's records; the model sees each as a batch of one."""
        targets, present = self._unpack(target)
        losses = vmap(lambda one, label: self._one.loss_of_one(theta, one, label, training=training))(input, targets)
        return torch.where(present, losses, 0).sum()

    def losses(
        self, theta: Float[Tensor, " params"], inputs: Inputs, targets: Tensor, *, training: bool = False
    ) -> Float[Tensor, " records"]:
        """Return one loss per unit of a batch."""
        return vmap(lambda one, target: self.loss_of_one(theta, one, target, training=training))(inputs, targets)

    def whole(self, per_sample: PerSample) -> PerSample:
        """Return the sum of a per-sample function over a unit's records."""

        def summed(unit: Sample, *public: Tensor) -> Tensor:
            targets, present = self._unpack(unit.target)
            values = vmap(lambda one, label: per_sample(Sample(self._one, one, label), *public))(unit.input, targets)
            return torch.where(present[:, None], values, 0).sum(0)

        return summed

    def _unpack(self, target: Shaped[Tensor, "most numbers"]) -> tuple[Tensor, Tensor]:
        return target[:, :-1].reshape(-1, *self._target_shape), target[:, -1] > 0


def require_units(units: Int[Tensor, " records"] | None, unit: Unit, name: str) -> Int[Tensor, " records"]:
    """Return the column of units, or raise if there is none."""
    if units is None:
        raise DataError(
            f"privacy is per {unit.name}, but {name} does not say which records belong to which; give units=, a column of numbers, "
            "with the records"
        )
    return units
