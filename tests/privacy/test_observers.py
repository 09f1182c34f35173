"""ε says against whom: plans, ledgers and budgets with masks, and what is kept of them."""

import json

import networkx as nx
import numpy as np
import pytest

import tacit
from tacit.errors import BudgetExceeded, PrivacyError
from tacit.privacy import Budget, Cancelling, DurableLedger, Event, Ledger, Observer, Privacy, accounting, cancelling
from tacit.privacy.observers import EVERYBODY
from tacit.privacy.stated_epsilons import find_cut_off

TERMS = {"delta": 1e-5, "clip": 1.0, "lot_size": 256}
OWNERS = [f"agent {number}" for number in range(10)]


def plan(noise, *, queries=100, sizes=(6000,) * 10, pairs=(), **changes):
    return Privacy(**{"epsilon": 1.0, **TERMS, **changes}, noise=noise).plan(sizes, queries, pairs=pairs)


def opened(ledger, made, run="one"):
    account = ledger.open(run=run, owners=OWNERS, mechanisms=made.mechanisms, queries=made.queries, release=True)
    for _ in range(made.queries):
        account.spend()
    account.close(finished=True)
    return ledger


@pytest.fixture(scope="module")
def masked():
    return plan(Cancelling(curious=1, ratio=1.0))


def test_the_stated_epsilon_holds_against_as_many_as_are_curious_and_more_lose_more(masked):
    ledger = opened(Ledger(), masked)
    against = [ledger.guarantee("agent 3", delta=1e-5, observer=Observer(curious)).epsilon for curious in (0, 1, 2, 8)]
    everybody = ledger.guarantee("agent 3", delta=1e-5)
    assert against[1] == pytest.approx(1.0, rel=2e-4)
    assert against[1] <= 1.0
    assert against == sorted(against)
    assert everybody.epsilon > against[-1] > 2
    assert everybody.observer == EVERYBODY
    local = Event(sample_rate=256 / 6000, noise_multiplier=masked.noise_multipliers[3], count=100)
    assert everybody.epsilon == accounting.epsilon([local], delta=1e-5)
    assert "against any one other agent" in str(ledger.guarantee("agent 3", delta=1e-5, observer=Observer(1)))


def test_noise_that_protects_follows_from_the_covariance_of_those_who_are_honest(masked):
    """[Σ_H⁻¹]_ii of nine agents, from the plan's own numbers."""
    own, mask = (np.array(masked.noise_multipliers) / 256)[0], masked.masks.size
    covariance = own**2 * np.eye(9) + mask**2 * (9 * np.eye(9) - np.ones((9, 9)))
    sigma = np.linalg.inv(covariance)[0, 0] ** -0.5 * 256
    assert masked.event(0).noise_multiplier == pytest.approx(sigma, rel=1e-8)
    local = plan(None).noise_multipliers[0]
    assert sigma == pytest.approx(local, rel=1e-5)
    assert own * 256 * np.sqrt(10) == pytest.approx(1.11 * local, rel=0.01), "nearly central noise in the average"


def test_epsilon_moves_with_queries_and_delta(masked):
    """The same own noise and masks, asked more often or for a smaller δ: ε is that of so many queries at σ_eff."""
    before = 0.0
    for queries in (25, 100, 400):
        made = plan(Cancelling(ratio=1.0), queries=queries, epsilon=None, noise_multiplier=2.0)
        assert made.masks == plan(Cancelling(ratio=1.0), epsilon=None, noise_multiplier=2.0).masks
        sigma = made.mechanism(0).noise_against(Observer(1))
        event = Event(sample_rate=256 / 6000, noise_multiplier=sigma, count=queries)
        guarantee = opened(Ledger(), made).guarantee("agent 0", delta=1e-5, observer=Observer(1))
        assert guarantee.epsilon == accounting.epsilon([event], delta=1e-5) > 1.5 * before
        before = guarantee.epsilon
    ledger, terms = opened(Ledger(), masked), {"observer": Observer(1)}
    by_delta = [ledger.guarantee("agent 0", delta=delta, **terms).epsilon for delta in (1e-3, 1e-5, 1e-7)]
    assert by_delta[0] < 0.9 * by_delta[1] < 0.9**2 * by_delta[2]
    twice = opened(opened(Ledger(), masked), masked, run="two")
    assert twice.guarantee("agent 0", delta=1e-5, **terms).epsilon > 1.3


