"""Sources of every kind, as the cases of a test of chance: seeded ones are always the same, secret ones have a false-alarm rate."""

import pytest

from tacit.privacy import Fast, Secret, Seeded


def every_kind(seed, rate):
    secret = pytest.param(Secret(), id="secret", marks=pytest.mark.chance(rate))
    return pytest.mark.parametrize(
        "kind", [secret, pytest.param(Seeded(seed), id="seeded"), pytest.param(Fast(seed), id="fast")]
    )
