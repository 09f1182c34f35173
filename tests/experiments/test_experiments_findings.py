"""Findings follow from the rows: made-up ones that bear a claim out, that refute it, and that are too few to tell."""

import math

import pytest

from tacit.experiments import load_experiment
from tacit.experiments.statistics import Summary, difference, fit_slope, summarise, verdict

TRAINED = {"dataset": "mnist", "model": "convnet", "rounds": 400, "trials": 3, "lot": 256, "agents": 10, "t": 1.0}


def trained(values, spread=0.002, **settings):
    """Three trials around each value of accuracy."""
    return [
        {**TRAINED, **settings, **setting, "trial": trial, "accuracy": accuracy + spread * (trial - 1)}
        for setting, accuracy in values
        for trial in range(3)
    ]


def graph_rows(*, dsgd, dsgt, central=0.9, spread=0.002):
    rows = trained([({"fiedler": None}, central)], spread, algorithm="central", epsilon=1.0)
    for algorithm, values in (("dsgd", dsgd), ("dsgt", dsgt)):
        pairs = [({"fiedler": fiedler}, value) for fiedler, value in zip((0.06, 0.39, 0.7, 1.0), values, strict=True)]
        rows += trained(pairs, spread, algorithm=algorithm, epsilon=1.0)
    return rows


def line(text, begin):
    return next(each for each in text.splitlines() if each.startswith(f"- {begin}"))


def test_connectivity_as_claimed():
    said = load_experiment("connectivity").finding(
        graph_rows(dsgd=(0.6, 0.8, 0.805, 0.81), dsgt=(0.88, 0.88, 0.881, 0.88))
    )
    assert "so it is the same, as claimed" in line(said, "DSGT, ε = 1")
    assert "From 0.39 up best and worst differ by +1.0 ± 0.5 points, so it is the same, as claimed" in said
    assert "From 1 to 0.06 it changes by -21.0 ± 0.5 points, a decline, as claimed" in said
    assert "is -2.0 ± 0.4 points from central training, ε = 1, within the 3 points of the claim" in said
    assert "against" not in said


def test_connectivity_against_the_claim():
    said = load_experiment("connectivity").finding(graph_rows(dsgd=(0.8, 0.7, 0.75, 0.8), dsgt=(0.6, 0.7, 0.75, 0.8)))
    assert "so it is not the same, against the claim" in line(said, "DSGT, ε = 1")
    assert "so it is not the same, against the claim" in line(said, "DSGD, ε = 1")
    assert "no decline, against what is claimed" in line(said, "DSGD, ε = 1")
    assert "more than the 3 points of the claim" in said
    assert ", as claimed" not in said


def test_trials_that_differ_widely_decide_nothing():
    said = load_experiment("connectivity").finding(
        graph_rows(dsgd=(0.6, 0.7, 0.75, 0.7), dsgt=(0.7, 0.72, 0.75, 0.71), spread=0.2)
    )
    assert said.count("which these trials do not tell from none") == 3
    assert "as claimed" not in said


def split_rows(values, central):
    rows = trained([({"graph": None}, central)], algorithm="central", epsilon=10.0)
    for algorithm, (even, apart) in values.items():
        pairs = [({"t": 0.0}, even), ({"t": 1.0}, apart)]
        rows += trained(pairs, algorithm=algorithm, epsilon=10.0, graph="complete")
    return rows


def test_split_as_claimed_and_against():
    finding = load_experiment("split").finding
    said = finding(split_rows({"dsgd": (0.8, 0.6), "dsgt": (0.8, 0.8)}, 0.85))
    assert "a fall, as claimed" in line(said, "DSGD")
    assert "t does not matter, as claimed" in line(said, "DSGT")
    assert "within the 6 points of the claim" in line(said, "Central")
    assert "in the place of the paper's CIFAR-100" in said
    said = finding(split_rows({"dsgd": (0.8, 0.8), "dsgt": (0.8, 0.6)}, 0.85))
    assert "no fall, against the claim" in line(said, "DSGD")
    assert "t matters, against the claim" in line(said, "DSGT")
    assert "at most 25.0 points below, at t=1, more than the 6 points" in line(said, "Central")


def lagging(behind, algorithm, epsilon):
    """Node 0 so far behind at centrality 0.05, and not at 0.5."""
    return [
        {**TRAINED, "algorithm": algorithm, "epsilon": epsilon, "centrality": centrality, "trial": trial}
        | {"round": round, "others": 0.8, "node_0": 0.8 - (behind if centrality == 0.05 else 0) - 0.001 * trial}
        for centrality in (0.05, 0.5)
        for trial in range(3)
        for round in (0, 100, 200)
    ]


@pytest.mark.parametrize(
    ("algorithm", "epsilon", "behind", "expected"),
    [
        ("dsgd", 1.0, 0.2, "is slowed, as claimed"),
        ("dsgd", 1.0, 0.0, "is hardly slowed, against the claim"),
        ("dsgt", 1.0, 0.2, "is slowed, against the claim"),
        ("dinno", None, 0.0, "is hardly slowed, as claimed"),
        ("dinno", None, -0.3, "is hardly slowed, as claimed"),
    ],
)
def test_centrality(algorithm, epsilon, behind, expected):
    said = load_experiment("centrality").finding(lagging(behind, algorithm, epsilon))
    assert expected in said
    assert "at high centrality hardly anyone is slowed, as claimed" in said


