"""Scores for each of many canaries, from the target's noisy gradients: how likely it is to be in the target's data.

The attacker knows all records of the target and all canaries, as differential privacy assumes, but neither the coins nor the lots.
In clipping norms an answer is y = Σ b_j·c_j + σξ over all of them, where c_j is the clipped gradient at the θ asked and b_j is 1 with
probability q for a record and q/2 for a canary. For canary i, the others are treated as normal noise of known mean and covariance
beside the oracle's own. That affects how good the guesses are; the bound does not assume it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.func import vmap

from tacit.data import Records
from tacit.data.inputs import Inputs
from tacit.data.records import concatenate
from tacit.errors import InvalidInput
from tacit.models import FlatModel
from tacit.privacy import Oracle, PerSample, Plan
from tacit.privacy.event import Event
from tacit.privacy.gradients.clipping import Sample, clip_factors, lengths
from tacit.privacy.votes import Ballot

# The points θ at which the target was asked, and the noisy gradients there.
Seen = Iterable[tuple[Float[Tensor, " params"], Float[Tensor, " params"]]]

_AT_ONCE = 2**24  # numbers of gradients in memory
_ORTHOGONAL = 1e-9  # gradients with a larger product are not orthogonal


@dataclass(frozen=True, kw_only=True, eq=False)
class OneRunScores:
    """A score for each canary, high where it seems included, and whether it was. `event` is the target's stated mechanism."""

    scores: Float[np.ndarray, " canaries"]
    included: Bool[np.ndarray, " canaries"]
    event: Event
    delta: float


class TargetRecorder:
    """An oracle that records every θ at which the target was asked, and the noisy gradient there.

    An exact view shows as much: the points follow from the messages just as the answers do, and DSGD sends them.
    """

    def __init__(self, oracle: Oracle, target: int, *, keep: bool = True) -> None:
        self._oracle, self._target, self._keep = oracle, target, keep
        self.seen: list[tuple[Float[Tensor, " params"], Float[Tensor, " params"]]] = []

    @property
    def queries(self) -> int:
        """How many queries were answered."""
        return self._oracle.queries

    def gradient(self, theta: Float[Tensor, "agents params"]) -> Float[Tensor, "agents params"]:
        """Ask, and record the target's answer."""
        answer = self._oracle.gradient(theta)
        if self._keep:
            self.seen.append((theta[self._target].clone(), answer[self._target].clone()))
        return answer

    def vote(self, theta: Float[Tensor, "agents params"], ballot: Ballot) -> Float[Tensor, "agents records"]:
        """Pass votes on: they are not scored."""
        return self._oracle.vote(theta, ballot)

    def query(
        self, per_sample: PerSample, *public: Float[Tensor, "agents ..."], width: int | None = None
    ) -> Float[Tensor, "agents width"]:
        """Ask for something other than a gradient, which cannot be scored here."""
        if self._keep:
            raise InvalidInput(
                "the rule asks for vectors other than gradients; an audit of it can use models only: sees='models'"
            )
        return self._oracle.query(per_sample, *public, width=width)


def likelihoods(
    model: FlatModel, canaries: Records, others: Records, seen: Seen, plan: Plan, target: int
) -> Float[Tensor, " canaries"]:
    """Return Σ_k log(1 - q + q·exp(z - h/2)) for each canary; inputs must be prepared.

    With S the covariance of all but canary i, z = cᵢᵀS⁻¹(y - mean) is N(h, h) if it was drawn and N(0, h) if not, where
    h = cᵢᵀS⁻¹cᵢ. A gradient orthogonal to all others has h = |c|²/σ².
    """
    clip, rate = plan.clips[target], plan.sample_rates[target]
    both = concatenate([canaries, others])
    chance = torch.full((len(both),), rate, dtype=torch.float64)
    chance[: len(canaries)] /= 2
    absent = torch.log1p(torch.tensor(-rate, dtype=torch.float64))
    total = torch.zeros(len(canaries), dtype=torch.float64)
    for theta, answer in seen:
        gradients = _clipped(model, theta, both, clip) / clip
        y = answer.double() * plan.lot_sizes[target] / clip
        z, h = _separate(gradients, y, chance, plan.noise_multipliers[target], len(canaries))
        total += torch.logaddexp(absent, math.log(rate) + z - h / 2)
    return total


def _separate(
    gradients: Float[Tensor, "records params"],
    y: Float[Tensor, " params"],
    chance: Float[Tensor, " records"],
    noise: float,
    canaries: int,
) -> tuple[Float[Tensor, " canaries"], Float[Tensor, " canaries"]]:
    """Return z and h of the canaries, which come first."""
    products = gradients @ gradients.T
    rest = gradients @ y - products @ chance  # along every gradient, without the mean
    some, own = slice(canaries), products.diagonal()[:canaries]
    across = products[some].clone()
    across.diagonal().zero_()
    information, score = own / noise**2, rest[some] / noise**2
    if across.abs().max() > _ORTHOGONAL:
        root = (chance * (1 - chance)).sqrt()
        inner = torch.eye(len(root), dtype=torch.float64) * noise**2 + root[:, None] * products * root
        half = torch.linalg.solve_triangular(
            torch.linalg.cholesky(inner),
            root[:, None] * torch.cat([products[:, some], rest[:, None]], dim=1),
            upper=False,
        )
        information = information - half[:, :-1].square().sum(dim=0) / noise**2
        score = score - half[:, :-1].T @ half[:, -1] / noise**2
        shrunk = 1 - (chance * (1 - chance))[some] * information
    else:
        shrunk = torch.ones_like(own)
    # The canary itself was counted as noise, and its mean subtracted; undo both.
    return (score + chance[some] * information) / shrunk, information / shrunk


def _clipped(
    model: FlatModel, theta: Float[Tensor, " params"], records: Records, clip: float
) -> Float[Tensor, "records params"]:
    def one(input: Inputs, target: Tensor) -> Tensor:
        return Sample(model, input, target).gradient(theta)

    rows = []
    for part in torch.arange(len(records)).split(max(1, _AT_ONCE // model.size)):
        some = records.take(part)
        values = vmap(one)(some.inputs, some.targets)
        norms = lengths(values)
        factors = clip_factors(norms, torch.tensor(clip, dtype=torch.float64))
        rows.append(torch.where(norms.isfinite()[:, None], values.double() * factors[:, None], 0))
    return torch.cat(rows)
