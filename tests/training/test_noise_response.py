"""What rules make of noise, beside the sums that DSGD's equation gives."""

import networkx as nx
import numpy as np
import pytest
import torch

import tacit
from tacit import graphs
from tacit.algorithms import DPSRM
from tacit.errors import PrivacyError
from tacit.networks import BFloat16, TopK, as_topology
from tacit.privacy.cancelling import Response, best_ratio, masks_for
from tacit.privacy.keys import Keys
from tacit.training.noise_response import expected_response, noise_response
from tacit.training.schedules import as_schedule

RING = graphs.ring(10)


def response(rule, graph=RING, keys=None, rounds=60, lr=0.1, **more):
    return noise_response(rule, as_topology(graph), keys or Keys.of(graph), rounds, as_schedule(lr), seed=0, **more)


def test_dsgd_keeps_masks_as_long_as_mixing_takes_and_own_noise_for_good():
    """θ_K = -η Σ_k W^(K-1-k) n_k; the sampled means of squares are within a fifth, about two standard errors; the seed is fixed."""
    weights, laplacian = graphs.mixing_matrix(RING).toarray(), nx.laplacian_matrix(RING).toarray()
    found, powers = response(tacit.DSGD()), [np.linalg.matrix_power(weights, step) for step in range(60)]
    own = 0.01 / 10 * sum(np.trace(power @ power.T) for power in powers)
    masks = 0.01 / 10 * sum(np.trace(power @ laplacian @ power.T) for power in powers)
    assert found.own == pytest.approx(own, rel=0.2)
    assert found.masks == pytest.approx(masks, rel=0.2)
    values, vectors = np.linalg.eigh(weights)
    steady = sum(
        (v @ laplacian @ v) / (1 - value**2) for value, v in zip(values, vectors.T, strict=True) if value < 1 - 1e-9
    )
    assert masks == pytest.approx(0.01 / 10 * steady, rel=1e-3)


def test_with_a_loss_dsgd_forgets_noise_of_the_average_too():
    """θ_K = -η Σ_k (W - ηh)^(K-1-k) n_k; the sampled means of squares are within a fifth; the seed is fixed."""
    kept = graphs.mixing_matrix(RING).toarray() - 0.1 * 2.0 * np.eye(10)
    laplacian = nx.laplacian_matrix(RING).toarray()
    found, powers = (
        response(tacit.DSGD(), curvature=2.0),
        [np.linalg.matrix_power(kept, step) for step in range(60)],
    )
    assert found.own == pytest.approx(0.01 / 10 * sum(np.trace(power @ power.T) for power in powers), rel=0.2)
    masks = 0.01 / 10 * sum(np.trace(power @ laplacian @ power.T) for power in powers)
    assert found.masks == pytest.approx(masks, rel=0.2)
    assert found.own < 0.5 * response(tacit.DSGD()).own


def dsgt(steps, noise, curvature=0.0):
    """The models of DSGT on the ring, from its equations: y⁺ = g + Wy - g_prev, θ⁺ = W(θ - ηy⁺), g = hθ + noise."""
    weights = graphs.mixing_matrix(RING).toarray()
    theta, tracker, before = (np.zeros_like(noise[0]) for _ in range(3))
    for step, each in zip(steps, noise, strict=True):
        gradient = curvature * theta + each
        tracker, before = gradient + weights @ tracker - before, gradient
        theta = weights @ (theta - step * tracker)
    return theta


def exact_response(steps, keys, curvature=0.0):
    """The sums of squares of what one unit of noise of every agent in every round makes of the models."""
    laplacian = nx.laplacian_matrix(nx.Graph(keys.all_pairs), nodelist=range(10)).toarray()
    own = masks = 0.0
    for place in range(len(steps)):
        moved = dsgt(steps, [np.eye(10) * (each == place) for each in range(len(steps))], curvature)
        own += np.trace(moved @ moved.T) / 10
        masks += np.trace(moved @ laplacian @ moved.T) / 10
    return Response(own=own, masks=masks)


STEPS = np.geomspace(4.0, 0.4, 40)


