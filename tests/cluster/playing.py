"""A run on the ranks of one test: rank 0 leads, the others follow, and one of them may be killed at a chosen moment."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from tacit.cluster.agreeing import AgreedSecret
from tacit.cluster.following import Follower, follow
from tacit.cluster.group import Group
from tacit.cluster.leading import Lead
from tacit.errors import RankLost
from tacit.runs import Runner
from tacit.runs.answers import AnswerLog
from tacit.runs.config import RunConfig

SETTINGS = {
    "algorithm": "dsgt",
    "dataset": "digits",
    "agents": 5,
    "graph": "ring",
    "noise_multiplier": 1.5,
    "delta": 1e-3,
    "lot_size": 24,
    "rounds": 8,
    "lr": 1.0,
    "source": "seeded",
    "checkpoint_every": 3,
    "compile": False,
}


@dataclass(frozen=True)
class Kill:
    """A rank that ends by SIGKILL, as it is about to call a method for the n-th time."""

    rank: int
    where: str
    calls: int


PLACES = {
    "an answer is written": (AnswerLog, "append"),
    "a follower has saved": (Follower, "_save"),
    "a follower commits": (Follower, "_commit"),
    "rank 0 saves": (Lead, "save"),
    "rank 0 has others commit": (Lead, "commit"),
    "rank 0 ends the run": (Lead, "end"),
}


def config(**changes):
    return RunConfig.of(SETTINGS | changes)


def play(rank, runs, name, settings, kill=None, deadline=30.0):
    """Start or resume a run on one rank, and return on rank 0 how many queries were lost; others return None."""
    if kill is not None and kill.rank == rank:
        _arm(kill)
    group = Group.join(deadline)
    chosen = RunConfig.of(SETTINGS | settings).pinned()
    try:
        if rank:
            follow(group, chosen)
            return None
        return _lead(group, Path(runs), name, chosen)
    except RankLost:
        raise
    except BaseException as error:
        group.fail(error)
        raise
    finally:
        group.close()


def _lead(group, runs, name, chosen):
    team = Lead(group, chosen)
    if (runs / name / "config.toml").exists():
        runner = Runner.resume(runs / name, team=team)
    else:
        runner = Runner.start(runs, name, chosen, team=team)
    with runner:
        runner.play(stop=lambda: False)
        masks = runner.session.training.chosen_sources
        return runner.folder.events().lost_queries, isinstance(masks, AgreedSecret), team.description


def _arm(kill):
    owner, method = PLACES[kill.where]
    original, left = getattr(owner, method), [kill.calls]

    def fatal(*args, **named):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **named)

    setattr(owner, method, fatal)