def test_agents_between_two_curious_neighbours_on_a_ring_have_their_local_epsilon():
    ring = nx.cycle_graph(10)
    made = plan(Cancelling(curious=1, keys="graph", ratio=5.0), pairs=list(ring.edges()))
    ledger = opened(Ledger(), made)
    two, all_others = (
        ledger.guarantee("agent 1", delta=1e-5, observer=each).epsilon for each in (Observer(2), EVERYBODY)
    )
    assert two == all_others
    alone = Event(sample_rate=256 / 6000, noise_multiplier=made.noise_multipliers[1], count=100)
    assert two == accounting.epsilon([alone], delta=1e-5)


def test_noise_is_planned_for_those_who_may_leave():
    """The stated ε holds against one curious agent with two more lost, which takes more own noise."""
    kept, losing = (plan(Cancelling(curious=1, ratio=1.0, lost=lost)) for lost in (0, 2))
    assert losing.noise_multipliers[0] > kept.noise_multipliers[0]
    against = opened(Ledger(), losing).guarantee("agent 0", delta=1e-5, observer=Observer(1)).epsilon
    assert against == pytest.approx(1.0, rel=2e-4)
    assert against <= 1.0


def test_agents_whom_masks_do_not_protect_are_found():
    """On a path of keys an end stands alone against one curious agent, and everybody against two."""
    made = plan(Cancelling(curious=1, keys=nx.path_graph(10), ratio=1.0))
    assert find_cut_off(made.mechanisms, Observer(0)) == []
    assert find_cut_off(made.mechanisms, Observer(1)) == [0, 9]
    assert find_cut_off(made.mechanisms, Observer(2)) == list(range(10))
    complete = plan(Cancelling(curious=1, ratio=1.0))
    assert find_cut_off(complete.mechanisms, Observer(8)) == []


def test_agents_that_differ_are_each_protected_as_stated(monkeypatch):
    """With like shares of own noise, which cost the average next to nothing here, and with as little of it as protects everybody."""
    sizes, lots, clips = [3000, 6000, 9000] * 3 + [6000], [128, 256, 256] * 3 + [200], [1.0, 2.0, 0.5] * 3 + [1.0]
    epsilons = [1.0, 0.5, 2.0] * 3 + [1.0]
    settings = {"sizes": sizes, "lot_size": lots, "clip": clips, "epsilon": epsilons}
    needed = np.array(plan(None, **settings).noise_multipliers)

    def tight_with(made):
        ledger = opened(Ledger(), made)
        kept = [each.epsilon for each in ledger.guarantees(OWNERS, delta=1e-5, observer=Observer(1))]
        assert all(value <= target for value, target in zip(kept, epsilons, strict=True))
        return np.array(kept) > 0.999 * np.array(epsilons)

    made = plan(Cancelling(ratio=1.0), **settings)
    assert tight_with(made).any()
    assert np.ptp(np.array(made.noise_multipliers) / needed) < 1e-4  # own noise is rounded up to five digits
    monkeypatch.setattr(cancelling, "_even_out", lambda own, *_: own)
    uneven = plan(Cancelling(ratio=1.0), **settings)
    tight, least = tight_with(uneven), np.array(uneven.noise_multipliers) < needed / np.sqrt(10) * (1 + 1e-4)
    assert (tight | least).all(), (
        "who has more protection than was asked for has no more noise than its share of central noise"
    )
    assert tight.any()
    assert np.square(made.masks.own).sum() <= 1.02 * np.square(uneven.masks.own).sum()


