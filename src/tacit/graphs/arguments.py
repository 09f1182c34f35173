"""The checks that the graph builders share: whole numbers, fractions and sources of randomness.

Each returns the value in its plain Python or numpy form, or raises a `GraphError` that names the argument,
the value and the range. Nothing outside `tacit.graphs` needs this module.
"""

import numpy as np

from tacit.errors import GraphError

Seed = int | np.random.Generator


def whole(name: str, value: object, *, least: int) -> int:
    """Return `value` as an int if it is a whole number of at least `least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise GraphError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def fraction(name: str, value: object) -> float:
    """Return `value` as a float if it lies between 0 and 1."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool) or not 0 <= value <= 1:
        raise GraphError(f"{name} must be a number between 0 and 1, got {value!r}")
    return float(value)


def generator(seed: object) -> np.random.Generator:
    """Return the generator itself, or a new one from a whole number."""
    if isinstance(seed, np.random.Generator):
        return seed
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise GraphError(f"seed must be a whole number of at least 0 or a numpy Generator, got {seed!r}")
    return np.random.default_rng(int(seed))
