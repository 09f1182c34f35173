"""Every algorithm, private and not, on three kinds of graph, against a slow loop from the equations."""

from functools import partial

import networkx as nx
import pytest
import reference
import torch
from torch import nn

import tacit
from tacit import algorithms
from tacit.models import FlatModel
from tacit.training.preparation import starts

AGENTS, ROUNDS = 5, 4

GRAPHS = {
    "ring": nx.cycle_graph(AGENTS),
    "star": nx.star_graph(AGENTS - 1),
    "irregular": nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4)]),
}
LR = tacit.LogSpaced(0.3, 0.05)
LRS = [0.3 * (0.05 / 0.3) ** (k / (ROUNDS - 1)) for k in range(ROUNDS)]


PER_AGENT = [0.3, 0.1, 0.25, 0.05, 0.2]


def run_dsgd_per_agent(oracle, links, thetas, lrs):
    """The same equation, with a step size for each agent."""
    for number in range(len(lrs)):
        w, _ = links(number)
        g = oracle.all(thetas)
        thetas = [reference.combine(w, i, thetas) - PER_AGENT[i] * g[i] for i in range(len(thetas))]
        yield thetas


def run_dinno(**settings):
    return partial(reference.run_dinno, rho=0.2, growth=1.1, **settings)


PAIRS = {
    "dsgd averaged": (
        tacit.Averaged(tacit.DSGD(), decay=0.6),
        lambda *args: reference.averaged(reference.run_dsgd(*args), 0.6),
    ),
    "local": (tacit.Local(), reference.run_local),
    "dsgd": (tacit.DSGD(), reference.run_dsgd),
    "dsgd with momentum": (
        tacit.DSGD(step=tacit.Momentum(0.9)),
        partial(reference.run_dsgd, step=partial(reference.momentum, 0.9)),
    ),
    "dsgd with a step size for each agent": (tacit.DSGD(), run_dsgd_per_agent),
    "dsgt": (tacit.DSGT(), reference.run_dsgt),
    "dinno": (
        tacit.DiNNO(rho=0.2, rho_growth=1.1, inner_steps=2),
        run_dinno(inner=2, step=reference.adam, carry=False),
    ),
    "dinno carried": (
        tacit.DiNNO(rho=0.2, rho_growth=1.1, inner_steps=1, carry=True),
        run_dinno(inner=1, step=reference.adam, carry=True),
    ),
    "dinno plain": (
        tacit.DiNNO(rho=0.2, rho_growth=1.1, inner_steps=3, step=tacit.Plain()),
        run_dinno(inner=3, step=reference.plain, carry=False),
    ),
    "sdm-dsgd": (
        algorithms.SDMDSGD(share=1.0, damping=0.6),
        partial(reference.run_sdm_dsgd, kept=lambda number: range(24 + 3), damping=0.6),
    ),
    "q-dpsgd-1": (
        algorithms.QDPSGD1(codec=tacit.networks.DENSE, gamma=0.7),
        partial(reference.run_q_dpsgd, sent=reference.exact, gamma=0.7),
    ),
    "dp-srm": (algorithms.DPSRM(a=0.3, slack=1.4), partial(reference.run_dp_srm, a=0.3, slack=1.4)),
    "dp-srm with a=1": (algorithms.DPSRM(a=1.0), reference.run_dsgd),
    "muffliato": (
        algorithms.Muffliato(exchanges=3, gap=0.75),
        partial(reference.run_muffliato, exchanges=3, gamma=algorithms.Muffliato(gap=0.75).gamma),
    ),
    "choco": (
        algorithms.ChocoSGD(codec=tacit.networks.TopK(1.0), gamma=0.4),
        partial(reference.run_choco, sent=reference.exact, gamma=0.4),
    ),
    "deepsqueeze": (
        algorithms.DeepSqueeze(codec=tacit.networks.TopK(1.0), gamma=0.4),
        partial(reference.run_deepsqueeze, sent=reference.exact, gamma=0.4),
    ),
    "local-dsgd": (
        algorithms.LocalDSGD(local_steps=2, step=tacit.Momentum(0.9)),
        partial(reference.run_local_dsgd, steps=2, step=partial(reference.momentum, 0.9)),
    ),
    "d2": (algorithms.D2(), partial(reference.run_d2, lazy=True)),
    "extra": (algorithms.EXTRA(), reference.run_extra),
}


