import shutil

import pytest
from auditing import play


@pytest.fixture(scope="session")
def played(tmp_path_factory):
    """A folder with two seeded runs on the same records, of which the second asks more gently."""
    runs = tmp_path_factory.mktemp("played") / "runs"
    play(runs)
    play(runs, "two", noise_multiplier=9.0, rounds=3)
    return runs


@pytest.fixture
def runs(played, tmp_path):
    """A copy of the folder, to change."""
    return shutil.copytree(played, tmp_path / "runs")
