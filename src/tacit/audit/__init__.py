"""Attacks on a privacy claim, and what they prove.

What to open for which question:

- attacks/    How is a system attacked? `world` is a system under attack, `worlds` has some, `curious` what curious agents know, then one file per attack:
              `neighbor`, `natural`, `membership`, `one_run`. `collection` plays many runs. A new attack is one file there and one
              line below.
- bounds/     What do scores or guesses prove about ε? `findings` judges scores; `rates`, `tradeoff` and `one_run` have the bounds.
- linear/     What can curious agents reconstruct? `responses` plays a rule with impulses, `views` has the algebra for one
              coalition, `distance` the leak by distance in the graph.
- noise/      Is the noise of a system as stated, and are lots? `check` recovers them, the `*_statistics` test them.
- detectors/  Are my own settings sound? `check` runs the detectors of influence, noise and lots on made-up records.
- pages/      How is a result shown? `page` chooses the page of an audit, `wording` has the sentences shared with the terminal.
"""

from tacit.audit.attacks.collection import Attack, Collected, collect
from tacit.audit.attacks.guessing import Guess
from tacit.audit.attacks.membership import Membership, paper_attack
from tacit.audit.attacks.natural import NaturalNeighbor
from tacit.audit.attacks.neighbor import Neighbor
from tacit.audit.attacks.one_run import OneRun, OneRunFindings, dirac_canaries
from tacit.audit.attacks.world import World
from tacit.audit.attacks.worlds import dirac, images, noise_world
from tacit.audit.bounds.findings import LEAST_RUNS, Claim, Findings, ScoreLook, judge
from tacit.audit.bounds.one_run import Guesses, one_run_bound, one_run_fdp_bound
from tacit.audit.bounds.rates import Bound, Outcomes, clopper_pearson_bound, gaussian_bound
from tacit.audit.bounds.tradeoff import tradeoff_bound
from tacit.audit.detectors.check import check
from tacit.audit.detectors.report import CheckFinding, CheckReport
from tacit.audit.linear.distance import Leak, leaks
from tacit.audit.linear.responses import Responses
from tacit.audit.linear.views import View
from tacit.audit.noise.check import NoiseCheck
from tacit.audit.noise.report import NoiseReport
from tacit.errors import NotLinear

__all__ = [
    "LEAST_RUNS",
    "Attack",
    "Bound",
    "CheckFinding",
    "CheckReport",
    "Claim",
    "Collected",
    "Findings",
    "Guess",
    "Guesses",
    "Leak",
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
    "ScoreLook",
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
