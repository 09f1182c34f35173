"""Wavelet scattering: untrained features of images from which a private linear model learns well.

Two layers of Morlet wavelets and moduli, then a low-pass (Bruna & Mallat, *Invariant Scattering Convolution Networks*,
2013), with the scales and the normalisation that Tramèr & Boneh found best for private training (*Differentially Private
Learning Needs Better Features*, 2021). The filters are fixed, and each record is treated alone, so this costs no privacy.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.nn.functional import group_norm

from tacit.data.datasets import DataSet
from tacit.data.fields import Field
from tacit.data.records import Records
from tacit.errors import DataError

SCALES, ANGLES = 2, 8
CHANNELS = 1 + SCALES * ANGLES + ANGLES * ANGLES
_STRIDE = 2**SCALES
_GROUPS = 27
_AT_ONCE = 500


def scattering(
    images: Float[Tensor, "records channels height width"],
) -> Float[Tensor, "records features height width"]:
    """Return 81 features of every channel on a grid four times as coarse, each channel's normalised in 27 groups."""
    if images.ndim != 4 or not images.is_floating_point():
        raise DataError(
            f"scattering takes floating images as (records, channels, height, width), not {images.dtype} of shape "
            f"{tuple(images.shape)}"
        )
    records, channels, height, width = images.shape
    if height % _STRIDE or width % _STRIDE:
        raise DataError(f"images of {height}×{width} cannot be scattered; pad both sides to a multiple of {_STRIDE}")
    filters = _filters(height, width).to(images.device)
    flat = images.float().reshape(records * channels, height, width)
    orders = [flat[:, None]]
    first = torch.fft.ifft2(torch.fft.fft2(flat)[:, None, None] * filters.wavelets).abs()  # [records, scale, angle, …]
    orders.append(first.flatten(1, 2))
    finest = torch.fft.fft2(first[:, 0])
    for angle in range(ANGLES):  # only from the finer scale to the coarser: the other way nothing remains
        orders.append(torch.fft.ifft2(finest[:, angle, None] * filters.wavelets[1]).abs())
    found = filters.rows @ torch.cat(orders, dim=1) @ filters.columns.mT
    normal = group_norm(found, _GROUPS)
    return normal.reshape(records, channels * CHANNELS, height // _STRIDE, width // _STRIDE)


def scattered(data: DataSet) -> DataSet:
    """Return the same records as their features, computed once.

    The data set and its owners keep their names: the ledger counts queries of these records in any form.
    """

    def features(records: Records | None) -> Records | None:
        if records is None:
            return None
        one = scattering(data.prepare(records.table[:1]))
        found = one.new_empty(
            len(records), *one.shape[1:]
        )  # concatenating parts at the end would need twice the memory
        for place, part in zip(found.split(_AT_ONCE), records.table.split(_AT_ONCE), strict=True):
            place.copy_(scattering(data.prepare(part)))
        return Records(found, records.targets)

    train = features(data.train)
    assert train is not None
    declared = data.schema
    if declared is not None:
        declared = replace(declared, inputs=Field(shape=tuple(train.table.shape[1:]), dtype=train.table.dtype))
    return replace(
        data,
        train=train,
        validation=features(data.validation),
        test=features(data.test),
        prepare=_as_they_are,
        schema=declared,
    )


def _as_they_are(inputs: Tensor) -> Tensor:
    return inputs


@dataclass(frozen=True)
class _Filters:
    wavelets: Complex[Tensor, "scales angles height width"]
    rows: Float[Tensor, "coarse height"]
    columns: Float[Tensor, "coarse width"]

    def to(self, device: torch.device) -> "_Filters":
        return _Filters(self.wavelets.to(device), self.rows.to(device), self.columns.to(device))


@lru_cache(maxsize=4)
def _filters(height: int, width: int) -> _Filters:
    wavelets = [
        [
            _morlet(height, width, 0.8 * 2**scale, 0.75 * math.pi / 2**scale, math.pi * angle / ANGLES)
            for angle in range(ANGLES)
        ]
        for scale in range(SCALES)
    ]
    stacked = torch.stack([torch.stack(line) for line in wavelets])
    smooth = 0.8 * 2 ** (SCALES - 1)
    return _Filters(torch.fft.fft2(stacked).to(torch.complex64), _low_pass(height, smooth), _low_pass(width, smooth))


def _morlet(height: int, width: int, sigma: float, frequency: float, angle: float) -> Complex[Tensor, "height width"]:
    """Return a plane wave under a Gaussian that is longer across it, less what makes its sum zero; periodic."""
    slant = 4 / ANGLES
    down, right = torch.meshgrid(
        torch.arange(-2 * height, 3 * height).double(), torch.arange(-2 * width, 3 * width).double(), indexing="ij"
    )
    along = math.cos(angle) * right + math.sin(angle) * down
    across = math.cos(angle) * down - math.sin(angle) * right
    bell = torch.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
    wave = torch.polar(bell, frequency * along)
    bell, wave = (each.reshape(5, height, 5, width).sum((0, 2)) for each in (bell, wave))
    return (wave - wave.sum() / bell.sum() * bell) / (2 * math.pi * sigma**2 / slant)


def _low_pass(size: int, sigma: float) -> Float[Tensor, "coarse size"]:
    """Return the matrix of a periodic Gaussian average, of which every fourth place is kept."""
    places = torch.arange(-2 * size, 3 * size).double()
    bell = torch.exp(-(places**2) / (2 * sigma**2)).reshape(5, size).sum(0)
    bell = bell / bell.sum()
    shifts = [torch.roll(bell, place) for place in range(0, size, _STRIDE)]
    return torch.stack(shifts).float()
