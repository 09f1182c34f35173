"""Per-sample vectors rounded to a grid before they are added up, each by itself.

A number x, in steps, becomes ⌊x + u⌋ with u from [0, 1), so that it is x on average. u is a hash of the query's number, the place in the
vector and the bits of x. So a record's rounded vector follows from that record, θ and the number of the query, and from nothing else in
the lot. Privacy does not depend on u, which is public: a vector that would be longer than the bound is cut towards zero instead.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tacit.models.functional import FlatModel
from tacit.privacy.gradients.batches import BatchData, SumsAndNorms
from tacit.privacy.gradients.clipping import PerSample, Quantum, clip_factors, lengths, only, power_below
from tacit.privacy.gradients.general import PerSampleKernel
from tacit.privacy.rounding import Discrete

_CHUNK_NUMBERS = 2**20
_BITS = 30  # of u: a whole number of steps plus u is then never rounded up to the next one
_MIX = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)  # the factors of splitmix64, as signed numbers
_GOLDEN = -0x61C8864680B583EB


class RoundingKernel(PerSampleKernel):
    """Clips, rounds and adds up. The last of the public tensors is the number of the query, in every block."""

    def __init__(self, model: FlatModel, per_sample: PerSample, width: int, rounding: Discrete) -> None:
        super().__init__(model, per_sample, width)
        self._rounding, self.room = rounding, rounding.bound(1.0)

    def clipped(self, data: BatchData, clip: Float[Tensor, " blocks"], quantum: Quantum) -> SumsAndNorms:
        """Return sums of whole steps, and norms before rounding."""
        values = self._values(data._replace(public=data.public[:-1]))
        norms = torch.stack([lengths(one) for one in values])
        factors = torch.where(data.keep & norms.isfinite(), clip_factors(norms, clip[:, None]), 0)
        steps = power_below(clip) * 2.0**-self._rounding.bits
        keys = data.public[-1][:, 0]
        sums = torch.zeros(len(values), values.shape[2], dtype=torch.float64, device=values.device)
        rows = max(1, _CHUNK_NUMBERS // max(1, values.shape[2]))
        for block, (step, limit) in enumerate(zip(steps, self.room * clip / steps, strict=True)):
            for first in range(0, values.shape[1], rows):
                part = slice(first, first + rows)
                scaled = only(values[block : block + 1, part], factors[block : block + 1, part])[0].double()
                scaled *= (factors[block, part] / step)[:, None]
                sums[block] += round_rows(scaled, float(limit), keys[block]).sum(0)
            sums[block] *= step
        return sums, norms


def round_rows(scaled: Float[Tensor, "rows width"], limit: float, key: Int[Tensor, ""]) -> Float[Tensor, "rows width"]:
    """Return rows of whole numbers, each no longer than `limit`, if no row was: rounded at random, or else towards zero."""
    up = _uniform(scaled, key)
    rounded = (scaled + up).floor()
    # Squares of whole numbers are added up without rounding.
    long = rounded.square().sum(1) > limit * limit * (1 - 1e-12)
    return torch.where(long[:, None], scaled.trunc(), rounded)


def _uniform(scaled: Float[Tensor, "rows width"], key: Int[Tensor, ""]) -> Float[Tensor, "rows width"]:
    """Return numbers from [0, 1) that follow from the bits of each number, its place and the key."""
    places = torch.arange(1, scaled.shape[1] + 1, device=scaled.device) * _GOLDEN
    mixed = scaled.view(torch.int64) + _mixed(places + _mixed(key * _GOLDEN))
    return ((_mixed(mixed) >> (64 - _BITS)) & (2**_BITS - 1)).double() * 2.0**-_BITS


def _mixed(words: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """Return words whose every bit depends on every bit of those given (splitmix64)."""
    words = (words ^ ((words >> 30) & 0x3FFFFFFFF)) * _MIX[0]
    words = (words ^ ((words >> 27) & 0x1FFFFFFFFF)) * _MIX[1]
    return words ^ ((words >> 31) & 0x1FFFFFFFF)
