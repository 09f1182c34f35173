"""Scores of what an observer sees: those of the exact mixture of lots."""

import numpy as np
import pytest
import torch
from viewing import same

from tacit.algorithms import DSGD, DSGT, DiNNO, Plain
from tacit.audit.linear import views
from tacit.audit.linear.responses import Responses
from tacit.graphs import complete, path, ring

# Likelihoods


def test_scores_of_exact_answers_are_the_subsampled_gaussians():
    view = Responses.of(DSGD(), complete(4), rounds=7, lr=0.1).view([0])
    q, sigma, r = 0.2, 1.3, 0.8
    answers = sigma * torch.randn(9, 4, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    answers[:4, 2] += r
    s = answers[:, 2]
    expected = torch.log(1 - q + q * torch.exp((2 * r * s - r**2) / (2 * sigma**2))).sum(dim=1)
    same(view.scores(2, answers.flatten(1) @ view.matrix.T, rate=q, noise=sigma, size=r), expected, 1e-6)


@pytest.mark.parametrize(("rule", "target"), [(DSGT(), 3), (DiNNO(step=Plain(), inner_steps=2, rho=0.3), 1)])
def test_scores_are_those_of_the_mixture_of_all_lots(rule, target):
    """Sum the densities of everything seen, lot by lot, in the space where the noise lives."""
    view = Responses.of(rule, ring(6), rounds=3, lr=0.1).view([0])
    n, q, sigma, r = view.queries, 0.3, 0.9, 0.7
    generator = torch.Generator().manual_seed(0)
    answers = sigma * torch.randn(20, 6 * n, dtype=torch.float64, generator=generator)
    mine = slice(target * n, (target + 1) * n)
    answers[:10, mine] += r * (torch.rand(10, n, generator=generator) < 0.5)
    inverse = torch.linalg.pinv(view.matrix @ view.matrix.T, rtol=1e-12, hermitian=True) / sigma**2
    seen, expected = answers @ view.matrix.T, []
    for x in seen:
        total = 0.0
        for lots in np.ndindex(*[2] * n):
            b = torch.tensor(lots, dtype=torch.float64)
            apart = x - r * view.matrix[:, mine] @ b
            weight = q ** int(b.sum()) * (1 - q) ** int(n - b.sum())
            total += weight * float(torch.exp((x @ inverse @ x - apart @ inverse @ apart) / 2))
        expected.append(total)
    same(view.scores(target, seen, rate=q, noise=sigma, size=r), torch.tensor(expected).double().log(), 1e-5)


def test_long_blocks_are_scored_query_by_query_and_lose_little(monkeypatch):
    """Of 4000 trials, half with the record, the area under the curve errs by 0.01; the two scores share that error."""
    view = Responses.of(DSGD(), ring(6), rounds=12, lr=0.1).view([0])
    h, q, sigma = view.information(1), 0.15, 0.5
    generator = torch.Generator().manual_seed(0)
    answers = sigma * torch.randn(4000, 6, 12, dtype=torch.float64, generator=generator)
    answers[:2000, 1] += torch.rand(2000, 12, generator=generator) < q
    seen = answers.flatten(1) @ view.matrix.T
    apart = view.scores(1, seen, rate=q, noise=sigma)
    s = seen @ view.recover(1).T
    same(apart, torch.log(1 - q + q * torch.exp((s - h.diagonal() / 2) / sigma**2)).sum(dim=1))
    monkeypatch.setattr(views, "_SUMMED", 12)
    exact = view.scores(1, seen, rate=q, noise=sigma)
    assert not torch.allclose(apart, exact)
    best, found, plain = (area(score) for score in (exact, apart, s.sum(dim=1)))
    assert best - 0.002 < found
    assert plain + 0.02 < found


def area(scores):
    """The chance that a trial with the record, of the first half, scores higher than one without."""
    there, absent = scores.chunk(2)
    return float((there[:, None] > absent).double().mean())


def test_a_score_is_a_density_ratio():
    """Under absence E exp(score) = 1. Of 20000 draws the mean errs by 0.01 or so, within 5 deviations. The seed is fixed."""
    view = Responses.of(DSGD(), path(3), rounds=4, lr=0.1).view([0])
    answers = 2 * torch.randn(20_000, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for target in (1, 2):
        ratio = view.scores(target, answers @ view.matrix.T, rate=0.5, noise=2.0).exp()
        assert abs(float(ratio.mean()) - 1) < 5 * float(ratio.std()) / 20_000**0.5
