"""Masks under attack: a sound system passes, and every planted fault of masks is caught by a coalition or by the test of noise.

Six agents on a ring, neighbours share masks five times as large as the noise that they replace, ten queries, (3, 1e-2)-DP against any
one other agent. All bounds of one attack hold together with a confidence of 0.999, and of 1 - 1e-7 where sources are secret. Everything
else is seeded.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import faults
import networkx as nx
import pytest
import torch

from tacit import DSGD, DSGT, Cancelling, Privacy
from tacit.audit.attacks.coalition import Coalition
from tacit.audit.attacks.collection import collect
from tacit.audit.attacks.natural import NaturalNeighbor
from tacit.audit.attacks.neighbor import Neighbor
from tacit.audit.attacks.world import World
from tacit.audit.attacks.worlds import dirac, noise_world
from tacit.audit.bounds.findings import Claim, Findings, judge
from tacit.audit.noise.check import NoiseCheck
from tacit.errors import InvalidInput
from tacit.privacy import Fast, Seeded, Sources
from tacit.privacy.noise_kinds import _deviations

AGENTS, ROUNDS, DELTA = 6, 10, 1e-2
SOUND = faults.MaskFaults(Fast(1))
ALL = tuple(range(AGENTS))


@pytest.fixture(autouse=True)
def forget_planted_accounting() -> Any:
    yield
    _deviations.cache_clear()


def world(make: Any = dirac, *, curious: int = 1, rule: Any = None, **settings: Any) -> World:
    privacy = Privacy(
        epsilon=3.0,
        delta=DELTA,
        clip=1.0,
        lot_size=5,
        noise=Cancelling(curious=curious, keys="graph", ratio=5.0),
    )
    graph = nx.cycle_graph(AGENTS)
    return make(rule or DSGD(), privacy=privacy, rounds=ROUNDS, lr=0.05, graph=graph, records=20, **settings)


class Thieves(Coalition):
    """A coalition that also has the key of agents 0 and 5."""

    @cached_property
    def known(self) -> frozenset[tuple[int, int]]:
        return super().known | {(0, 5)}


def attack(
    sources: Sources | None,
    observers: Sequence[int],
    *,
    runs: int,
    curious: int = 1,
    coalition: type[Coalition] = Coalition,
    confidence: float = 0.999,
) -> Findings:
    made = coalition(world=world(curious=curious), observers=observers, sources=sources)
    claim = Claim.of(made.event, DELTA)
    return judge(collect(made, runs, batch=runs), claim, confidence=confidence)


def largest(findings: Findings, statistic: str) -> float:
    return max(each.largest for each in findings.thresholds if each.statistic == statistic)


# Sound systems


@pytest.mark.chance(1e-7)
@pytest.mark.parametrize(
    ("observers", "runs"),
    [([1], 100), pytest.param([1, 5], 300, marks=pytest.mark.slow)],
)
def test_a_sound_system_passes(observers: list[int], runs: int) -> None:
    """With secret lots and noise; `test_bounds_come_close_to_what_is_claimed` plays more, with a seed."""
    findings = attack(None, observers, runs=runs, confidence=1 - 1e-7)
    assert findings.verdict == "no violation found", findings.to_json()["thresholds"]


@pytest.mark.slow
@pytest.mark.parametrize(("observers", "share"), [([1], 0.6), ([1, 5], 0.7)], ids=["any one", "both neighbours"])
def test_bounds_come_close_to_what_is_claimed(observers: list[int], share: float) -> None:
    """Against one agent, behind masks, and against the target's two neighbours, from whom own noise alone protects it. The seed is fixed."""
    findings = attack(Fast(5), observers, runs=2000)
    print(findings.claim.epsilon, findings.epsilon, findings.reach)
    assert findings.verdict == "no violation found"
    assert share * findings.claim.epsilon < findings.epsilon <= findings.claim.epsilon


@pytest.mark.chance(1e-9)
@pytest.mark.parametrize("rule", [DSGD(), DSGT()], ids=["dsgd", "dsgt"])
def test_sound_masks_are_as_stated(rule: Any) -> None:
    report = NoiseCheck(world=world(noise_world, rule=rule), observers=[1, 3, 5], false_alarm=1e-9).run(20)
    assert report.verdict == "as stated"
    assert {each.name for each in report.checks} >= {"sum", "agents", "sigma"}
    assert len(report.agents) == AGENTS


