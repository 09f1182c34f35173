"""What every rule of the family becomes in a special case, what it converges to, and where it is refused."""

import networkx as nx
import pytest
import torch
from torch import nn

import tacit
from tacit import algorithms, graphs
from tacit.algorithms import (
    ADPSGD,
    D2,
    EXTRA,
    LEASGD,
    QDPSGD1,
    SDMDSGD,
    ChocoSGD,
    DeepSqueeze,
    LocalDSGD,
    Muffliato,
    Robust,
)
from tacit.errors import GraphError, InvalidInput
from tacit.networks import (
    DENSE,
    QSGD,
    BFloat16,
    Float16,
    RandomK,
    RandomMatchings,
    StackedNetwork,
    TopK,
    as_topology,
    base_graphs,
    one_peer_exponential,
)
from tacit.runs.rules import make_shipped_rule
from tacit.training.rounds import Play
from tacit.training.schedules import Constant

AGENTS, WIDTH = 10, 7
RING = as_topology(graphs.ring(AGENTS))
PAIRED = RandomMatchings(AGENTS, seed=2)


class Bowls:
    """Every agent has a bowl of its own; their sum is lowest at `lowest_of_all`."""

    def __init__(self):
        chance = torch.Generator().manual_seed(5)
        self.steep = 0.5 + torch.rand(AGENTS, WIDTH, generator=chance, dtype=torch.float64)
        self.lowest = torch.randn(AGENTS, WIDTH, generator=chance, dtype=torch.float64)
        self.lowest_of_all = (self.steep * self.lowest).sum(0) / self.steep.sum(0)

    def gradient(self, theta):
        return self.steep * (theta - self.lowest)


class Silent:
    def gradient(self, theta):
        return torch.zeros_like(theta)


def starts():
    return torch.randn(AGENTS, WIDTH, generator=torch.Generator().manual_seed(8), dtype=torch.float64)


def play(rule, topology=RING, *, rounds=6, lr=0.1, oracle=None, loss=lambda theta: theta.square().sum(1)):
    """Return all agents' models at the end."""
    network = StackedNetwork(topology, dtype=torch.float64)
    going = Play(
        rule,
        starts(),
        rounds=rounds,
        schedule=Constant(lr),
        network=network,
        oracle=oracle or Bowls(),
        seed=3,
        public_loss=loss,
    )
    while not going.finished:
        going.advance()
    return going.state.theta


AFTER_ITS_STEP = LocalDSGD(local_steps=1)


@pytest.mark.parametrize(
    ("rule", "known"),
    [
        (SDMDSGD(share=1.0, damping=1.0), tacit.DSGD()),
        (QDPSGD1(codec=DENSE), tacit.DSGD()),
        (Muffliato(exchanges=1), AFTER_ITS_STEP),
        (Muffliato(exchanges=1, gap=0.2), AFTER_ITS_STEP),
        (ChocoSGD(codec=DENSE, gamma=1.0), AFTER_ITS_STEP),
        (DeepSqueeze(codec=DENSE, gamma=1.0), AFTER_ITS_STEP),
        (DeepSqueeze(codec=TopK(1.0), gamma=0.3), ChocoSGD(codec=TopK(1.0), gamma=0.3)),
        (tacit.DSGD(codec=RandomK(1.0)), tacit.DSGD()),
        (tacit.DSGT(codec=TopK(1.0)), tacit.DSGT()),
        (Robust(tacit.DSGD(), "clipped", 1e9), tacit.DSGD()),
    ],
    ids=str,
)
def test_a_special_case_is_a_rule_that_is_known(rule, known):
    torch.testing.assert_close(play(rule), play(known), rtol=0, atol=1e-12)


def test_accelerated_gossip_without_a_gap_is_a_chebyshev_polynomial_of_the_weights():
    """Where the gap goes to 0, γ goes to 2, and x_{k+1} = 2W x_k − x_{k−1} are the polynomials T_k: here T_4(W) = 8W⁴ − 8W² + I."""
    weights = torch.from_numpy(RING.links.weights.toarray())
    squared = weights @ weights
    polynomial = 8 * squared @ squared - 8 * squared + torch.eye(AGENTS, dtype=torch.float64)
    after = play(Muffliato(exchanges=4, gap=1e-14), rounds=1, oracle=Silent())
    torch.testing.assert_close(after, polynomial @ starts(), rtol=0, atol=1e-5)


