"""A check of settings tests the noise that they ask for: masks as a coalition sees them, bands, and discrete noise.

Seeds are fixed, but where a rate is stated.
"""

from dataclasses import replace
from typing import Any

import faults
import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import nn

from tacit import DSGD, Cancelling, Discrete, Privacy, Training, Unit
from tacit.audit import check
from tacit.audit.detectors.bare_noise import read_noise
from tacit.audit.detectors.lots import check_lots, read_lots
from tacit.audit.detectors.noise import check_noise
from tacit.audit.detectors.report import CheckFinding
from tacit.audit.noise.discrete_scores import normal_scores
from tacit.audit.noise.noise_statistics import size_p_value
from tacit.data import AgentData
from tacit.graphs import ring
from tacit.privacy import Fast, discrete_noise, noise_kinds
from tacit.privacy.noise_kinds import DiscreteGaussian
from tacit.privacy.randomness import Sources
from tacit.training.session import Session

RISK = 1e-6
AGENTS, RECORDS, LOT = 5, 60, 6
MASKED = {"noise": Cancelling(curious=1, keys="graph", ratio=3.0)}
BANDED = {"bands": 4}
DISCRETE = {"noise": Discrete(3), "accountant": "rdp"}


@pytest.fixture(autouse=True)
def forget_planted_accounting() -> Any:
    yield
    noise_kinds._deviations.cache_clear()


def training(sources: Sources | None = None, **noise: Any) -> Training:
    generator = torch.Generator().manual_seed(0)
    parts = [(torch.randn(RECORDS, 8, generator=generator), torch.arange(RECORDS) % 4) for _ in range(AGENTS)]
    return Training(
        algorithm=DSGD(),
        model=lambda: nn.Linear(8, 4),
        data=AgentData.from_parts(parts, name="small", classes=4),
        privacy=Privacy(noise_multiplier=1.5, delta=1e-3, clip=1.0, lot_size=LOT, **noise),
        rounds=12,
        lr=0.1,
        graph=ring(AGENTS),
        sources=sources,
    )


def noise_of(settings: Training, queries: int = 16) -> list[CheckFinding]:
    with Session(settings) as session:
        plan = session.plan
    return check_noise(read_noise(settings, plan, 300, torch.float32, queries), RISK)


def lots_of(settings: Training, queries: int = 48) -> list[CheckFinding]:
    sizes = settings.data.sizes
    return check_lots(read_lots(settings, settings.privacy.plan(sizes, 12), sizes, queries), RISK)


def failed(findings: list[CheckFinding]) -> set[str]:
    return {f"{each.part}: {each.name}" for each in findings if each.outcome == "fail"}


@pytest.mark.chance(RISK)
@pytest.mark.parametrize(
    ("noise", "named"),
    [
        pytest.param(MASKED, "masks, as seen by any one other agent", marks=pytest.mark.slow),
        pytest.param(BANDED, "4 bands", marks=pytest.mark.slow),
        pytest.param(DISCRETE, "discrete noise", marks=pytest.mark.slow),
        (MASKED | BANDED, "4 bands · masks"),
        pytest.param({"noise": Discrete(0), "accountant": "rdp"}, "discrete noise", marks=pytest.mark.slow),
    ],
    ids=["masks", "bands", "discrete", "both", "coarse"],
)
def test_sound_settings_pass_and_say_what_was_tested(noise: dict[str, Any], named: str) -> None:
    report = check(training(**noise), false_alarm=RISK)
    assert report.verdict == "no fault found", report.failed
    assert named in report.about
    assert 0 < report.false_alarm <= RISK
    names = {(each.part, each.name) for each in report.findings}
    assert (("noise", "sum") in names) == (("noise", "protection") in names) == ("masks" in named)
    assert (("lots", "turns") in names) == ("bands" in named)


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        (faults.MaskFaults(Fast(1)), set()),
        (faults.MaskFaults(Fast(1), period=1), {"noise: shifts"}),
        pytest.param(faults.MaskFaults(Fast(1), period=8), {"noise: shifts"}, marks=pytest.mark.slow),
        (faults.MaskFaults(Fast(1), forgetful=tuple(range(AGENTS))), {"noise: size", "noise: sum"}),
        pytest.param(faults.MaskFaults(Fast(1), mask_scale=1 / 3), {"noise: shifts"}, marks=pytest.mark.slow),
    ],
    ids=["sound", "drawn once", "repeated", "own noise forgotten", "scaled by W"],
)
def test_faults_of_masks_are_found(sources: Sources, found: set[str]) -> None:
    seen = failed(noise_of(training(sources, **MASKED)))
    assert found <= seen
    assert seen or not found