@pytest.mark.parametrize("keys", [Keys(10), Keys.of(RING)], ids=["complete", "ring"])
def test_dsgt_responds_to_noise_as_its_equations_say(keys):
    """Sampled means of squares within a fifth, about two standard errors; the seed is fixed."""
    exact = exact_response(STEPS, keys)
    found = response(tacit.DSGT(), keys=keys, rounds=40, lr=tacit.LogSpaced(4.0, 0.4))
    assert (found.own, found.masks) == pytest.approx((exact.own, exact.masks), rel=0.2)
    needed = [1.0] * 10
    assert best_ratio(needed, keys, 1, found) == best_ratio(needed, keys, 1, exact)


@pytest.mark.parametrize("keys", [Keys(10), Keys.of(RING)], ids=["complete", "ring"])
def test_masks_of_the_chosen_size_move_models_of_dsgt_least(keys):
    """Noise is drawn and DSGT played on the ring, with the same draws for every size: half and twice the chosen one are worse."""
    chance, draws = np.random.default_rng(0), 500
    own = chance.standard_normal((40, 10, draws))
    ends = nx.incidence_matrix(nx.Graph(keys.all_pairs), nodelist=range(10), oriented=True).toarray()
    shared = np.einsum("ae,ted->tad", ends, chance.standard_normal((40, ends.shape[1], draws)))

    def moved(ratio):
        masks = masks_for([1.0] * 10, keys, 1, ratio=ratio)
        return np.square(dsgt(STEPS, np.array(masks.own)[:, None] * own + masks.size * shared)).mean()

    found = response(tacit.DSGT(), keys=keys, rounds=40, lr=tacit.LogSpaced(4.0, 0.4))
    chosen = best_ratio([1.0] * 10, keys, 1, found)
    assert moved(chosen) < 0.95 * min(moved(chosen / 2), moved(2 * chosen))
    assert moved(chosen) < 0.25 * np.square(dsgt(STEPS, own)).mean()


def test_with_a_loss_smaller_masks_than_those_chosen_for_noise_alone_are_the_best():
    """docs/masks.md states these: what masks leave of the mean square deviation, on the ring with complete keys."""
    keys, curvature = Keys(10), 1 / np.sqrt(STEPS.sum() * STEPS.max())
    alone, descending = (exact_response(STEPS, keys, each) for each in (0.0, curvature))

    def left(ratio):
        masks = masks_for([1.0] * 10, keys, 1, ratio=ratio)
        return float(np.square(masks.own).mean()) + masks.size**2 * descending.masks / descending.own

    chosen, best = (best_ratio([1.0] * 10, keys, 1, each) for each in (alone, descending))
    assert (chosen, best) == pytest.approx((0.71, 0.42), abs=0.01)
    assert (left(chosen), left(best)) == pytest.approx((0.69, 0.41), abs=0.01)


@pytest.mark.parametrize("graph", [graphs.complete(10), RING])
def test_dinno_is_seen_to_gain_little_and_dsgt_to_gain_much(graph):
    """DiNNO with the ρ and steps of a trial in which masks gained little."""
    steps = {tacit.DiNNO(step=tacit.Plain(), rho=0.05, rho_growth=1.001): tacit.LogSpaced(1.0, 0.05)}
    steps |= {tacit.DSGT(): tacit.LogSpaced(4.0, 0.8)}
    dinno, dsgt = (
        expected_response(rule, [as_topology(graph)], Keys(10), 1, 150, as_schedule(lr), seed=0)
        for rule, lr in steps.items()
    )
    assert dinno.left is not None
    assert 0.8 < dinno.left <= 1
    assert dinno.by_dsgt < 0.6
    assert dsgt.left is None
    # Noise alone, by which masks of DSGT are chosen, shows nothing of it.
    rule, lr = next(iter(steps.items()))
    alone = response(rule, graph, Keys(10), rounds=150, lr=lr)
    assert alone.masks / alone.own < 0.3 * dinno.response.masks / dinno.response.own