def test_damped_dsgd_is_sdm_dsgd_that_keeps_everything():
    oracle, theta = Bowls(), starts()
    weights = torch.from_numpy(RING.links.weights.toarray())
    for _ in range(6):
        theta = theta + 0.4 * (weights @ theta - theta - 0.1 * oracle.gradient(theta))
    torch.testing.assert_close(play(SDMDSGD(share=1.0, damping=0.4)), theta, rtol=0, atol=1e-10)


def test_q_dpsgd_without_quantisation_is_the_published_step():
    """As public code of a later paper has it: (1 − γ + γw_ii)θ_i + γ Σ_{j≠i} w_ij Q(θ_j) − γα g, with η = γα."""
    oracle, theta, gamma, alpha = Bowls(), starts(), 0.5, 0.2
    weights = torch.from_numpy(RING.links.weights.toarray())
    own = weights.diagonal()[:, None]
    for _ in range(6):
        others = (weights - weights.diagonal().diag()) @ theta
        theta = (1 - gamma + gamma * own) * theta + gamma * others - gamma * alpha * oracle.gradient(theta)
    torch.testing.assert_close(play(QDPSGD1(codec=DENSE, gamma=gamma)), theta, rtol=0, atol=1e-12)


def test_one_local_step_is_dsgd_that_mixes_after_its_step():
    oracle, theta = Bowls(), starts()
    weights = torch.from_numpy(RING.links.weights.toarray())
    for _ in range(6):
        theta = weights @ (theta - 0.1 * oracle.gradient(theta))
    torch.testing.assert_close(play(AFTER_ITS_STEP), theta, rtol=0, atol=1e-12)


def test_exact_rules_begin_with_a_step_of_dsgd():
    """Of D² with W itself, one that mixes after its step. From the second round on both are corrected."""
    for rule, known in ((EXTRA(), tacit.DSGD()), (D2(lazy=False), AFTER_ITS_STEP)):
        first, second = ([play(each, rounds=rounds) for each in (rule, known)] for rounds in (1, 2))
        torch.testing.assert_close(*first, rtol=0, atol=1e-12)
        assert float((second[0] - second[1]).abs().max()) > 0.01


def test_gradients_without_delay_are_dsgd_on_the_same_pairs():
    assert torch.equal(play(ADPSGD(delay=0), PAIRED), play(tacit.DSGD(), PAIRED))
    assert not torch.equal(play(ADPSGD(delay=1), PAIRED), play(tacit.DSGD(), PAIRED))


def test_asynchronous_pairs_are_for_models_and_not_for_trackers():
    """Trackers in step keep the sum of all gradients, on the same pairs. No rule offers stale ones: only AD-PSGD has a delay."""
    going = Play(
        tacit.DSGT(),
        starts(),
        rounds=6,
        schedule=Constant(0.1),
        network=StackedNetwork(PAIRED, dtype=torch.float64),
        oracle=Bowls(),
        seed=3,
    )
    while not going.finished:
        going.advance()
    state = going.state
    torch.testing.assert_close(state.tracker.sum(0), state.gradient.sum(0), rtol=0, atol=1e-12)
    for name in tacit.algorithms.RULES:
        if name != "ad-psgd":
            with pytest.raises(InvalidInput, match="delay"):
                make_shipped_rule(f"{name}:delay=1")


def test_nobody_follows_where_all_do_equally_well():
    alone = play(LEASGD(), PAIRED, loss=lambda theta: theta.new_ones(len(theta)))
    assert torch.equal(alone, play(tacit.Local(), PAIRED))
    assert not torch.equal(alone, play(LEASGD(), PAIRED))


def test_losses_are_measured_as_often_as_is_asked():
    asked = []

    def loss(theta):
        asked.append(len(theta))
        return theta.square().sum(1)

    play(LEASGD(rank_every=4), PAIRED, rounds=9, loss=loss)
    assert asked == [AGENTS] * 3


@pytest.mark.slow
def test_followers_reach_the_optimum_of_even_data_and_not_of_uneven():
    """Only one end of a pair moves, so the average does not stay, and what a leader never hears is lost."""

    class Even(Bowls):
        def __init__(self):
            super().__init__()
            self.lowest = self.lowest[:1]
            self.lowest_of_all = self.lowest[0]

    for oracle, rule in ((Even(), LEASGD(rho=5.0)), (Even(), tacit.DSGD())):
        optimum = oracle.lowest_of_all.expand(AGENTS, WIDTH)
        torch.testing.assert_close(play(rule, PAIRED, rounds=400, oracle=oracle), optimum, rtol=0, atol=1e-6)
    lowest = Bowls().lowest_of_all
    apart = [
        float((play(rule, PAIRED, rounds=400, loss=lambda theta: (theta - lowest).norm(dim=1)).mean(0) - lowest).norm())
        for rule in (LEASGD(rho=5.0), tacit.DSGD())
    ]
    assert apart[0] > 5 * apart[1]