# Clipped sums are cut off to quanta, so an answer may be rounded to the next point of its grid, σC/1024 of a sum.
GRID = 2e-4


def make_model():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3)).double()


@pytest.fixture(scope="module")
def data():
    records = tacit.data.synthetic(records=60, features=4, classes=3, held_out=12, seed=3)
    return records.split(AGENTS, tacit.data.Dirichlet(alpha=1.0, min_size=6), seed=1)


@pytest.mark.parametrize("private", [True, False], ids=["private", "non-private"])
@pytest.mark.parametrize(
    "graph", [name if name == "irregular" else pytest.param(name, marks=pytest.mark.slow) for name in GRAPHS]
)
@pytest.mark.parametrize("name", PAIRS)
def test_agrees_with_the_equations(name, graph, private, data):
    algorithm, run = PAIRS[name]
    lots = [3.0, 4.0, 2.0, 5.0, 3.0]
    clips = [0.4, 0.5, 0.3, 2.0, 0.6]
    sigmas = [0.7, 0.8, 1.1, 0.9, 1.0]
    privacy = (
        tacit.Privacy(noise_multiplier=sigmas, delta=1e-3, clip=clips, lot_size=lots)
        if private
        else tacit.NoPrivacy(lot_size=lots)
    )
    result = tacit.train(
        algorithm,
        model=make_model,
        data=data,
        graph=GRAPHS[graph],
        privacy=privacy,
        rounds=ROUNDS,
        lr=PER_AGENT if "for each agent" in name else LR,
        sources=tacit.Seeded(11),
        same_start=False,
        seed=5,
    )

    oracle = reference.ReferenceOracle(
        make_model(),
        data,
        tacit.Seeded(11).make(AGENTS),
        rates=[lot / size for lot, size in zip(lots, data.sizes, strict=True)],
        lots=lots,
        clips=clips if private else None,
        sigmas=sigmas if private else None,
    )
    first = starts(FlatModel(make_model()), make_model, seed=5, trials=1, agents=AGENTS, same_start=False)
    assert not torch.equal(first[0], first[1])
    *_, last = run(oracle, reference.fixed(GRAPHS[graph]), list(first), LRS)
    expected = torch.stack(last)
    assert result.theta.dtype == torch.float64
    torch.testing.assert_close(result.theta, expected, rtol=0, atol=GRID if private else 1e-9)


@pytest.mark.parametrize("private", [True, False], ids=["private", "non-private"])
def test_central_sgd_with_momentum_agrees_with_the_equations(private, data):
    pooled = data.pooled()
    privacy = (
        tacit.Privacy(noise_multiplier=0.8, delta=1e-3, clip=0.5, lot_size=9)
        if private
        else tacit.NoPrivacy(lot_size=9)
    )
    result = tacit.train(
        tacit.SGD(step=tacit.Momentum(0.9)),
        model=make_model,
        data=pooled,
        privacy=privacy,
        rounds=ROUNDS,
        lr=LR,
        sources=tacit.Seeded(2),
    )
    oracle = reference.ReferenceOracle(
        make_model(),
        pooled,
        tacit.Seeded(2).make(1),
        rates=[9 / 60],
        lots=[9.0],
        clips=[0.5] if private else None,
        sigmas=[0.8] if private else None,
    )
    first = starts(FlatModel(make_model()), make_model, seed=0, trials=1, agents=1, same_start=True)
    *_, expected = reference.run_local(oracle, None, list(first), LRS, step=partial(reference.momentum, 0.9))
    torch.testing.assert_close(result.theta, torch.stack(expected), rtol=0, atol=GRID if private else 1e-9)


def test_clipping_is_active_in_these_tests(data):
    """Otherwise the comparison would say nothing about it."""
    diagnostics = tacit.train(
        tacit.DSGD(),
        model=make_model,
        data=data,
        graph=GRAPHS["ring"],
        privacy=tacit.Privacy(noise_multiplier=1.0, delta=1e-3, clip=0.4, lot_size=5),
        rounds=ROUNDS,
        lr=LR,
        sources=tacit.Seeded(11),
        private_diagnostics=True,
    ).private_diagnostics
    shares = torch.tensor([d.clipped_share for d in diagnostics]).nanmean()
    assert 0.3 < shares <= 1