@pytest.mark.parametrize("durable", [False, True])
def test_masks_are_kept_with_an_account_and_read_back(masked, durable, tmp_path):
    ledger = opened(DurableLedger(tmp_path / "ledger.sqlite") if durable else Ledger(), masked)
    again = DurableLedger(tmp_path / "ledger.sqlite") if durable else Ledger.from_json(ledger.to_json())
    assert again.accounts[0].lines == ledger.accounts[0].lines
    for observer in (Observer(1), Observer(2), EVERYBODY):
        found = again.guarantees(OWNERS, delta=1e-5, observer=observer)
        assert found == ledger.guarantees(OWNERS, delta=1e-5, observer=observer)
    if durable:
        assert again.verify() == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda account: account | {"masks": None}, "without its masks"),
        (lambda account: account | {"masks": account["masks"] | {"size": -1.0}}, "size of masks"),
        (lambda account: account | {"masks": account["masks"] | {"own": [0.1] * 9}}, "for each of 10"),
        (lambda account: account | {"masks": account["masks"] | {"keys": [[1, 0]]}}, "smaller number first"),
        (lambda account: account | {"masks": account["masks"] | {"keys": [[0, "1"]]}}, "a key is shared"),
        (lambda account: account | {"masks": account["masks"] | {"lost": True}}, "lost is True"),
        (lambda account: account | {"masks": account["masks"] | {"own": [9.0] * 10}}, "its neighbours count on"),
        (
            lambda account: account | {"lines": [account["lines"][0], {**account["lines"][0], "owner": "x"}]},
            "different agent",
        ),
    ],
)
def test_masks_that_cannot_be_are_refused(masked, change, said):
    document = json.loads(opened(Ledger(), masked).to_json())
    document["accounts"] = [change(document["accounts"][0])]
    with pytest.raises(PrivacyError, match=said):
        Ledger.from_json(json.dumps(document))


def test_a_budget_is_for_a_stated_observer(masked):
    """A run of ε=1 against any one fits a budget of 1.2 against any one, and not one against everybody else together."""
    kinder = Ledger(Budget(epsilon=1.2, delta=1e-5, observer=Observer(1)))
    assert "against any one other agent" in str(kinder.budget)
    opened(kinder, masked)
    with pytest.raises(BudgetExceeded, match=r"past its budget of ε=1\.2 against any one other agent"):
        opened(kinder, masked, run="two")
    with pytest.raises(BudgetExceeded, match=r"past its budget of ε=1\.2 at"):
        opened(Ledger(Budget(epsilon=1.2, delta=1e-5)), masked)
    assert Ledger.from_json(kinder.to_json()).budget == kinder.budget


def test_what_a_budgets_filter_proves_holds_against_its_observer_and_weaker_ones_only():
    made = plan(Cancelling(ratio=1.0), epsilon=0.3)
    ledger = Ledger(Budget(epsilon=2.0, delta=1e-5, observer=Observer(1)))
    for run in ("one", "two"):
        opened(ledger, made, run=run)
    terms = {"delta": 1e-5}
    assert ledger.guarantee("agent 0", observer=Observer(1), **terms).adaptive == 2.0
    assert ledger.guarantee("agent 0", observer=Observer(0), **terms).adaptive == 2.0
    assert ledger.guarantee("agent 0", observer=Observer(2), **terms).adaptive is None
    assert ledger.guarantee("agent 0", **terms).adaptive is None


def test_a_plan_of_some_agents_keeps_their_numbers(masked):
    some = masked.of([7, 2])
    assert [each.noise.agent for each in some.mechanisms] == [7, 2]
    assert [each.noise.agent for each in some.of([1]).mechanisms] == [2]
    assert [each.noise.agent for each in some.repeated(2).mechanisms] == [7, 2, 7, 2]
    assert some.mechanisms[0] == masked.mechanism(7)


def test_bad_observers_are_refused():
    for wrong in (-1, 1.5, "one"):
        with pytest.raises(PrivacyError, match="curious is"):
            Observer(wrong)
    for wrong in ("x", 1, None, "-1", "1.0"):
        with pytest.raises(PrivacyError, match="an observer is"):
            Observer.of_key(wrong)
    with pytest.raises(PrivacyError, match="observer is 1"):
        Budget(epsilon=1.0, delta=1e-5, observer=1)
    with pytest.raises(PrivacyError, match="noise is"):
        Privacy(epsilon=1.0, **TERMS, noise="cancelling")


def test_no_more_agents_are_curious_than_there_are_others():
    data = tacit.data.load("digits").split(4, tacit.data.IID(), seed=0)
    noise = {"noise_multiplier": 1.0, "delta": 1e-3, "clip": 1.0, "lot_size": 20, "noise": Cancelling()}
    settings = {"model": "logistic", "data": data, "privacy": Privacy(**noise), "graph": "ring", "rounds": 1, "lr": 0.1}
    result = tacit.train(tacit.DSGT(), **settings)
    assert result.guarantees(Observer(3))[0].epsilon == result.guarantees(EVERYBODY)[0].epsilon
    with pytest.raises(
        PrivacyError, match=r"any 7 other agents, but each of 4 agents has only 3 others; give at most 3, or Obs"
    ):
        result.guarantees(Observer(7))
