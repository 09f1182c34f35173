"""Runs from Python with parts of the library, to be verified."""

import torch

import tacit
from tacit.runs import RunFolder

DIGITS = tacit.data.load("digits")


def train(runs, **changes):
    """Keep a run from Python that has nothing but parts of the library."""
    settings = {
        "algorithm": tacit.DSGT(),
        "model": lambda: tacit.models.logistic((1, 8, 8), 10),
        "data": DIGITS.split(4, tacit.data.IID(), seed=3),
        "graph": tacit.graphs.ring(4),
        "privacy": tacit.Privacy(noise_multiplier=3.0, delta=1e-3, clip=1.0, lot_size=24),
        "sources": tacit.Seeded(5),
        "rounds": 4,
        "lr": 0.5,
        "seed": 7,
        "evaluate_every": 2,
    } | changes
    tacit.train(settings.pop("algorithm"), **settings, run="one", runs=runs)


def named_model():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.Tanh(), torch.nn.Linear(8, 10))


def changed_part(runs, key, **changes):
    """Return settings in which one part is kept otherwise."""
    parts = RunFolder.find(runs / "one").config().model_dump(exclude_none=True)["parts"]
    return {"parts": parts | {key: parts[key] | changes}}
