"""Attacks on the promise, and what they prove.

A `World` is a system with a record in question. An attack (`Neighbor`, `NaturalNeighbor`, `Membership`) plays and scores runs
of it, `collect` plays many, and `judge` tells what their scores prove. `OneRun` and `NoiseCheck` need few runs, `leaks` none.
`check` looks at one's own settings, with made-up records.
"""

from tacit.audit.attacks.collecting import Attack, Collected, collect
from tacit.audit.attacks.guessing import Guess
from tacit.audit.attacks.membership import Membership, paper_attack
from tacit.audit.attacks.natural import NaturalNeighbor
from tacit.audit.attacks.neighbor import Neighbor
from tacit.audit.attacks.one_run import OneRun, OneRunFindings, dirac_canaries
from tacit.audit.attacks.worlds import World, dirac, images
from tacit.audit.bounds.findings import LEAST_RUNS, Claim, Findings, Look, judge
from tacit.audit.bounds.one_run import Guesses, one_run_bound, one_run_fdp_bound
from tacit.audit.bounds.rates import Bound, Outcomes, clopper_pearson_bound, gaussian_bound
from tacit.audit.bounds.tradeoff import tradeoff_bound
from tacit.audit.detectors import CheckReport, Finding
from tacit.audit.detectors.checking import check
from tacit.audit.linear.distance import Leak, leaks
from tacit.audit.linear.responses import NotLinear, Responses
from tacit.audit.linear.views import View
from tacit.audit.noise.check import NoiseCheck, noise_world
from tacit.audit.noise.report import NoiseReport

__all__ = [
    "LEAST_RUNS",
    "Attack",
    "Bound",
    "CheckReport",
    "Claim",
    "Collected",
    "Finding",
    "Findings",
    "Guess",
    "Guesses",
    "Leak",
    "Look",
    "Membership",
    "NaturalNeighbor",
    "Neighbor",
    "NoiseCheck",
    "NoiseReport",
    "NotLinear",
    "OneRun",
    "OneRunFindings",
    "Outcomes",
    "Responses",
    "View",
    "World",
    "check",
    "clopper_pearson_bound",
    "collect",
    "dirac",
    "dirac_canaries",
    "gaussian_bound",
    "images",
    "judge",
    "leaks",
    "noise_world",
    "one_run_bound",
    "one_run_fdp_bound",
    "paper_attack",
    "tradeoff_bound",
]
