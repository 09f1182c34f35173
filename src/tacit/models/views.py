"""Augmentation before clipping: a record's loss is the mean over several views of it.

The gradient of that mean is one gradient of one record, clipped as a whole, so views cost time and no privacy (De et al.,
*Unlocking High-Accuracy Differentially Private Image Classification through Scale*, 2022). Views are fixed, not random: a
model's forward pass must be deterministic.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.errors import InvalidInput
from tacit.models.functional import cross_entropy

RecordView = Callable[[Tensor], Tensor]
"""Makes another version of every record of a batch, each by itself."""


@dataclass(frozen=True)
class Shift:
    """Shifts images down and to the right by a number of pixels, and fills the edge with zeros."""

    down: int
    right: int

    def __call__(self, images: Tensor) -> Tensor:
        """Return the shifted images, of the same size."""
        padded = (max(self.right, 0), max(-self.right, 0), max(self.down, 0), max(-self.down, 0))
        height, width = images.shape[-2:]
        top, left = max(-self.down, 0), max(-self.right, 0)
        return nn.functional.pad(images, padded)[..., top : top + height, left : left + width]


CROSS = (Shift(0, 0), Shift(1, 0), Shift(-1, 0), Shift(0, 1), Shift(0, -1))
"""An image as it is, and shifted by one pixel in four directions."""


class Views(nn.Module):
    """A model that is trained on all views of a record, [records, views, ...], and used on the record itself.

    Its loss must handle the views: `views_cross_entropy`, or one of your own.
    """

    def __init__(self, model: nn.Module, views: Sequence[RecordView] = CROSS) -> None:
        super().__init__()
        if not views or any(isinstance(view, nn.Module) for view in views):
            raise InvalidInput(
                "views are one or more fixed functions; a layer, with parameters of its own, belongs in the model"
            )
        self.model = model
        self.views = tuple(views)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the model's outputs, for each view while it is trained."""
        if self.training:
            return torch.stack([self.model(view(inputs)) for view in self.views], dim=1)
        outputs: Tensor = self.model(inputs)
        return outputs


def views_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of every record, averaged over its views if there are any."""
    if outputs.dim() == 2:
        return cross_entropy(outputs, targets)
    losses = [cross_entropy(outputs[:, view], targets) for view in range(outputs.shape[1])]
    return torch.stack(losses, dim=1).mean(dim=1)
