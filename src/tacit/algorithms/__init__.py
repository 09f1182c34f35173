"""Update rules, one file each. Nothing here knows about privacy or data."""

from tacit.algorithms.averaged import Averaged
from tacit.algorithms.dinno import DiNNO
from tacit.algorithms.dsgd import DSGD
from tacit.algorithms.dsgt import DSGT
from tacit.algorithms.interface import Algorithm, At, Inbox
from tacit.algorithms.local import Local
from tacit.algorithms.sgd import SGD
from tacit.algorithms.steps import STEPS, Adam, Momentum, Plain, Step
from tacit.registry import RULES

__all__ = [
    "DSGD",
    "DSGT",
    "RULES",
    "SGD",
    "STEPS",
    "Adam",
    "Algorithm",
    "At",
    "Averaged",
    "DiNNO",
    "Inbox",
    "Local",
    "Momentum",
    "Plain",
    "Step",
]
