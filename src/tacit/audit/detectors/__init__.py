"""Cheap detectors for one's own settings: they run the real engine and the real oracle on made-up records.

They are the experimenter's own: some run with hardly any noise, so that lots and sums can be read. No private record comes near.
"""

from tacit.audit.detectors.influence import influence_findings
from tacit.audit.detectors.lots import Lots, lot_findings, read_lots
from tacit.audit.detectors.made_up import made_up
from tacit.audit.detectors.noise import Answers, noise_findings, read_noise
from tacit.audit.detectors.report import CheckReport, Finding

__all__ = [
    "Answers",
    "CheckReport",
    "Finding",
    "Lots",
    "influence_findings",
    "lot_findings",
    "made_up",
    "noise_findings",
    "read_lots",
    "read_noise",
]