def test_what_is_expected_with_a_loss_is_what_noise_does_to_models_with_a_loss():
    """A quadratic loss, so that the deviation is exact: DiNNO on the ring, noise with masks of the best size beside noise without."""
    rule, lr, keys = tacit.DiNNO(step=tacit.Plain(), rho=0.05, rho_growth=1.001), tacit.LogSpaced(1.0, 0.05), Keys(10)
    expected = expected_response(rule, [as_topology(RING)], keys, 1, 150, as_schedule(lr), seed=0)
    needed = [1.0] * 10
    shares = []
    for ratio in (0.125, 0.35, 1.0):
        masks = masks_for(needed, keys, 1, ratio=ratio)
        own = float(np.square(masks.own).mean())
        shares.append(own + masks.size**2 * expected.response.masks / expected.response.own)
    assert min(shares) >= expected.left - 0.01
    assert shares[0] == pytest.approx(1.0, abs=0.02)  # the best gains nothing, and larger masks do harm
    assert shares[2] > 5


def test_a_rule_whose_steps_a_loss_upsets_or_that_asks_for_differences_is_chosen_for_noise_alone():
    assert response(tacit.DSGD(), curvature=1e9) is None
    assert response(DPSRM(a=0.3), curvature=1.0) is None
    found = expected_response(DPSRM(a=0.3), [as_topology(RING)], Keys(10), 1, 60, as_schedule(0.1), seed=0)
    assert found.left is None
    assert found.response == response(DPSRM(a=0.3), keys=Keys(10))


def test_dsgt_on_a_complete_graph_leaves_no_masks_in_the_models():
    graph = graphs.complete(10)
    found = response(tacit.DSGT(), graph)
    assert found.masks < 1e-12 * found.own
    assert response(tacit.DSGD(), graph).masks > 1e-3 * found.own


def test_exchanges_until_the_average_is_exact_leave_no_masks():
    from tacit.networks import Several, base_graphs

    schedule = base_graphs(10, peers=1)
    found = noise_response(tacit.DSGT(), Several(schedule, schedule.window), Keys(10), 20, as_schedule(0.1), seed=0)
    assert found.masks < 1e-12 * found.own


@pytest.mark.parametrize("rule", [tacit.DiNNO(), tacit.DSGD(step=tacit.Adam())])
def test_a_rule_with_adam_inside_has_no_linear_response(rule):
    assert response(rule) is None


@pytest.mark.parametrize(
    "rule", [tacit.DiNNO(step=tacit.Plain()), tacit.DSGD(step=tacit.Momentum(0.9)), tacit.Averaged(tacit.DSGT())]
)
def test_rules_that_are_linear_have_one(rule):
    assert response(rule, rounds=20, lr=0.05).own > 0


def test_dinno_keeps_masks_for_long_by_its_weak_pull():
    """Of masks that DSGD takes out, DiNNO with ρ = 0.05 keeps most."""
    weak, strong = (
        response(rule, rounds=200, lr=0.05) for rule in (tacit.DiNNO(step=tacit.Plain(), rho=0.05), tacit.DSGD())
    )
    assert weak.masks / weak.own > 5 * strong.masks / strong.own


def masked(**changes):
    digits = tacit.data.load("digits").split(10, tacit.data.IID(), seed=0)
    noise = changes.pop("noise", tacit.Cancelling())
    privacy = tacit.Privacy(noise_multiplier=1.0, delta=1e-3, clip=1.0, lot_size=20, noise=noise)
    settings = {"model": lambda: tacit.models.logistic((1, 8, 8), 10), "data": digits, "rounds": 20, "lr": 0.1}
    return settings | {"privacy": privacy, "graph": RING} | changes


def test_trials_with_graphs_of_their_own_have_masks_for_the_worst_of_them():
    ring, full = graphs.ring(10), graphs.complete(10)
    sizes = [
        tacit.train_trials(len(each), tacit.DSGT(), **masked(graph=each, rounds=10))[0].plan.masks.size
        for each in ([ring], [full], [full, ring])
    ]
    assert sizes[2] == sizes[0] < sizes[1]
    with pytest.raises(tacit.TacitError, match="the trials have different graphs"):
        tacit.train_trials(2, tacit.DSGT(), **masked(graph=[full, ring], noise=tacit.Cancelling(keys="graph")))


