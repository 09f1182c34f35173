"""Runs as an owner makes them, and their verification as an auditor does it who was sent an archive."""

from contextlib import closing

from tacit.evidence.archive import Archive, pack
from tacit.evidence.verification import verify
from tacit.privacy import DurableLedger
from tacit.runs import RunFolder, Runner
from tacit.runs.config import RunConfig

SETTINGS = {
    "agents": 4,
    "split": "iid",
    "noise_multiplier": 3.0,
    "lot_size": 24,
    "rounds": 6,
    "checkpoint_every": 3,
    "source": "seeded",
}


def play(runs, name="one", **changes):
    """Play a run to its end; a setting that becomes None is left out."""
    settings = {key: value for key, value in (SETTINGS | changes).items() if value is not None}
    with Runner.start(runs, name, RunConfig.of(settings)) as runner:
        assert runner.play(stop=lambda: False) is not None


def head_of(runs):
    """Return the head of the ledger."""
    with closing(DurableLedger(runs / "ledger.sqlite", read_only=True)) as ledger:
        return ledger.head.hash


def outcomes(runs, name="one", **options):
    """Return what was found in the archive of a run, by what was checked."""
    archive = Archive.of(pack(RunFolder.find(runs / name)).to_bytes(), "archive")
    return {each.what: each for each in verify(archive, **({"replay": False} | options))}


def failed(runs, name="one", **options):
    """Return what fails."""
    return {what for what, each in outcomes(runs, name, **options).items() if each.outcome == "fails"}


def not_held(found):
    """Return what does not hold, with the reason. Scores on test records are only shown: a run states none to compare with."""
    expected = {"scores on test": "shown"}
    return {what: each.words for what, each in found.items() if each.outcome != expected.get(what, "holds")}