def test_masks_that_do_not_cancel_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    faults.add_masks_at_both_ends(monkeypatch)
    assert "noise: sum" in failed(noise_of(training(faults.MaskFaults(Fast(1)), **MASKED)))


def test_a_claim_that_forgets_what_the_curious_know_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    faults.keep_the_curious_in_the_graph(monkeypatch)
    assert "noise: protection" in failed(noise_of(training(Fast(1), **MASKED)))


@pytest.mark.slow
def test_the_coalition_is_as_large_as_stated_and_the_worst() -> None:
    """On a ring of five keys, the two neighbours of an agent are left with its own noise alone."""
    settings = training(Fast(1), noise=Cancelling(curious=2, keys="graph", ratio=3.0))
    with Session(settings) as session:
        plan = session.plan
    view = read_noise(settings, plan, 20, torch.float32, 8).view
    assert view is not None
    near = {(view.target - 1) % AGENTS, (view.target + 1) % AGENTS}
    assert set(view.curious) == near
    assert view.protects == pytest.approx(plan.noise_multipliers[view.target], rel=1e-9)


def test_bands_with_the_wrong_sensitivity_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    faults.scale_bands(1.2, monkeypatch)
    assert "noise: size" in failed(noise_of(training(Fast(1), **BANDED)))


@pytest.mark.slow
def test_noise_that_is_not_correlated_as_stated_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bands, noise has the right size in no sum of answers, and what undoing them leaves is correlated."""
    monkeypatch.setattr("tacit.privacy.oracle.BandedNoise", lambda noise, column: noise)
    assert "noise: shifts" in failed(noise_of(training(Fast(1), **BANDED)))


@pytest.mark.parametrize(
    "unit", [None, pytest.param(Unit("patient", most=1), marks=pytest.mark.slow)], ids=["records", "units"]
)
def test_lots_from_all_groups_are_found(unit: Unit | None, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = training(Fast(1), **BANDED, unit=unit)
    if unit is not None:
        train = settings.data.dataset.train.of_units(range(AGENTS * RECORDS))
        settings = replace(settings, data=replace(settings.data, dataset=replace(settings.data.dataset, train=train)))
    assert not failed(lots_of(settings))
    faults.draw_from_all_groups(monkeypatch)
    assert "lots: turns" in failed(lots_of(settings))


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        pytest.param(faults.use_each_lot_twice, "lots: turns", marks=pytest.mark.slow),
        (lambda patch: faults.draw_at(1.5, patch), "lots: rate"),
    ],
    ids=["twice", "rate"],
)
def test_lots_of_turns_that_are_not_poisson_are_found(plant: Any, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert found in failed(lots_of(training(Fast(1), **BANDED)))


@pytest.mark.parametrize("bits", [pytest.param(0, marks=pytest.mark.slow), 10])
def test_faults_of_discrete_noise_are_found(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = training(Fast(1), noise=Discrete(bits), accountant="rdp")
    sound = discrete_noise.draw_integers
    monkeypatch.setattr(discrete_noise, "draw_integers", lambda stream, deviation, n: sound(stream, 0.8 * deviation, n))
    assert "noise: size" in failed(noise_of(settings))

    def stuck(stream: Any, deviation: float, count: int) -> Any:
        return sound(Fast(3).make(1)[0].next(), deviation, count)

    monkeypatch.setattr(discrete_noise, "draw_integers", stuck)
    assert "noise: shifts" in failed(noise_of(settings))


def test_noise_that_does_not_cover_rounding_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: noise for vectors as long as they were before rounding, which makes them up to 1.3 times as long here."""
    settings = training(Fast(1), **DISCRETE)
    assert "noise: size" not in failed(noise_of(settings))
    monkeypatch.setattr(DiscreteGaussian, "steps", lambda self, clip: self.multiplier * clip / self.rounding.step(clip))
    assert "noise: size" in failed(noise_of(settings))


@pytest.mark.parametrize("deviation", [0.3, 1.0, 50.0])
def test_discrete_noise_becomes_exactly_normal(deviation: float) -> None:
    """By the Kolmogorov-Smirnov test of 20,000 numbers, on a fixed seed; half the deviation is noticed by their size."""
    reach = np.arange(-int(12 * deviation) - 3, int(12 * deviation) + 4)
    weights = np.exp(-(reach**2) / (2 * deviation**2))
    chance = np.random.default_rng(1)
    numbers = chance.choice(reach, 20_000, p=weights / weights.sum())
    assert kstest(normal_scores(numbers, deviation, chance), "norm").pvalue > 0.01
    assert size_p_value(normal_scores(numbers, deviation, chance)) > 0.01
    assert size_p_value(normal_scores(numbers, deviation / 2, chance)) < RISK
    assert np.isfinite(normal_scores(np.array([0, 10**6, -(10**6)]), deviation, chance)).all()