@pytest.mark.parametrize(("ahead", "who"), [(0.1, "the others are"), (-0.1, "node 0 is")])
def test_centrality_in_the_middle(ahead, who):
    rows = [
        row | {"node_0": row["node_0"] + (ahead if row["centrality"] == 0.5 else 0)}
        for row in lagging(0.2, "dsgd", 1.0)
    ]
    assert f"at high centrality {who} slowed, against the claim" in load_experiment("centrality").finding(rows)


@pytest.mark.parametrize(("factor", "expected"), [(2, "as claimed"), (1, "against what is claimed")])
def test_bandwidth(factor, expected):
    rows = [
        {**TRAINED, "algorithm": algorithm, "epsilon": 1.0, "graph": "ring", "trial": 0, "round": round}
        | {"bytes_sent": round * 10**6 * times, "accuracy": round / 1000}
        for algorithm, times in (("dsgd", 1), ("dsgt", factor))
        for round in (0, 200, 400)
    ]
    said = load_experiment("bandwidth").finding(rows)
    assert f"DSGT sends {factor:.2f} times what DSGD sends, {expected}" in said
    assert f"After 400 MB of all agents: DSGD 40.0 %, DSGT {40 / factor:.1f} %" in said


def converging(power, rounds=100):
    """Distances that settle at σ to a power after shrinking by a tenth a round."""
    return [
        {"algorithm": "dsgt", "part": "constant", "sigma": sigma, "clip": 5.0, "lot": 40, "rounds": rounds}
        | {"trial": trial, "round": round, "clipped_share": 0.0}
        | dict.fromkeys(
            ("to_limit", "to_noiseless", "to_optimum", "average_to_limit"),
            0.9**round + (0.01 * sigma**power * (1 + 0.01 * trial) if sigma else 0.0),
        )
        for sigma in (0.0, 0.1, 0.3, 1.0, 3.0)
        for trial in range(2 if sigma else 1)
        for round in range(1, rounds + 1, 4)
    ]


@pytest.mark.parametrize(
    ("power", "expected"), [(1.0, "in proportion to σ, as the theorem"), (0.5, "not in proportion to σ: slope 0.49")]
)
def test_convergence(power, expected):
    said = load_experiment("convergence").finding(converging(power))
    assert expected in said
    assert "shrinks by a factor 0.900" in said


def test_errata_states_both_bounds_of_row_3():
    row = {"row": 3, "nominal_epsilon": 10.0, "noise_multiplier": 1.072, "epsilon": 82.4, "epsilon_at_least": 77.1}
    first = {**row, "what": "as accounted: one lot", "epsilon": 9.28, "epsilon_at_least": 9.28}
    said = load_experiment("errata").finding([first, {**row, "what": "as run: five sub-lots"}])
    assert "between about 77 and 82; the paper's figure is too small" in said
    fine = {**row, "what": "as run", "epsilon": 9.0, "epsilon_at_least": 9.0}
    assert "the paper's figure holds" in load_experiment("errata").finding([first, fine])


def attack_rows(present_mean):
    event = {"sample_rate": 0.1, "noise_multiplier": 3.4, "queries": 100}
    return [
        {"algorithm": "dsgd", "dataset": "mnist", "rounds": 100, "epsilon": 1.0, "delta": 0.01, **event}
        | {"present": present, "run": run, "score": run / 1000 + present_mean * present}
        for present in (False, True)
        for run in range(1000)
    ]


@pytest.mark.parametrize(("shift", "expected"), [(0.01, "no violation is found"), (0.9, "the claim is broken")])
def test_attack(shift, expected):
    assert expected in line(load_experiment("attack").finding(attack_rows(shift)), "DP-DSGD")


def test_intervals_are_students_and_welchs():
    assert summarise([1.0, 2.0, 3.0]) == Summary(mean=2.0, margin=pytest.approx(4.302653 / math.sqrt(3)), trials=3)
    assert summarise([1.0]).margin is None
    found = difference([2.0, 3.0, 4.0], [1.0, 2.0, 3.0])
    assert (found.mean, found.margin) == (pytest.approx(1.0), pytest.approx(2.776445 * math.sqrt(2 / 3)))
    assert difference([1.0, 1.0], [1.0, 1.0]).margin == 0.0


def test_a_slope_has_an_interval_that_holds_the_truth():
    line = fit_slope([0.0, 1.0, 2.0, 3.0], [0.1, 0.9, 2.1, 2.9])
    assert line is not None
    assert line.holds(1.0)
    assert not line.holds(2.0)
    assert fit_slope([0.0, 1.0], [0.0, 1.0]) is None
    assert fit_slope([1.0, 1.0, 1.0], [0.0, 1.0, 2.0]) is None


@pytest.mark.parametrize(
    ("mean", "margin", "expected"),
    [
        (0.01, 0.01, "same"),
        (0.05, 0.01, "different"),
        (0.05, 0.1, "undecided"),
        (0.0, 0.1, "undecided"),
        (0.5, None, "undecided"),
    ],
)
def test_verdicts(mean, margin, expected):
    assert verdict(Summary(mean=mean, margin=margin, trials=3), 0.02) == expected
