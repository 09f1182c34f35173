"""Update rules, one file each. Nothing here knows about privacy or data."""

from typing import Any

from tacit.algorithms.averaged import Averaged
from tacit.algorithms.dinno import DiNNO
from tacit.algorithms.dsgd import DSGD
from tacit.algorithms.dsgt import DSGT
from tacit.algorithms.interface import Algorithm, At, Inbox
from tacit.algorithms.local import Local
from tacit.algorithms.sgd import SGD
from tacit.algorithms.steps import Adam, Momentum, Plain, Step

RULES: dict[str, type[Algorithm[Any]]] = {"sgd": SGD, "local": Local, "dsgd": DSGD, "dsgt": DSGT, "dinno": DiNNO}
"""The rules by name. A new rule is one file and one line here."""

__all__ = [
    "DSGD",
    "DSGT",
    "RULES",
    "SGD",
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
