"""The paper's figures and tables as declarations: what varies, what is fixed, what is drawn, and what is found.

`EXPERIMENTS` names them, `load_experiment` returns one, and `reproduce` runs it in a folder that can be resumed. A new
experiment is a module here with an `EXPERIMENT`, and its name in `EXPERIMENTS`. Experiments use only the public names in
`docs/api.md`.
"""

from importlib import import_module

from tacit.errors import choose
from tacit.experiments.experiment import PROFILES, Environment, Experiment, Point, Profile, parse_only, restrict
from tacit.experiments.runner import OnProgress, Progress, Reproduction, find_missing, reproduce

EXPERIMENTS = (
    "connectivity",
    "density",
    "centrality",
    "split",
    "attack",
    "convergence",
    "bandwidth",
    "graphs",
    "errata",
    "tuning",
    "accuracy",
    "family",
)


def load_experiment(name: str) -> Experiment:
    """Return an experiment by its name."""
    module = import_module(f"tacit.experiments.{choose('experiment', name, EXPERIMENTS)}")
    experiment: Experiment = module.EXPERIMENT
    return experiment


__all__ = [
    "EXPERIMENTS",
    "PROFILES",
    "Environment",
    "Experiment",
    "OnProgress",
    "Point",
    "Profile",
    "Progress",
    "Reproduction",
    "find_missing",
    "load_experiment",
    "parse_only",
    "reproduce",
    "restrict",
]
