"""Tacit: train one model across agents that never show each other their data.

Each agent talks only to its neighbours on a graph, and everything it says is (ε, δ)-differentially private by
construction. Start with `tacit.train`.
"""

from tacit.lazy import lazily

TYPE_CHECKING = False  # of typing, which takes longer to import than the rest of this, and type checkers know the name

if TYPE_CHECKING:
    from tacit import algorithms, data, graphs, models, networks, privacy
    from tacit import audit as audit
    from tacit import errors as errors
    from tacit import evidence as evidence
    from tacit import report as report
    from tacit import runs as runs
    from tacit.algorithms import DSGD, DSGT, SGD, Adam, Averaged, DiNNO, Local, Momentum, Plain
    from tacit.api import train, train_trials
    from tacit.errors import TacitError
    from tacit.privacy import (
        Budget,
        Cancelling,
        Discrete,
        Fast,
        Ledger,
        NoPrivacy,
        Observer,
        Privacy,
        Secret,
        Seeded,
        Unit,
    )
    from tacit.runs.loading import load
    from tacit.runs.python_runs import resume
    from tacit.training.absences import Absence
    from tacit.training.results import Result, Snapshot
    from tacit.training.schedules import Constant, LogSpaced
    from tacit.training.session import Session
    from tacit.training.settings import Training
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "tacit.algorithms": (
                "DSGD",
                "DSGT",
                "SGD",
                "Adam",
                "Averaged",
                "DiNNO",
                "Local",
                "Momentum",
                "Plain",
            ),
            "tacit.errors": ("TacitError",),
            "tacit.privacy": (
                "Budget",
                "Cancelling",
                "Discrete",
                "Fast",
                "Ledger",
                "NoPrivacy",
                "Observer",
                "Privacy",
                "Secret",
                "Seeded",
                "Unit",
            ),
            "tacit.training.absences": ("Absence",),
            "tacit.training.results": ("Result", "Snapshot"),
            "tacit.runs.python_runs": ("resume",),
            "tacit.runs.loading": ("load",),
            "tacit.training.schedules": ("Constant", "LogSpaced"),
            "tacit.training.session": ("Session",),
            "tacit.training.settings": ("Training",),
            "tacit.api": ("train", "train_trials"),
        },
        (
            "algorithms",
            "audit",
            "data",
            "errors",
            "evidence",
            "graphs",
            "models",
            "networks",
            "privacy",
            "report",
            "runs",
        ),
    )

__version__ = "0.1.0"

__all__ = [
    "DSGD",
    "DSGT",
    "SGD",
    "Absence",
    "Adam",
    "Averaged",
    "Budget",
    "Cancelling",
    "Constant",
    "DiNNO",
    "Discrete",
    "Fast",
    "Ledger",
    "Local",
    "LogSpaced",
    "Momentum",
    "NoPrivacy",
    "Observer",
    "Plain",
    "Privacy",
    "Result",
    "Secret",
    "Seeded",
    "Session",
    "Snapshot",
    "TacitError",
    "Training",
    "Unit",
    "algorithms",
    "data",
    "graphs",
    "load",
    "models",
    "networks",
    "privacy",
    "resume",
    "train",
    "train_trials",
]
