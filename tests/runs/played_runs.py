"""Small runs in a folder, played to the end or stopped."""

from tacit.runs import RunFolder, Runner
from tacit.runs.config import RunConfig

BASE = {
    "dataset": "digits",
    "agents": 4,
    "split": "0.5",
    "noise_multiplier": 3.0,
    "lot_size": 24,
    "rounds": 12,
    "source": "seeded",
    "checkpoint_every": 5,
    "evaluate_every": 3,
}


def config(**changes):
    return RunConfig.of(BASE | changes)


def play(runner, *, stop_after=None):
    """Play to the end, or stop after so many rounds as Ctrl-C would."""
    with runner:
        return runner.play(stop=lambda: stop_after is not None and runner.session.round >= stop_after)


OPEN = {"private": False, "noise_multiplier": None}


def stopped(tmp_path, name="one"):
    play(Runner.start(tmp_path, name, config()), stop_after=6)
    return RunFolder.find(tmp_path / name)
