import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.data import IID, ByClass, DataSet, Dirichlet, class_fractions
from tacit.data.partition import apportion
from tacit.errors import DataError, InvalidInput

fractions_of_one = st.floats(0, 1)
rules = st.one_of(
    fractions_of_one.map(lambda t: ByClass(t=t)),
    st.floats(1e-3, 1e3).map(lambda alpha: Dirichlet(alpha=alpha, min_size=0)),
    st.just(IID()),
)


def targets_of(per_class: list[int], seed: int) -> torch.Tensor:
    labels = np.repeat(np.arange(len(per_class)), per_class)
    return torch.from_numpy(np.random.default_rng(seed).permutation(labels))


@given(rules, st.integers(1, 40), st.lists(st.integers(0, 60), min_size=1, max_size=12), st.integers(0, 2**32))
def test_every_record_goes_to_exactly_one_agent(rule, agents, per_class, seed):
    targets = targets_of(per_class, seed)
    parts = rule(targets, len(per_class), agents, np.random.default_rng(seed))
    assert len(parts) == agents
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(targets)))
    assert all(part.dtype == np.int64 for part in parts)


@given(fractions_of_one, st.integers(1, 60), st.integers(1, 30))
def test_fractions_of_a_class_sum_to_one(t, agents, classes):
    a = class_fractions(t, agents, classes)
    assert a.shape == (agents, classes)
    assert (a >= 0).all()
    np.testing.assert_allclose(a.sum(axis=0), 1, rtol=1e-12)


@pytest.mark.parametrize(("agents", "classes"), [(10, 10), (3, 10), (1, 4), (7, 100)])
@pytest.mark.parametrize("t", [0, 0.25, 0.5, 1])
def test_fractions_follow_the_papers_equation_where_agents_do_not_outnumber_classes(t, agents, classes):
    expected = np.zeros((agents, classes))
    for j in range(classes):
        for i in range(agents):
            if i != j % agents:
                expected[i, j] = (1 - t) / agents
        expected[j % agents, j] = 1 - expected[:, j].sum()
    np.testing.assert_allclose(class_fractions(t, agents, classes), expected, atol=1e-12)


def test_agents_beyond_the_number_of_classes_share_a_class_equally():
    a = class_fractions(1, agents=5, classes=2)
    np.testing.assert_allclose(a[:, 0], [1 / 3, 0, 1 / 3, 0, 1 / 3])
    np.testing.assert_allclose(a[:, 1], [0, 1 / 2, 0, 1 / 2, 0])


@given(
    fractions_of_one,
    st.integers(1, 50),
    st.lists(st.integers(0, 200), min_size=1, max_size=15),
)
def test_each_count_is_its_share_rounded_up_or_down(t, agents, per_class):
    shares = class_fractions(t, agents, len(per_class))
    dealt = apportion(shares, np.array(per_class))
    assert (dealt.sum(axis=0) == per_class).all()
    assert (np.abs(dealt - shares * per_class) < 1).all()


@given(st.integers(1, 80), st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_with_t_zero_sizes_differ_by_at_most_one(agents, per_class):
    dealt = apportion(class_fractions(0, agents, len(per_class)), np.array(per_class))
    sizes = dealt.sum(axis=1)
    assert sizes.max() - sizes.min() <= 1


def test_with_t_one_an_agent_holds_no_class_but_its_own():
    per_class = [13, 7, 22, 5]
    for agents in (1, 2, 3, 4, 9):
        dealt = apportion(class_fractions(1, agents, 4), np.array(per_class))
        groups = min(agents, 4)
        for i, j in np.argwhere(dealt):
            assert i % groups == j % groups


def test_a_thousand_agents_with_half_a_record_of_each_class_all_hold_fifty():
    dealt = apportion(class_fractions(0, 1000, 100), np.full(100, 500))
    assert set(dealt.sum(axis=1)) == {50}


@given(st.integers(0, 300), st.integers(1, 50))
def test_iid_sizes_differ_by_at_most_one_and_need_no_classes(records, agents):
    parts = IID()(torch.rand(records, 2), None, agents, np.random.default_rng(0))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_iid_hands_every_agent_the_mixture_of_classes():
    # Hypergeometric: mean 500, standard deviation 20.1. Six of them on 10 agents: false alarms below 1e-7.
    targets = torch.arange(50_000) % 10
    parts = IID()(targets, 10, 10, np.random.default_rng(3))
    own = [int((targets[torch.from_numpy(part)] == 0).sum()) for part in parts]
    assert max(abs(count - 500) for count in own) < 6 * 20.1


def test_dirichlet_shares_have_the_variance_of_their_alpha():
    # A share varies by (1/N)(1 − 1/N)/(Nα + 1) = 0.0125 for N=4, α=3.5. Over 3,000 shares the relative error
    # of the sample variance is about 3 %; both bounds are six standard errors or more: false alarms < 1e-8.
    rng = np.random.default_rng(5)
    targets = torch.arange(3_000).repeat(400)
    parts = Dirichlet(alpha=3.5, min_size=0)(targets, 3_000, 4, rng)
    share = np.bincount(targets.numpy()[parts[0]], minlength=3_000) / 400
    assert share.mean() == pytest.approx(0.25, abs=6 * np.sqrt(0.0125 / 3_000))
    assert share.var() == pytest.approx(0.0125, rel=0.2)


def test_dirichlet_draws_again_until_all_have_enough():
    targets = torch.arange(1_000) % 10
    parts = Dirichlet(alpha=0.3, min_size=30)(targets, 10, 8, np.random.default_rng(0))
    assert min(len(part) for part in parts) >= 30


def test_dirichlet_gives_up_with_advice():
    rule = Dirichlet(alpha=0.01, min_size=10)
    with pytest.raises(DataError, match=r"smallest of 20 agents at most \d of 200 records.*use a larger alpha"):
        rule(torch.arange(200) % 2, 2, 20, np.random.default_rng(0))


@pytest.mark.parametrize("rule", [ByClass(t=0.5), Dirichlet(alpha=1)])
def test_rules_by_class_refuse_records_without(rule):
    with pytest.raises(DataError, match="divides records by class, but these have no classes; use IID"):
        rule(torch.rand(5), None, 2, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ByClass(t=1.5), r"t=1.5 is outside \[0, 1\]"),
        (lambda: ByClass(t=float("nan")), "t=nan is outside"),
        (lambda: Dirichlet(alpha=0), "alpha=0 is outside"),
        (lambda: Dirichlet(alpha=float("inf")), "alpha=inf is outside"),
        (lambda: Dirichlet(alpha=1, min_size=-1), "min_size=-1 is negative"),
        (lambda: class_fractions(0.5, 0, 3), "0 agents and 3 classes"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_rules_describe_themselves():
    described = [str(rule) for rule in (ByClass(t=1), Dirichlet(alpha=0.1), Dirichlet(alpha=2, min_size=8), IID())]
    assert described == ["A(t=1)", "Dirichlet(alpha=0.1)", "Dirichlet(alpha=2, min_size=8)", "IID"]


def test_a_rule_of_ones_own_can_be_given():
    class FirstTakesAllButOne:
        def __str__(self):
            return "first takes all but one"

        def __call__(self, targets, classes, agents, rng):
            return np.split(np.arange(len(targets)), [len(targets) - 1])

    data = DataSet.from_records(name="x", train=(torch.zeros(5, 1), torch.zeros(5)))
    split = data.split(2, FirstTakesAllButOne())
    assert split.sizes == (4, 1)
    assert split.owners[1] == "x/first takes all but one/seed 0/2 agents/agent 1"
