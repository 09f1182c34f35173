"""The smoke profile plays every experiment from end to end, without any data set that would have to be fetched."""

import json

import pytest

from tacit.errors import InvalidInput
from tacit.experiments import EXPERIMENTS, PROFILES, load_experiment, reproduce
from tacit.experiments.hyperparameters import SPLIT, setting

# `convergence` has quick tests of its own; the others play the same steps as those that stay.
_SLOW = ("density", "convergence", "tuning", "centrality", "accuracy", "connectivity", "split", "bandwidth", "family")
SMOKE = [pytest.param(name, marks=pytest.mark.slow) if name in _SLOW else name for name in EXPERIMENTS]


@pytest.mark.parametrize("name", SMOKE)
def test_smoke(name, tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "nothing"))
    experiment = load_experiment(name)
    done = reproduce(experiment, "smoke", tmp_path / name)
    document = json.loads((tmp_path / name / "results.json").read_text())
    assert document["rows"] == done.rows
    assert ("no trend" in done.finding) == (name not in ("errata", "graphs"))
    for algorithm in {row["algorithm"] for row in done.rows if "algorithm" in row} - {"central"}:
        assert algorithm in done.finding.lower()
    for path in done.written:
        assert path.stat().st_size > 100
    if name not in ("errata", "graphs", "convergence", "attack"):
        assert {row["dataset"] for row in done.rows} == {"digits"}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_profile_is_declared(name):
    experiment = load_experiment(name)
    for profile in PROFILES:
        points = experiment.points(profile)
        assert len({point.key for point in points}) == len(points)
        assert len({point.describe(experiment.varies) for point in points}) == len(points)
        assert all(json.loads(json.dumps(point.named)) == point.named for point in points)
        assert sum(map(experiment.seconds, experiment.points(profile))) > 0
    assert set(experiment.varies) <= {
        name for each in PROFILES for point in experiment.points(each) for name in point.named
    }
    smoke, laptop, paper = (sum(map(experiment.seconds, experiment.points(profile))) for profile in PROFILES)
    assert smoke <= laptop <= paper


def test_the_laptop_profile_takes_some_hours():
    found = [load_experiment(name) for name in EXPERIMENTS]
    hours = sum(each.total_seconds(each.points("laptop")) for each in found) / 3600
    assert 2 < hours < 16  # of one core: a night of two cores


def test_no_estimate_is_made_of_what_a_processor_cannot_play():
    found = [load_experiment(name) for name in EXPERIMENTS]
    paper = {each.name: each.total_seconds(each.points("paper")) for each in found}
    assert [name for name, seconds in paper.items() if seconds is None] == ["split"]
    assert all(seconds is None or seconds < 3 * 86400 for seconds in paper.values())


def test_the_papers_grids_are_whole():
    connectivity = load_experiment("connectivity").points("paper")
    assert {point["epsilon"] for point in connectivity} == {0.5, 1.0, 10.0, 100.0, None}
    assert {point["fiedler"] for point in connectivity} == {0.06, 0.39, 0.7, 1.0, None}
    assert len(connectivity) == 5 * (1 + 3 * 4)
    assert {(point["rounds"], point["lot"], point["trials"]) for point in connectivity} == {(2000, 256, 5)}
    split = load_experiment("split").points("paper")
    assert {point["t"] for point in split} == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert {(point["dataset"], point["model"], point["trials"]) for point in split} == {("cifar100", "resnet9", 3)}
    attack = load_experiment("attack").points("paper")
    assert sum(point["runs"] for point in attack if point["algorithm"] == "dsgd") == 5000


def test_every_hyperparameter_of_the_paper_is_in_one_place():
    """The text has 20,000 rounds for CIFAR-100 and the published files 25,000; the text's are played, two inner steps each."""
    points = load_experiment("split").points("paper")
    assert {point["rounds"] for point in points} == {SPLIT["paper"].rounds} == {20_000}
    assert setting("dinno", 10.0, "cifar100").rule.inner_steps == 2


def test_an_unknown_experiment_is_refused():
    with pytest.raises(InvalidInput, match="did you mean 'connectivity'"):
        load_experiment("conectivity")