def test_a_session_says_how_little_dinno_gains(caplog):
    rule = tacit.DiNNO(step=tacit.Plain(), rho=0.05, rho_growth=1.001)
    lr = tacit.LogSpaced(1.0, 0.05)
    session = tacit.Session(tacit.Training(algorithm=rule, **masked(graph=graphs.complete(10), lr=lr, rounds=150)))
    assert session.plan.masks is not None
    assert "masks gain little under dinno on this graph: they should leave about 8" in caplog.text
    assert "with DSGT they would leave 11 %" in caplog.text
    caplog.clear()
    session = tacit.Session(tacit.Training(algorithm=tacit.DSGT(), **masked(lr=0.3)))
    assert session.plan.masks is not None
    assert "gain little" not in caplog.text


def test_people_who_may_be_at_several_agents_are_warned_of(caplog):
    units = torch.arange(40) // 2
    parts = [tacit.data.Records(torch.randn(40, 3), torch.zeros(40, dtype=torch.int64), units) for _ in range(4)]
    data = tacit.data.AgentData.from_parts(parts, classes=2, name="wards")
    unit = tacit.Unit("patient", most=2)
    noise = tacit.Cancelling(ratio=1.0)
    privacy = tacit.Privacy(noise_multiplier=1.0, delta=1e-3, clip=1.0, lot_size=5, noise=noise, unit=unit)
    tacit.Session(
        tacit.Training(
            algorithm=tacit.DSGT(),
            model=lambda: tacit.models.logistic((3,), 2),
            data=data,
            privacy=privacy,
            graph=graphs.ring(4),
            rounds=2,
            lr=0.1,
        )
    )
    assert "each agent numbers its patients by itself" in caplog.text


def test_a_session_says_where_masks_do_not_pay(caplog):
    digits = tacit.data.load("digits").split(10, tacit.data.IID(), seed=0)
    privacy = tacit.Privacy(noise_multiplier=1.0, delta=1e-3, clip=1.0, lot_size=20, noise=tacit.Cancelling())
    settings = {
        "model": lambda: tacit.models.logistic((1, 8, 8), 10),
        "data": digits,
        "privacy": privacy,
        "graph": RING,
        "rounds": 3,
        "lr": 0.1,
    }
    adam = tacit.Session(tacit.Training(algorithm=tacit.DiNNO(), **settings))
    assert "not linear in its gradients" in caplog.text
    assert adam.plan.masks is None
    assert adam.plan.noise_multipliers == (1.0,) * 10
    caplog.clear()
    weak = tacit.Session(
        tacit.Training(algorithm=tacit.DiNNO(step=tacit.Plain(), rho=0.01), **settings | {"rounds": 5})
    )
    assert weak.plan.masks is None
    assert "more than the noise that they save" in caplog.text


def test_a_rule_that_asks_for_differences_is_as_linear_as_one_that_asks_for_gradients():
    """With a=1, DP-SRM is DSGD; with less it carries noise along, and masks stay with it for longer."""
    dsgd, same, carried = (response(rule) for rule in (tacit.DSGD(), DPSRM(a=1.0), DPSRM(a=0.3)))
    assert (same.own, same.masks) == pytest.approx((dsgd.own, dsgd.masks), rel=1e-9)
    assert carried.masks < carried.own


@pytest.mark.parametrize("codec", [TopK(0.5), BFloat16()])
def test_masks_and_a_codec_in_which_they_do_not_cancel_are_refused_together(codec):
    digits = tacit.data.load("digits").split(10, tacit.data.IID(), seed=0)
    privacy = tacit.Privacy(noise_multiplier=1.0, delta=1e-3, clip=1.0, lot_size=20, noise=tacit.Cancelling())
    settings = {"data": digits, "privacy": privacy, "graph": RING, "rounds": 3, "lr": 0.1}
    training = tacit.Training(
        algorithm=tacit.DSGT(codec=codec), model=lambda: tacit.models.logistic((1, 8, 8), 10), **settings
    )
    with pytest.raises(
        PrivacyError, match=r"masks do not cancel in messages that .* shortens or rounds; send them whole"
    ):
        tacit.Session(training)