@pytest.mark.parametrize("topology", [RING, PAIRED, one_peer_exponential(AGENTS)], ids=["ring", "pairs", "one peer"])
@pytest.mark.parametrize("rule", [tacit.DSGT(), D2(), EXTRA()], ids=["dsgt", "d2", "extra"])
def test_exact_rules_reach_the_optimum_of_uneven_data(rule, topology):
    optimum = Bowls().lowest_of_all.expand(AGENTS, WIDTH)
    torch.testing.assert_close(play(rule, topology, rounds=500, lr=0.1), optimum, rtol=0, atol=1e-6)


@pytest.mark.parametrize("rule", [tacit.DSGD(), LocalDSGD(local_steps=4)], ids=["dsgd", "local-dsgd"])
def test_inexact_rules_do_not(rule):
    optimum = Bowls().lowest_of_all.expand(AGENTS, WIDTH)
    assert float((play(rule, rounds=300) - optimum).abs().max()) > 0.01


def test_d2_without_laziness_diverges_where_it_is_refused():
    assert float(play(D2(lazy=False), base_graphs(AGENTS), rounds=100).abs().max()) > 1e3
    with pytest.raises(GraphError, match="in round 1 the links are not those of round 0"):
        D2(lazy=False).check_links(base_graphs(AGENTS), 100)


CODECS = [Float16(), BFloat16(), TopK(0.3), RandomK(0.3), QSGD(2), QSGD(8)]


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda codec: tacit.DSGD(codec=codec),
        lambda codec: tacit.DSGT(codec=codec),
        lambda codec: LocalDSGD(codec=codec),
        lambda codec: Muffliato(exchanges=2, gap=0.1, codec=codec),
        lambda codec: QDPSGD1(codec=codec, gamma=0.5),
        lambda codec: ChocoSGD(codec=codec),
        lambda codec: DeepSqueeze(codec=codec),
        lambda codec: ADPSGD(codec=codec),
    ],
    ids=["dsgd", "dsgt", "local-dsgd", "muffliato", "q-dpsgd-1", "choco", "deepsqueeze", "ad-psgd"],
)
def test_the_average_stays_whatever_a_codec_leaves_out(make, codec):
    after = play(make(codec), oracle=Silent())
    torch.testing.assert_close(after.mean(0), starts().mean(0), rtol=0, atol=1e-12)
    assert float((after - starts()).abs().max()) > 0.01


@pytest.mark.parametrize("codec", [TopK(0.15), RandomK(0.15), QSGD(2)], ids=str)
def test_choco_agrees_at_last_where_messages_are_short(codec):
    """What a message leaves out is sent later, so that agents agree as without a codec."""
    after = play(ChocoSGD(codec=codec, gamma=0.1), rounds=800, oracle=Silent())
    assert float((after - after.mean(0)).abs().max()) < 1e-3


def test_accelerated_gossip_agrees_sooner_than_plain_gossip():
    gap = graphs.measure(graphs.ring(AGENTS)).spectral_gap
    plain, fast = (play(Muffliato(exchanges=12, gap=each), rounds=1, oracle=Silent()) for each in (None, gap))
    apart = [float((theta - theta.mean(0)).norm()) for theta in (plain, fast)]
    assert apart[1] < 0.5 * apart[0]


@pytest.mark.parametrize("kind", ["median", "trimmed", "clipped"])
def test_robust_means_withstand_an_agent_that_sends_nonsense(kind):
    """Plain DSGD goes where the one agent wants it."""
    everyone = as_topology(graphs.complete(AGENTS))

    class Nonsense:
        def __init__(self, rule):
            self.rule = rule

        def init(self, theta):
            return self.rule.init(theta)

        def round(self, state, at):
            theta = state.theta.clone()
            theta[0] = 1e6
            return self.rule.round(state._replace(theta=theta), at)

    optimum = Bowls().lowest_of_all
    swayed = play(Nonsense(tacit.DSGD()), everyone, rounds=60)[1:]
    upright = play(Nonsense(Robust(tacit.DSGD(), kind)), everyone, rounds=60)[1:]
    assert float((swayed - optimum).abs().max()) > 100
    assert float((upright - optimum).abs().max()) < 2


