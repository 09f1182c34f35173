"""Update rules, one file each. Nothing here knows about privacy or data."""

from typing import TYPE_CHECKING, Any

from tacit.algorithms.ad_psgd import ADPSGD
from tacit.algorithms.averaged import Averaged
from tacit.algorithms.choco import ChocoSGD
from tacit.algorithms.d2 import D2
from tacit.algorithms.deepsqueeze import DeepSqueeze
from tacit.algorithms.dinno import DiNNO
from tacit.algorithms.dp_srm import DPSRM
from tacit.algorithms.dsgd import DSGD
from tacit.algorithms.dsgt import DSGT
from tacit.algorithms.extra import EXTRA
from tacit.algorithms.interface import Algorithm, At, Inbox
from tacit.algorithms.leasgd import LEASGD
from tacit.algorithms.local import Local
from tacit.algorithms.local_dsgd import LocalDSGD
from tacit.algorithms.muffliato import Muffliato
from tacit.algorithms.pate import PATE
from tacit.algorithms.q_dpsgd import QDPSGD1
from tacit.algorithms.q_dpsgd_2 import QDPSGD2
from tacit.algorithms.robust import Robust
from tacit.algorithms.sdm_dsgd import SDMDSGD
from tacit.algorithms.sgd import SGD
from tacit.algorithms.steps import STEPS, Adam, Momentum, Plain, Step
from tacit.registry import RULES

__all__ = [
    "ADPSGD",
    "D2",
    "DPSRM",
    "DSGD",
    "DSGT",
    "EXTRA",
    "LEASGD",
    "PATE",
    "QDPSGD1",
    "QDPSGD2",
    "RULES",
    "SDMDSGD",
    "SGD",
    "STEPS",
    "Adam",
    "Algorithm",
    "At",
    "Averaged",
    "ChocoSGD",
    "DeepSqueeze",
    "DiNNO",
    "Inbox",
    "Local",
    "LocalDSGD",
    "Momentum",
    "Muffliato",
    "Plain",
    "Robust",
    "Step",
]

if not TYPE_CHECKING:  # type checkers need an import above

    def __getattr__(name: str) -> Any:
        """Return the class of a rule that has a line in the registry but no import here."""
        for rule, line in RULES.lines.items():
            if line.class_name == name:
                return RULES[rule]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
