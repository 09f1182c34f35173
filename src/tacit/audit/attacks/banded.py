"""What an observer of answers with bands does: undo the bands, and look only at the turns of the record's group.

With y = S + C⁻¹Z the observer computes Cy = CS + Z, whose noise is independent. A record in the lot of query j is in b of these, with the
weights c. So Σ c_k (Cy)_{j+k}, one number for each turn of its group, is sufficient, and the turns are independent.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.audit.linear.views import log_ratio
from tacit.data import Records
from tacit.privacy import Plan
from tacit.privacy.groups import group_key, group_records


def band_matrix(column: Sequence[float], queries: int) -> Float[Tensor, "queries queries"]:
    """Return C, lower triangular, whose first column begins with these coefficients."""
    matrix = torch.zeros(queries, queries, dtype=torch.float64)
    for lag, weight in enumerate(column[:queries]):
        matrix += weight * torch.diag(torch.ones(queries - lag, dtype=torch.float64), -lag)
    return matrix


def banded_scores(
    answers: Float[Tensor, "trials queries"], plan: Plan, target: int, canary: Records, seed: int, *, noise: float
) -> Float[np.ndarray, " trials"]:
    """Return the log-likelihood ratio of a record, from all answers of the target along its direction, in clipping norms.

    `seed` is that of the runs: it divides records into groups, and is public. `noise` is the deviation of Z in these answers.
    """
    bands, queries = len(plan.bands), answers.shape[1]
    (group,) = group_records(canary.inputs, canary.targets, np.zeros(1, dtype=np.int64), bands, group_key(seed))
    matrix = band_matrix(plan.bands, queries)
    turns = torch.arange(int(group), queries, bands)
    lengths = (matrix.T @ matrix)[turns][:, turns]
    found = answers.double() @ matrix.T @ matrix[:, turns]
    return log_ratio(lengths, found, rate=plan.turn_rates[target], noise=noise).numpy()
