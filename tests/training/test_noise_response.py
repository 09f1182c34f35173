"""What rules make of noise, beside the sums that DSGD's equation gives."""

import networkx as nx
import numpy as np
import pytest

import tacit
from tacit import graphs
from tacit.networks import as_topology
from tacit.privacy.keys import Keys
from tacit.training.noise_response import noise_response
from tacit.training.schedules import as_schedule

RING = graphs.ring(10)


def response(rule, graph=RING, keys=None, rounds=60, lr=0.1):
    return noise_response(rule, as_topology(graph), keys or Keys.of(graph), rounds, as_schedule(lr), seed=0)


def test_dsgd_keeps_masks_as_long_as_mixing_takes_and_own_noise_for_good():
    """θ_K = -η Σ_k W^(K-1-k) n_k; the sampled means of squares are within a fifth, five standard errors and more."""
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
