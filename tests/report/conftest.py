import shutil

import pytest
from made_runs import train, write_run

import tacit
from tacit.report import RecordedRun


class _Apart:
    """Gives each run a ledger of its own, so that none of them has read what another asks."""

    def __init__(self, place):
        self._place = place

    def __truediv__(self, name):
        return self._place / name / name


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Folders of small real trainings, made once; tests that change one take a copy."""
    place = tmp_path_factory.mktemp("runs")
    root = _Apart(place)
    noisy = {"noise_multiplier": 2.0, "delta": 1e-3, "clip": 1.0, "lot_size": 48}
    equal = [230] * 6  # declared, so that there is one σ to look for and not six
    write_run(root / "dsgt", *train(sizes=equal), epsilon=4.0, delta=1e-3)
    dinno = train(tacit.DiNNO(inner_steps=2), rounds=8, lr=0.05, sizes=equal)
    write_run(root / "dinno", *dinno, rounds=8, lr=[0.05, 0.05])
    seeded = train(privacy=tacit.Privacy(**noisy), sources=tacit.Seeded(0), sizes=[230, 250] * 3)
    write_run(root / "seeded", *seeded, source="seeded")
    write_run(root / "open", *train(tacit.DSGD(), privacy=tacit.NoPrivacy(lot_size=48), rounds=12), rounds=12)
    renyi = tacit.Privacy(**noisy, accountant="rdp")
    write_run(root / "alone", *train(tacit.SGD(), agents=1, rounds=5, privacy=renyi))
    return {parent.name: parent / parent.name for parent in place.iterdir()}


@pytest.fixture(scope="session")
def runs(folders):
    return {name: RecordedRun.load(folder) for name, folder in folders.items()}


@pytest.fixture
def folder(folders, tmp_path):
    """A run folder to break."""
    shutil.copytree(folders["dsgt"].parent, tmp_path / "runs")
    return tmp_path / "runs" / "dsgt"
