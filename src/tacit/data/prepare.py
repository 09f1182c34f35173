"""Public preprocessing, applied to a batch after it was gathered.

A preparation treats every record alike and alone: its constants are published or agreed on, never measured on
the private data, so that a record's prepared value depends on no other record.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

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
