"""What a coalition does about masks that repeat: it finds their period in queries, and looks at all rounds together.

Masks of two queries that are equal vanish from the difference of the answers. For each possible period, and for fresh masks, the noise of
the honest agents over all queries is Gaussian with its own covariance,

    Σ = diag(a²) ⊗ I + b²·Lap ⊗ R,   R_ts = 1 where the queries t and s have the same masks,

and each run is scored by the likelihood ratio under the period that makes its answers most likely. With fresh masks
this is the likelihood ratio of a sound system, which shows no more than is stated.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.audit.linear.views import log_ratio

_MOST_NUMBERS = 1024  # answers of one run; with more, the covariances of all periods take too long


class _Fit(NamedTuple):
    """The noise of all answers if masks have one period: its precision, and the logarithm of its determinant."""

    precision: Float[Tensor, "answers answers"]
    log_determinant: float


def repeat_scores(
    answers: Float[Tensor, "trials agents queries"],
    own: Float[Tensor, " agents"],
    masks: Float[Tensor, "agents agents"],
    *,
    target: int,
    rate: float,
) -> Float[np.ndarray, " trials"] | None:
    """Return the log-likelihood ratio of a record of agent number `target`, under the most likely period of masks in each run.

    `own` are the variances of the agents' own noise, and `masks` is the covariance of the masks that the coalition does not know, both in
    units of the answers. None where there are too many answers.
    """
    _, agents, queries = answers.shape
    if agents * queries > _MOST_NUMBERS or queries < 2:
        return None
    flat = answers.flatten(1)
    fits = [_fit(own, masks, period, queries) for period in range(1, queries + 1)]  # the last one: fresh masks
    likely = torch.stack([-((flat @ fit.precision) * flat).sum(dim=1) - fit.log_determinant for fit in fits])
    best = likely.argmax(dim=0)
    scores = torch.zeros(len(flat), dtype=torch.float64)
    part = slice(target * queries, (target + 1) * queries)
    for number, fit in enumerate(fits):
        runs = (best == number).nonzero().flatten()
        if len(runs):
            found = flat[runs] @ fit.precision[:, part]
            scores[runs] = log_ratio(fit.precision[part, part], found, rate=rate, noise=1.0)
    return scores.numpy()


def _fit(own: Float[Tensor, " agents"], masks: Float[Tensor, "agents agents"], period: int, queries: int) -> _Fit:
    place = torch.arange(queries) % period
    same = (place[:, None] == place).double()
    alone = torch.eye(queries, dtype=torch.float64)
    factor: Tensor = torch.linalg.cholesky(torch.kron(torch.diag(own), alone) + torch.kron(masks, same))
    return _Fit(torch.cholesky_inverse(factor), float(2 * factor.diagonal().log().sum()))