@pytest.mark.parametrize("kind", ["median", "trimmed", "clipped"])
@pytest.mark.parametrize("nonsense", [torch.nan, torch.inf, -torch.inf, 1e30])
def test_a_robust_mean_of_a_few_is_among_the_others(kind, nonsense):
    own, values = torch.tensor([[0.0, 1.0]]), torch.tensor([[[nonsense, nonsense], [0.5, 2.0], [9.0, 9.0]]])
    mean = Robust(tacit.DSGD(), kind, {"clipped": 0.5}.get(kind)).mean(own, values, torch.tensor([[True, True, False]]))
    assert 0.0 <= float(mean[0, 0]) <= 0.5
    assert 1.0 <= float(mean[0, 1]) <= 2.0


SETTINGS = {
    "model": lambda: nn.Linear(4, 3),
    "graph": nx.cycle_graph(4),
    "privacy": tacit.Privacy(noise_multiplier=3.0, delta=1e-3, clip=1.0, lot_size=5),
    "lr": 0.3,
    "rounds": 6,
    "sources": tacit.Seeded(1),
}


@pytest.fixture(scope="module")
def data():
    return tacit.data.synthetic(records=80, features=4, classes=3, held_out=12, seed=3).split(4, tacit.data.IID())


@pytest.mark.parametrize(
    ("rule", "more", "message"),
    [
        (
            ChocoSGD(),
            {"graph": RandomMatchings(4)},
            "CHOCO-SGD keeps what it has read of its neighbours, and in round 1",
        ),
        (ChocoSGD(), {"absences": [tacit.Absence(1, 3, 4)]}, "and in round 3 the links are not those of round 0"),
        (SDMDSGD(), {"graph": RandomMatchings(4)}, "SDM-DSGD keeps what it has read"),
        (Muffliato(gap=0.3), {"graph": one_peer_exponential(4)}, "Muffliato with acceleration keeps"),
        (ADPSGD(), {}, "AD-PSGD averages in pairs, and in round 0 agent 0 hears 2 others; use links in pairs, such as"),
        (tacit.Averaged(ADPSGD()), {}, "AD-PSGD averages in pairs"),
        (
            D2(lazy=False),
            {"graph": nx.cycle_graph(4)},
            r"the smallest eigenvalue of the weights is -0\.3333, and D2 needs more than -1/3",
        ),
        (Robust(tacit.DSGD()), {"gossip_rounds": 2}, "gossip_rounds mix by weights"),
        (tacit.DSGD(), {"mixing": "trimmed:1"}, r"give algorithm=tacit\.algorithms\.Robust\(rule, 'trimmed'\)"),
    ],
)
def test_what_a_rule_cannot_do_is_refused_before_the_first_query(rule, more, message, data):
    with pytest.raises(tacit.TacitError, match=message):
        tacit.train(rule, data=data, **{**SETTINGS, **more})


@pytest.mark.parametrize(
    ("rule", "known"),
    [
        (algorithms.DPSRM(a=1.0), tacit.DSGD()),
        (algorithms.PATE(teachers=2, records=6, answers=4, teacher_steps=2), None),
    ],
    ids=["dp-srm", "pate"],
)
def test_rules_that_only_mix_take_robust_means(rule, known, data):
    """DP-SRM with a = 1 is DSGD, so it is DSGD by medians; PATE asks for the same labels and mixes students otherwise."""
    ours = tacit.train(Robust(rule), data=data, **SETTINGS)
    if known is not None:
        assert torch.equal(ours.theta, tacit.train(Robust(known), data=data, **SETTINGS).theta)
        return
    plain = tacit.train(rule, data=data, **SETTINGS)
    assert [each.epsilon for each in ours.guarantees()] == [each.epsilon for each in plain.guarantees()]
    assert not torch.equal(ours.theta, plain.theta)


