"""Noise with bands under attack: a sound system passes, and bands whose records count for more than is charged are caught.

Three agents who all hear each other, twelve queries, four bands, (3, 1e-2)-DP. All bounds of one attack hold together with a
confidence of 0.999. Sources are seeded.
"""

from typing import Any

import faults
import pytest

from tacit import DSGD, Cancelling, Privacy
from tacit.audit.attacks.collection import collect
from tacit.audit.attacks.neighbor import Neighbor
from tacit.audit.attacks.world import World
from tacit.audit.attacks.worlds import dirac, noise_world
from tacit.audit.bounds.findings import Claim, Findings, judge
from tacit.audit.noise.check import NoiseCheck
from tacit.errors import InvalidInput
from tacit.graphs import complete
from tacit.privacy import Fast

DELTA = 1e-2


def world(make: Any = dirac, noise: Cancelling | None = None) -> World:
    privacy = Privacy(epsilon=3.0, delta=DELTA, clip=1.0, lot_size=5, bands=4, noise=noise)
    return make(DSGD(), privacy=privacy, rounds=12, lr=0.05, graph=complete(3), records=20)


def attack(runs: int) -> Findings:
    made = Neighbor(world=world(), observers=[1], sources=Fast(1))
    return judge(collect(made, runs, batch=runs), Claim.of(made.event, DELTA), confidence=0.999)


def bound(findings: Findings) -> float:
    return max(each.largest for each in findings.thresholds if each.statistic == "bands")


@pytest.mark.slow
def test_a_sound_system_passes_and_its_bound_comes_close() -> None:
    findings = attack(400)
    assert findings.verdict == "no violation found", findings.to_json()
    assert findings.claim.epsilon == pytest.approx(3.0, rel=1e-3)
    assert 1 < bound(findings) <= findings.claim.epsilon


def test_the_attack_sees_all_that_is_charged() -> None:
    """At rate 1 the best score is normal with mean ±μ²/2 and deviation μ, μ² = turns/σ²; five standard errors of 300 runs each."""
    made = Neighbor(world=world(), observers=[1], sources=Fast(1))
    squared, error = made.event.count / made.event.noise_multiplier**2, 5 / 300**0.5
    for present, first, mean in ((True, 0, squared / 2), (False, 1000, -squared / 2)):
        scores = made.scores(300, present=present, seed=first)["bands"]
        assert abs(scores.mean() - mean) < error * squared**0.5
        assert abs(scores.std() / squared**0.5 - 1) < error / 2**0.5


@pytest.mark.slow
def test_behind_masks_the_attack_sees_all_that_is_charged_against_so_many_agents() -> None:
    """As above, with masks of which agent 1 knows its own."""
    noise = Cancelling(curious=1, ratio=2.0)
    made = Neighbor(world=world(noise=noise), observers=[1], sources=Fast(1), hears="all")
    assert made.plan.masks is not None
    assert made.event.noise_multiplier > 1.1 * made.plan.noise_multipliers[0]
    squared, error = made.event.count / made.event.noise_multiplier**2, 5 / 300**0.5
    for present, first, mean in ((True, 0, squared / 2), (False, 1000, -squared / 2)):
        scores = made.scores(300, present=present, seed=first)["bands"]
        assert abs(scores.mean() - mean) < error * squared**0.5
        assert abs(scores.std() / squared**0.5 - 1) < error / 2**0.5


def test_bands_with_the_wrong_sensitivity_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """C has columns of norm 2.5, and noise is that for norm 1."""
    faults.scale_bands(2.5, monkeypatch)
    findings = attack(200)
    assert findings.verdict == "broken"
    assert bound(findings) > 3


def test_lots_from_all_groups_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    faults.draw_from_all_groups(monkeypatch)
    assert attack(400).verdict == "broken"


def test_tests_of_independent_noise_are_refused() -> None:
    with pytest.raises(InvalidInput, match="independent noise"):
        NoiseCheck(world=world(noise_world), observers=[1])
