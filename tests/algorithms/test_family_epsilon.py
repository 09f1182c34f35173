"""ε of every rule, counted from its equation: how often it asks is written down here, and converted without the library's accountant."""

import math

import networkx as nx
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import tacit
from tacit import algorithms
from tacit.networks import RandomMatchings
from tacit.privacy.lots import LotDrawer

AGENTS, ROUNDS, SIGMA, DELTA = 4, 6, 3.0, 1e-3
RING, PAIRS = nx.cycle_graph(AGENTS), RandomMatchings(AGENTS)
ASKED = {
    "local": (tacit.Local(), ROUNDS),
    "dsgd": (tacit.DSGD(), ROUNDS),
    "dsgt": (tacit.DSGT(), ROUNDS),
    "dinno": (tacit.DiNNO(inner_steps=2), 2 * ROUNDS),
    "local-dsgd": (algorithms.LocalDSGD(local_steps=3), 3 * ROUNDS),
    "d2": (algorithms.D2(), ROUNDS),
    "extra": (algorithms.EXTRA(), ROUNDS),
    "choco": (algorithms.ChocoSGD(), ROUNDS),
    "deepsqueeze": (algorithms.DeepSqueeze(), ROUNDS),
    "sdm-dsgd": (algorithms.SDMDSGD(share=0.2), ROUNDS),
    "q-dpsgd-1": (algorithms.QDPSGD1(), ROUNDS),
    "q-dpsgd-2": (algorithms.QDPSGD2(), ROUNDS),
    "dp-srm": (algorithms.DPSRM(), ROUNDS),
    "leasgd": (algorithms.LEASGD(rank_every=4), ROUNDS),
    "leasgd, ranked by private losses": (algorithms.LEASGD(rank_every=4, private_ranking=True), ROUNDS + 2),
    "muffliato": (algorithms.Muffliato(exchanges=3), ROUNDS),
    "ad-psgd": (algorithms.ADPSGD(), ROUNDS),
    "dsgd by medians": (algorithms.Robust(tacit.DSGD()), ROUNDS),
}


def test_every_shipped_rule_is_counted():
    """Except PATE, which asks for votes (`test_pate.py` counts them), and central SGD, which has one agent (below)."""
    assert set(algorithms.RULES) - set(ASKED) == {"pate", "sgd"}


def gaussian_epsilon(mu):
    """ε of a Gaussian mechanism with this ratio of sensitivity to noise, by the exact formula of Balle & Wang (2018)."""
    return brentq(
        lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - DELTA, 0, 50 * mu * (1 + mu)
    )


def discrete_epsilon(queries):
    """ε from Rényi divergences of whole orders α, which are αn/2σ², by proposition 12 of Canonne, Kamath & Steinke (2020)."""
    return min(
        queries * order / (2 * SIGMA**2) + math.log1p(-1 / order) - math.log(DELTA * order) / (order - 1)
        for order in range(2, 128)
    )


def train(rule, data, patch, **more):
    """Return the result of a run whose lots have every record, and how often lots were drawn."""
    drawn, draw = [0], LotDrawer.draw

    def counted(self, *given):
        drawn[0] += 1
        return draw(self, *given)

    patch.setattr(LotDrawer, "draw", counted)
    privacy = tacit.Privacy(
        noise_multiplier=SIGMA,
        delta=DELTA,
        clip=1.0,
        lot_size=[float(size) for size in data.sizes],
        **({"noise": tacit.Discrete(), "accountant": "rdp"} if isinstance(rule, algorithms.QDPSGD2) else {}),
    )
    settings = {"model": lambda: tacit.models.logistic((4,), 3), "rounds": ROUNDS, "lr": 0.1}
    return tacit.train(rule, data=data, privacy=privacy, sources=tacit.Seeded(1), **settings | more), drawn[0]


def records():
    return tacit.data.synthetic(records=60, features=4, classes=3, held_out=12, seed=3).split(AGENTS, tacit.data.IID())


@pytest.mark.parametrize("name", ASKED)
def test_epsilon_is_that_of_an_independent_count(name, monkeypatch):
    """Each query of all records is a Gaussian mechanism, and n of them are one with √n times the ratio of sensitivity to noise."""
    rule, queries = ASKED[name]
    links = {} if name == "local" else {"graph": PAIRS if name == "ad-psgd" else RING}
    result, drawn = train(rule, records(), monkeypatch, **links)
    assert (drawn, result.plan.queries, result.history[-1].queries) == (queries,) * 3
    if name == "q-dpsgd-2":
        expected = pytest.approx(discrete_epsilon(queries), rel=1e-9)
    else:
        expected = pytest.approx(gaussian_epsilon(math.sqrt(queries) / SIGMA), rel=1e-4)
    assert [each.epsilon for each in result.guarantees()] == [expected] * AGENTS


def test_epsilon_of_central_sgd_is_that_of_an_independent_count(monkeypatch):
    result, drawn = train(tacit.SGD(), records().pooled(), monkeypatch)
    assert drawn == ROUNDS
    expected = gaussian_epsilon(math.sqrt(ROUNDS) / SIGMA)
    assert [each.epsilon for each in result.guarantees()] == [pytest.approx(expected, rel=1e-4)]
