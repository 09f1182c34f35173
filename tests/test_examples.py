"""The examples run as they are, and the rule in one of them is what its equations say."""

import runpy
import sys
from pathlib import Path

import networkx as nx
import pytest
import reference
import torch
from torch import nn

import tacit
from tacit.models import FlatModel
from tacit.training.preparation import starts

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run an example as a program would be, in an empty folder, and return what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def play(name, *words):
        monkeypatch.setattr(sys, "argv", [name, *words])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return play


@pytest.mark.parametrize("name", ["own_rule"])
def test_example_runs(name, run, tmp_path):
    assert "ε=4 per record at δ=0.001" in run(name)
    assert list(tmp_path.iterdir()) == []


def test_a_budget_holds_over_runs_and_over_programs(run):
    first = run("own_data", "--folder", "here")
    assert "dsgt-1: " in first
    assert "dsgd-1: " in first
    assert "past its budget" in first
    again = run("own_data", "--folder", "here")
    assert "test records right" not in again
    assert _spent(again) == _spent(first)
    assert len(_spent(first)) == 4


def _spent(printed):
    return [line for line in printed.splitlines() if "all runs together" in line]


def exact_diffusion(oracle, graph, thetas, lrs):
    """Agent by agent: ψ⁺ = θ − ηg, φ = ψ⁺ + θ − ψ, θ⁺ = (φ + Wφ)/2."""
    w, agents, psi = reference.metropolis(graph), range(len(thetas)), list(thetas)
    for lr in lrs:
        g = oracle.all(thetas)
        stepped = [thetas[i] - lr * g[i] for i in agents]
        phi = [stepped[i] + thetas[i] - psi[i] for i in agents]
        thetas, psi = [(phi[i] + reference.combine(w, i, phi)) / 2 for i in agents], stepped
    return thetas


def test_exact_diffusion_agrees_with_its_equations():
    rule = runpy.run_path(str(EXAMPLES / "own_rule.py"))["ExactDiffusion"]()
    data = tacit.data.synthetic(60, features=4, classes=3, held_out=12).split(5, tacit.data.IID())
    graph, sources = nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4)]), tacit.Seeded(11)

    def make_model():
        return nn.Linear(4, 3).double()

    result = tacit.train(
        rule,
        model=make_model,
        data=data,
        graph=graph,
        privacy=tacit.Privacy(noise_multiplier=0.8, delta=1e-3, clip=0.5, lot_size=4),
        rounds=4,
        lr=0.3,
        sources=sources,
        seed=5,
    )
    oracle = reference.ReferenceOracle(
        make_model(), data, sources.make(5), rates=[4 / 12] * 5, lots=[4] * 5, clips=[0.5] * 5, sigmas=[0.8] * 5
    )
    first = starts(FlatModel(make_model()), make_model, seed=5, trials=1, agents=5, same_start=True)
    expected = torch.stack(exact_diffusion(oracle, graph, list(first), [0.3] * 4))
    # Clipped sums are cut off to quanta, so an answer may be rounded to the next point of its grid, σC/1024 of a sum.
    torch.testing.assert_close(result.theta, expected, rtol=0, atol=2e-4)