@pytest.mark.parametrize(
    "sources",
    [
        pytest.param(Fast(2), id="fast"),
        pytest.param(Seeded(2), id="seeded"),
        pytest.param(None, id="secret", marks=pytest.mark.chance(1e-6)),
    ],
)
def test_everybody_else_together_is_left_with_the_targets_own_noise(sources: Sources | None) -> None:
    """They know all masks: 400 answers have the stated own noise, within 5 standard errors."""
    made = Coalition(world=world(), observers=ALL[1:], sources=sources)
    seen = made.watch(40, present=False, seed=3, direction=made.world.direction)
    answers = made.plan.lot_sizes[0] * (seen @ made.view.recover(0).T)
    assert made.view.exact(0).all()
    ratio = float(answers.square().mean()) ** 0.5 / made.plan.noise_multipliers[0]
    assert abs(ratio - 1) < 5 / (2 * answers.numel()) ** 0.5


def test_a_neighbour_hears_less_than_everybody_and_knows_its_own_masks() -> None:
    near, all_heard = (Neighbor(world=world(), observers=[1], hears=hears) for hears in ("neighbours", "all"))
    assert near.known == all_heard.known == {(0, 1), (1, 2)}
    more = all_heard.view.information(3) - near.view.information(3)
    assert torch.linalg.eigvalsh(more).min() > -1e-9
    assert near.event == all_heard.event == near.plan.event(0)


def test_natural_records_behind_masks_are_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot be attacked behind masks"):
        NaturalNeighbor(world=world(), observers=[1, 5])


# Faults that a coalition shows


@pytest.mark.slow
def test_own_noise_that_everybody_forgot_shows_in_the_sum() -> None:
    findings = attack(faults.MaskFaults(Fast(1), forgetful=ALL), [1], runs=100)
    assert findings.verdict == "broken"
    assert largest(findings, "sum") == findings.epsilon


@pytest.mark.slow
def test_a_key_that_somebody_else_knows_breaks_the_claim() -> None:
    """Agent 1 also has the key of 0 and 5, so nothing but its own noise protects agent 0."""
    findings = attack(SOUND, [1], coalition=Thieves, runs=200)
    print(findings.claim.epsilon, findings.epsilon)
    assert findings.verdict == "broken"


@pytest.mark.slow
def test_accounting_with_the_curious_still_in_the_graph_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    faults.keep_the_curious_in_the_graph(monkeypatch)
    findings = attack(SOUND, [1, 5], curious=2, runs=200)
    print(findings.claim.epsilon, findings.epsilon)
    assert findings.claim.epsilon == pytest.approx(3.0, abs=1e-2)
    assert findings.verdict == "broken"


# Faults that the test of noise shows

FOUND = {
    "masks drawn once": (faults.MaskFaults(Fast(1), period=1), {"lag", "rounds", "shifts"}),
    "masks repeated after a resume": (faults.MaskFaults(Fast(1), period=ROUNDS // 2), {"shifts"}),
    "masks scaled by W": (faults.MaskFaults(Fast(1), mask_scale=1 / 3), {"agents"}),
    "own noise forgotten": (faults.MaskFaults(Fast(1), forgetful=ALL), {"sigma", "sum"}),
    "own noise of one agent forgotten": (faults.MaskFaults(Fast(1), forgetful=(0,)), {"sigma", "sum"}),
}


def failed(sources: Sources) -> set[str]:
    report = NoiseCheck(world=world(noise_world), observers=[1, 3, 5], sources=sources).run(20)
    return {each.name for each in report.failed}


@pytest.mark.parametrize("name", FOUND)
def test_a_fault_of_masks_is_found_and_named(name: str) -> None:
    sources, expected = FOUND[name]
    assert expected <= failed(sources)


def test_masks_that_do_not_cancel_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    faults.add_masks_at_both_ends(monkeypatch)
    assert {"sum", "sigma"} <= failed(SOUND)


def test_the_same_sources_without_a_fault_pass() -> None:
    assert not failed(SOUND)
