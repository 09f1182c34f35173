"""Attacks on a privacy claim, and what they prove.

What to open for which question:

- attacks/    How is a system attacked? `world` is a system under attack, `worlds` has some, `curious` what curious agents know,
              `known_masks` which masks; then one file per attack. `collection` plays many runs.
- bounds/     What do scores or guesses prove about ε? `findings` judges scores; `rates`, `tradeoff`, `discrete` and `one_run` have the bounds.
- linear/     What can curious agents reconstruct? `responses` plays a rule with impulses, `views` has the algebra for one
              coalition, `distance` the leak by distance in the graph, `pairwise` that of gossip between all pairs.
- noise/      Is the noise of a system as stated, and are lots? `check` recovers them, the `*_statistics` test them.
- detectors/  Are my own settings sound? `check` runs the detectors of influence, noise and lots on made-up records;
              `bare_noise` reads noise as the observer of an ε sees it.
- pages/      How is a result shown? `results` has the text, also for the terminal; `page` makes the page.

`named` runs an audit by its name in the registry, as the command line does.
"""

from tacit.audit.attacks.coalition import Coalition
from tacit.audit.attacks.collection import Attack, Collected, collect
from tacit.audit.attacks.guessing import Guess
from tacit.audit.attacks.membership import Membership, paper_attack
from tacit.audit.attacks.natural import NaturalNeighbor
from tacit.audit.attacks.neighbor import Neighbor
from tacit.audit.attacks.one_run import OneRun, OneRunFindings, dirac_canaries
from tacit.audit.attacks.world import World
from tacit.audit.attacks.worlds import dirac, images, noise_world
from tacit.audit.bounds.discrete import Grid
from tacit.audit.bounds.findings import LEAST_RUNS, Claim, Findings, ScoreThreshold, judge
from tacit.audit.bounds.one_run import Guesses, one_run_bound, one_run_fdp_bound
from tacit.audit.bounds.rates import Bound, Outcomes, clopper_pearson_bound, gaussian_bound
from tacit.audit.bounds.tradeoff import tradeoff_bound
from tacit.audit.detectors.check import check
from tacit.audit.detectors.report import CheckFinding, CheckReport
from tacit.audit.linear.distance import Leak, leaks
from tacit.audit.linear.pairwise import Pairwise, pairwise
from tacit.audit.linear.responses import Responses
from tacit.audit.linear.views import View
from tacit.audit.named import run_audit
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
    "Coalition",
    "Collected",
    "Findings",
    "Grid",
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
    "Pairwise",
    "Responses",
    "ScoreThreshold",
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
    "pairwise",
    "paper_attack",
    "run_audit",
    "tradeoff_bound",
]
