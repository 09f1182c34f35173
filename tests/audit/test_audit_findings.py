"""Thresholds are honest: how they are chosen, shared risk, scores that are none, and sources that differ from batch to batch."""

import networkx as nx
import numpy as np
import pytest

from tacit import DSGD, DiNNO, Privacy
from tacit.audit.attacks.collection import Collected, collect
from tacit.audit.attacks.neighbor import Neighbor
from tacit.audit.attacks.worlds import dirac
from tacit.audit.bounds.findings import Claim, _estimate, _interval, judge
from tacit.audit.bounds.rates import Outcomes, clopper_pearson_bound
from tacit.errors import InvalidInput
from tacit.privacy import Fast
from tacit.privacy.event import Event

CLAIM = Claim.of(Event(sample_rate=0.1, noise_multiplier=2.0458, count=100), 1e-2)


def world(**changes: object) -> object:
    settings = {"rounds": 3, "lr": 0.05, "graph": nx.complete_graph(3), "records": 10}
    privacy = Privacy(epsilon=1.0, delta=1e-2, clip=1.0, lot_size=2)
    return dirac(DSGD(), **{"privacy": privacy, **settings, **changes})


def test_scores_without_a_difference_prove_nothing_and_share_the_risk() -> None:
    rng = np.random.default_rng(0)
    draws = [{name: rng.normal(size=500) for name in ("likelihood", "variation")} for _ in range(2)]
    found = judge(Collected(*draws), CLAIM, confidence=0.94)
    assert found.verdict == "no violation found"
    assert found.epsilon < 0.2
    assert len(found.thresholds) == 6
    assert all(bound.confidence == pytest.approx(0.99) for each in found.thresholds for bound in each.bounds)
    assert [each.chosen for each in found.thresholds[:3]] == ["beforehand", "beforehand", "on the first part"]
    assert found.thresholds[2].outcomes.absent == 400


def test_perfect_scores_break_the_claim_whatever_is_wrong() -> None:
    found = judge(Collected({"x": np.zeros(300)}, {"x": np.ones(300)}), CLAIM)
    assert found.verdict == "broken"
    assert found.epsilon_whatever > 3


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, -1])
def test_runs_that_overflowed_are_no_evidence(bad: float, place: int) -> None:
    scores = np.zeros(100)
    scores[place] = bad
    with pytest.raises(InvalidInput, match="step size is too large"):
        judge(Collected({"likelihood": scores}, {"likelihood": np.zeros(100)}), CLAIM)


def test_seeded_batches_differ() -> None:
    attack = Neighbor(world=world(), observers=[1], sources=Fast(3))
    several = collect(attack, 30, batch=10).absent["likelihood"]
    assert len(np.unique(several)) == 30
    assert several.tolist() == pytest.approx(collect(attack, 30, batch=30).absent["likelihood"].tolist(), rel=1e-5)


def test_a_single_query_can_be_attacked() -> None:
    attack = Neighbor(world=world(rounds=1), observers=[1], sources=Fast(3))
    found = judge(collect(attack, 40, batch=40), Claim.of(attack.event, 1e-2))
    assert {each.statistic for each in found.thresholds} == {"likelihood"}


@pytest.mark.parametrize("observers", [[], [7], [-1]])
@pytest.mark.parametrize("rule", [DSGD(), DiNNO()])
def test_observers_must_be_agents(observers: list[int], rule: object) -> None:
    with pytest.raises(InvalidInput, match="from 0 to 2"):
        Neighbor(
            world=dirac(
                rule,
                privacy=Privacy(epsilon=1.0, delta=1e-2, clip=1.0, lot_size=2),
                rounds=2,
                graph=nx.complete_graph(3),
            ),
            observers=observers,
        )


@pytest.mark.parametrize("promise", [{"adjacency": "replace_one"}, {"accountant": "rdp"}])
def test_only_claims_that_the_attack_can_contradict_are_taken(promise: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="add_remove"):
        world(privacy=Privacy(epsilon=1.0, delta=1e-2, clip=1.0, lot_size=2, **promise))


def test_reach_is_what_the_best_attack_on_a_system_as_stated_shows():
    """Scores drawn from the mechanism itself: what they prove is about what was said to be within reach."""
    claim = Claim.of(Event(sample_rate=1.0, noise_multiplier=4.0, count=16), 1e-2)
    generator = np.random.default_rng(0)
    shift = np.sqrt(16) / 4.0  # one record moves the sum of all answers by so many standard deviations
    draws = [generator.normal(size=4000), generator.normal(shift, size=4000)]
    absent, present = (shift * draw - shift**2 / 2 for draw in draws)
    found = judge(Collected({"likelihood": absent}, {"likelihood": present}), claim)
    assert found.reach == pytest.approx(found.thresholds[0].bounds[1].epsilon, rel=0.1)
    assert 0.5 * claim.epsilon < found.reach < claim.epsilon
    few = judge(Collected({"likelihood": absent[:20]}, {"likelihood": present[:20]}), claim)
    assert few.reach < 0.2 * found.reach


def test_the_interval_of_an_estimate_holds_it_and_the_truth():
    """With the true rates of error given, the interval misses what they amount to less often than its risk."""
    generator, delta, alarm, hit = np.random.default_rng(0), 1e-2, 0.3, 0.5
    truth, runs, inside = np.log((hit - delta) / alarm), 500, 0
    for _ in range(400):
        alarms, misses = generator.binomial(runs, alarm), generator.binomial(runs, 1 - hit)
        outcomes = Outcomes(absent=runs, false_alarms=int(alarms), present=runs, misses=int(misses))
        low, high = _interval(outcomes, delta, 0.9)
        assert low < _estimate(outcomes, delta) < high
        inside += low <= truth <= high
    assert inside >= 0.9 * 400
    perfect = Outcomes(absent=10, false_alarms=0, present=10, misses=0)
    assert _estimate(perfect, delta) == _interval(perfect, delta, 0.9)[1] == np.inf
    assert 0 < _interval(perfect, delta, 0.9)[0] < np.inf
    wrong = Outcomes(absent=10, false_alarms=10, present=10, misses=10)
    assert _interval(wrong, delta, 0.9) == (0, 0)


def test_estimate_and_interval_look_at_both_directions():
    """Few misses show more than few false alarms do, and the other way round; exchanged errors change nothing."""
    delta = 1e-2
    few_misses = Outcomes(absent=1000, false_alarms=900, present=1000, misses=20)
    few_alarms = Outcomes(absent=1000, false_alarms=20, present=1000, misses=900)
    for outcomes in (few_misses, few_alarms):
        assert _estimate(outcomes, delta) == pytest.approx(np.log((0.1 - delta) / 0.02))
    assert _interval(few_misses, delta, 0.9) == pytest.approx(_interval(few_alarms, delta, 0.9))


def test_no_bound_whatever_is_wrong_exceeds_the_interval():
    generator = np.random.default_rng(0)
    for _ in range(2000):
        absent, present = (int(runs) for runs in generator.integers(1, 3000, size=2))
        alarms, misses = int(generator.integers(absent + 1)), int(generator.integers(present + 1))
        outcomes = Outcomes(absent=absent, false_alarms=alarms, present=present, misses=misses)
        delta, confidence = float(generator.choice([0, 1e-5, 1e-2])), float(generator.uniform(0.5, 0.999))
        low, high = _interval(outcomes, delta, confidence)
        bound = clopper_pearson_bound(outcomes, delta=delta, confidence=confidence).epsilon
        assert low <= _estimate(outcomes, delta) <= high
        assert low <= bound <= high