def test_masks_are_refused_with_robust_means(data):
    masked = tacit.Privacy(noise_multiplier=3.0, delta=1e-3, clip=1.0, lot_size=5, noise=tacit.Cancelling(curious=1))
    for rule in (Robust(tacit.DSGD()), tacit.Averaged(Robust(tacit.DSGD()))):
        with pytest.raises(InvalidInput, match="masks cancel in a weighted mean of all agents"):
            tacit.train(rule, data=data, **{**SETTINGS, "privacy": masked})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Robust(tacit.DSGT()),
            "dsgt cannot mix by a median mean: it needs the average of all agents to stay; use dsgd, ",
        ),
        (
            lambda: Robust(tacit.DiNNO(), "trimmed"),
            "dinno cannot mix by a trimmed mean: it takes no plain mean of what",
        ),
        (lambda: Robust(tacit.Local()), "local cannot mix by a median mean: it sends nothing"),
        (
            lambda: Robust(QDPSGD1()),
            "q-dpsgd-1 cannot mix by a median mean: it takes no plain mean of what it receives",
        ),
        (lambda: Robust(ChocoSGD()), "choco cannot mix by a median mean"),
        (lambda: Robust(Muffliato(exchanges=2, gap=0.2)), "leave gap out"),
        (lambda: Robust(tacit.DSGD(), "mean"), "robust mean"),
        (lambda: Robust(tacit.DSGD(), "median", 1.0), "a median has no bound"),
        (lambda: Robust(tacit.DSGD(), "trimmed", 1.5), "whole number"),
        (lambda: Robust(tacit.DSGD(), "clipped", 0.0), "must be positive"),
        (lambda: SDMDSGD(share=0.0), "share is 0.0"),
        (lambda: QDPSGD1(gamma=2.0), "gamma is 2.0"),
        (lambda: ChocoSGD(gamma=0.0), "gamma is 0.0"),
        (lambda: DeepSqueeze(gamma=0.0), "gamma is 0.0"),
        (lambda: LEASGD(rho=0.0), "rho is 0.0"),
        (lambda: LEASGD(rank_every=0), "rank_every is 0"),
        (lambda: LocalDSGD(local_steps=0), "local_steps is 0"),
        (lambda: Muffliato(exchanges=0), "exchanges is 0"),
        (lambda: Muffliato(gap=0.0), "gap is 0.0"),
        (lambda: ADPSGD(delay=-1), "delay is -1"),
    ],
)
def test_settings_out_of_range_are_named(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


@pytest.mark.parametrize(
    ("rule", "queries"),
    [(LocalDSGD(local_steps=3), 18), (Muffliato(exchanges=4), 6), (LEASGD(), 6), (SDMDSGD(), 6), (ChocoSGD(), 6)],
    ids=["local-dsgd", "muffliato", "leasgd", "sdm-dsgd", "choco"],
)
def test_epsilon_is_that_of_the_queries_that_were_asked(rule, queries, data):
    """Nothing else than the number of noisy gradients enters it: neither distance, nor sparsity, nor ranks."""
    result = tacit.train(rule, data=data, **SETTINGS)
    event = tacit.privacy.Event(sample_rate=5 / data.sizes[0], noise_multiplier=3.0, count=queries)
    assert result.guarantees()[0].epsilon == pytest.approx(tacit.privacy.epsilon([event], delta=1e-3), rel=1e-9)
    assert result.history[-1].queries == queries


def test_bytes_of_sparse_and_quantised_messages_are_those_on_the_wire(data):
    width, rounds, links = 15, 6, 2
    sent = {
        "dense": (tacit.DSGD(), rounds * width * 4),
        "qsgd": (QDPSGD1(), rounds * (width + 4)),
        "qsgd of 2 bits": (tacit.DSGD(codec=QSGD(2)), rounds * (4 + 4)),
        "random": (tacit.DSGD(codec=RandomK(0.2)), rounds * 3 * 4),
        "sdm": (SDMDSGD(share=0.2), width * 4 + rounds * 3 * 4),
        "largest": (ChocoSGD(codec=TopK(0.2)), rounds * 3 * 8),
        "half": (tacit.DSGT(codec=Float16()), rounds * 2 * width * 2),
        "ranked": (LEASGD(), rounds * (width + 1) * 4),
    }
    for name, (rule, of_link) in sent.items():
        result = tacit.train(rule, data=data, **SETTINGS)
        assert result.history[-1].bytes_sent.tolist() == [links * of_link] * 4, name


def test_every_rule_of_the_registry_is_found_by_its_class():
    assert all(getattr(algorithms, rule.__name__) is rule for rule in algorithms.RULES.values())
    with pytest.raises(AttributeError, match="no attribute 'DSGX'"):
        algorithms.DSGX  # noqa: B018
