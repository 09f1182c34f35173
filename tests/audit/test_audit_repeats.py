"""Masks that come back: a coalition that looks at all rounds together catches them.

Sixteen agents who all hear each other, ring keys with large masks, six queries, (2, 1e-2)-DP against any one other agent. Bounds of one attack
hold together with a confidence of 0.999. Sources are seeded.
"""

import faults
import networkx as nx
import numpy as np
import pytest
import torch

from tacit import DSGD, Cancelling, Privacy
from tacit.audit.attacks.coalition import Coalition
from tacit.audit.attacks.collection import collect
from tacit.audit.attacks.repeats import repeat_scores
from tacit.audit.attacks.worlds import dirac
from tacit.audit.bounds.findings import Claim, Findings, judge
from tacit.audit.linear.views import log_ratio
from tacit.graphs import complete
from tacit.privacy import Fast

AGENTS, QUERIES, DELTA = 16, 6, 1e-2


def attack(sources: faults.MaskFaults, runs: int = 200) -> Findings:
    noise = Cancelling(curious=1, ratio=10.0, keys=nx.cycle_graph(AGENTS))
    privacy = Privacy(epsilon=2.0, delta=DELTA, clip=1.0, lot_size=5, noise=noise)
    world = dirac(DSGD(), privacy=privacy, rounds=QUERIES, lr=0.05, graph=complete(AGENTS), records=20)
    made = Coalition(world=world, observers=[1], sources=sources)
    return judge(collect(made, runs, batch=runs), Claim.of(made.event, DELTA), confidence=0.999)


@pytest.mark.slow
def test_a_sound_system_passes() -> None:
    findings = attack(faults.MaskFaults(Fast(1)))
    assert findings.verdict == "no violation found", findings.to_json()


@pytest.mark.slow
@pytest.mark.parametrize("period", [1, QUERIES // 2], ids=["drawn once", "repeated after a resume"])
def test_masks_that_come_back_break_the_claim(period: int) -> None:
    findings = attack(faults.MaskFaults(Fast(1), period=period))
    assert findings.verdict == "broken"
    assert max(each.largest for each in findings.thresholds if each.statistic == "repeats") == findings.epsilon


def answers_with(period: int, present: bool, trials: int = 400) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return answers of four agents with ring keys whose masks have a period, their own variances, and the masks' covariance."""
    generator = torch.Generator().manual_seed(period + present)
    laplacian = torch.from_numpy(nx.laplacian_matrix(nx.cycle_graph(4)).toarray()).double()
    ends = torch.from_numpy(nx.incidence_matrix(nx.cycle_graph(4), oriented=True).toarray()).double()
    own = torch.full((4,), 0.3**2, dtype=torch.float64)
    drawn = 3.0 * torch.randn(trials, 4, QUERIES, dtype=torch.float64, generator=generator)
    masks = torch.einsum("ae,teq->taq", ends, drawn[..., torch.arange(QUERIES) % period])
    answers = masks + 0.3 * torch.randn(trials, 4, QUERIES, dtype=torch.float64, generator=generator)
    if present:
        answers[:, 2] += (torch.rand(trials, QUERIES, generator=generator) < 0.25).double()
    return answers, own, 9.0 * laplacian


def test_with_fresh_masks_it_is_the_likelihood_ratio_of_a_sound_system() -> None:
    answers, own, masks = answers_with(QUERIES, present=True)
    precision = torch.linalg.inv(torch.diag(own) + masks)
    alone = torch.eye(QUERIES, dtype=torch.float64)
    seen = torch.einsum("a,taq->tq", precision[2], answers)
    expected = log_ratio(precision[2, 2] * alone, seen, rate=0.25, noise=1.0).numpy()
    found = repeat_scores(answers, own, masks, target=2, rate=0.25)
    assert found is not None
    assert np.mean(np.isclose(found, expected)) > 0.99  # in nearly all runs the right period is found


@pytest.mark.parametrize("period", [1, 2, 3])
def test_with_masks_that_come_back_only_own_noise_protects(period: int) -> None:
    """A present record has the higher score in nine of ten pairs of runs, and in six of ten with fresh masks."""

    def ranked(period: int) -> float:
        scores = [repeat_scores(*answers_with(period, present), target=2, rate=0.25) for present in (True, False)]
        assert scores[0] is not None
        assert scores[1] is not None
        return float(np.mean(scores[0][:, None] > scores[1][None]))

    assert ranked(period) > 0.85
    assert ranked(QUERIES) < 0.8


def test_too_many_answers_are_left_alone() -> None:
    many = torch.zeros(1, 4, 1000, dtype=torch.float64)
    assert repeat_scores(many, torch.ones(4).double(), torch.eye(4).double(), target=0, rate=0.5) is None
