import shutil

import pytest

from tacit.config import RunConfig
from tacit.runs import Runner

SETTINGS = {
    "agents": 4,
    "split": "iid",
    "noise_multiplier": 3.0,
    "lot_size": 24,
    "rounds": 6,
    "checkpoint_every": 3,
    "source": "seeded",
}


@pytest.fixture(scope="session")
def played(tmp_path_factory):
    """A folder with two seeded runs on the same records, of which the second asks more gently."""
    runs = tmp_path_factory.mktemp("played") / "runs"
    for name, changes in (("one", {}), ("two", {"noise_multiplier": 9.0, "seed": 0, "rounds": 3})):
        with Runner.start(runs, name, RunConfig.of(SETTINGS | changes)) as runner:
            assert runner.play(stop=lambda: False) is not None
    return runs


@pytest.fixture
def runs(played, tmp_path):
    """A copy of the folder, to change."""
    return shutil.copytree(played, tmp_path / "runs")
