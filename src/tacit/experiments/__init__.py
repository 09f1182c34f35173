"""The paper's figures and tables as declarations: what varies, what is fixed, what is drawn, and what is found.

`EXPERIMENTS` names them; `load_experiment` returns one, and `reproduce` plays it in a folder that can be resumed.
"""

from importlib import import_module

from tacit.errors import choose
from tacit.experiments.experiment import PROFILES, Experiment, Place, Point, Profile, parse_only, restrict
from tacit.experiments.running import Progress, Reproduction, reproduce

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
)


def load_experiment(name: str) -> Experiment:
    """Return an experiment by its name."""
    module = import_module(f"tacit.experiments.{choose('experiment', name, EXPERIMENTS)}")
    experiment: Experiment = module.EXPERIMENT
    return experiment


__all__ = [
    "EXPERIMENTS",
    "PROFILES",
    "Experiment",
    "Place",
    "Point",
    "Profile",
    "Progress",
    "Reproduction",
    "load_experiment",
    "parse_only",
    "reproduce",
    "restrict",
]
