"""Scattering features against sums written out from the definition, and what makes them free of privacy cost."""

import math

import numpy as np
import pytest
import torch

from tacit.data import ByClass, load, scattered, scattering
from tacit.data.scattering import CHANNELS
from tacit.errors import DataError

SIZE = 8


def periodic(function, size):
    """A filter on a torus: the sum of its copies, two periods to each side."""
    shifts = range(-2 * size, 3 * size, size)
    values = np.zeros((size, size), dtype=complex)
    for y in range(size):
        for x in range(size):
            values[y, x] = sum(function(y + dy, x + dx) for dy in shifts for dx in shifts)
    return values


def morlet(size, scale, angle):
    sigma, frequency, slant = 0.8 * 2**scale, 0.75 * math.pi / 2**scale, 0.5
    cos, sin = math.cos(math.pi * angle / 8), math.sin(math.pi * angle / 8)

    def bell(y, x):
        return math.exp(-((cos * x + sin * y) ** 2 + (slant * (cos * y - sin * x)) ** 2) / (2 * sigma**2))

    def wave(y, x):
        return bell(y, x) * np.exp(1j * frequency * (cos * x + sin * y))

    bells, waves = periodic(bell, size), periodic(wave, size)
    return (waves - waves.sum() / bells.sum() * bells) / (2 * math.pi * sigma**2 / slant)


def convolve(image, kernel):
    size = len(image)
    out = np.zeros((size, size), dtype=complex)
    for y in range(size):
        for x in range(size):
            out[y, x] = sum(
                image[(y - v) % size, (x - u) % size] * kernel[v, u] for v in range(size) for u in range(size)
            )
    return out


def by_definition(image):
    size, sigma = len(image), 1.6
    bell = periodic(lambda y, x: math.exp(-(x**2 + y**2) / (2 * sigma**2)), size)

    def smooth(values):
        return convolve(values, bell / bell.sum()).real[::4, ::4]

    first = {
        (scale, angle): np.abs(convolve(image, morlet(size, scale, angle))) for scale in (0, 1) for angle in range(8)
    }
    second = [np.abs(convolve(first[0, before], morlet(size, 1, after))) for before in range(8) for after in range(8)]
    features = np.stack([smooth(each) for each in (image, *first.values(), *second)])
    groups = features.reshape(27, -1)
    normal = (groups - groups.mean(1, keepdims=True)) / np.sqrt(groups.var(1, keepdims=True) + 1e-5)
    return normal.reshape(features.shape)


def test_features_are_those_of_the_definition():
    image = torch.rand(1, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    found = scattering(image)[0].numpy()
    expected = by_definition(image[0, 0].double().numpy())
    assert found.shape == (CHANNELS, 2, 2)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


def test_a_record_s_features_depend_on_no_other_record():
    images = torch.rand(5, 3, 16, 12, generator=torch.Generator().manual_seed(0))
    together = scattering(images)
    assert together.shape == (5, 3 * CHANNELS, 4, 3)
    for place in range(5):
        torch.testing.assert_close(together[place], scattering(images[place : place + 1])[0], rtol=1e-4, atol=1e-4)


def test_a_shift_by_one_cell_of_the_grid_shifts_the_features():
    images = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    shifted = scattering(images.roll((4, 8), (2, 3)))
    torch.testing.assert_close(shifted, scattering(images).roll((1, 2), (2, 3)), rtol=1e-3, atol=1e-3)


def test_the_ledger_knows_the_records_in_either_form():
    """The owners' names stay, so that what is asked of the features adds to what was asked of the images."""
    images = load("digits")
    features = scattered(images)
    assert features.input_shape == (CHANNELS, 2, 2)
    assert torch.equal(features.train.targets, images.train.targets)
    assert (len(features.validation), len(features.test)) == (len(images.validation), len(images.test))
    assert features.split(4, ByClass(t=1.0)).owners == images.split(4, ByClass(t=1.0)).owners


def test_images_that_do_not_fit_the_grid_are_refused():
    with pytest.raises(DataError, match="pad both sides to a multiple of 4"):
        scattering(torch.zeros(1, 1, 28, 30))


@pytest.mark.parametrize("images", [torch.zeros(3, 20), torch.zeros(1, 1, 8, 8, dtype=torch.uint8)])
def test_what_is_no_batch_of_images_is_refused(images):
    with pytest.raises(DataError, match="floating images as"):
        scattering(images)


def test_other_kinds_of_numbers_give_the_same():
    images = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(scattering(images.double()), scattering(images))
