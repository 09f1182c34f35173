import re
from pathlib import Path

from made_runs import read_events, toml, write_events

from tacit.report import Run, applicable

DOCS = Path(__file__).parents[2] / "docs" / "errata.md"


def numbers(run):
    return [erratum.number for erratum in applicable(run)]


def altered(folder, config=None, **plan):
    events = read_events(folder)
    events[0] |= plan
    write_events(folder, events)
    (folder / "config.toml").write_text(toml(config or {}))
    return Run.load(folder)


def test_rows_follow_from_the_run(runs):
    assert numbers(runs["dsgt"]) == [4, 5, 10, 11, 15]
    assert numbers(runs["dinno"]) == [1, 2, 4, 7, 10, 11, 15]
    assert numbers(runs["seeded"]) == [4, 5, 8, 10, 11, 15]
    assert numbers(runs["open"]) == [5, 10, 11, 15]
    assert numbers(runs["alone"]) == [4, 10, 11]


def test_dinno_says_what_it_was_charged(runs):
    assert any("16 queries in 8 rounds" in erratum.here for erratum in applicable(runs["dinno"]))


def test_uniform_weights_drift_only_on_irregular_graphs(folder):
    run = altered(folder, {"mixing": "uniform"})
    assert next(e for e in applicable(run) if e.number == 6).here.startswith("This graph is regular")
    run = altered(folder, {"mixing": "uniform"}, edges=[[0, i] for i in range(1, 6)])
    assert "drifts" in next(e for e in applicable(run) if e.number == 6).here
    assert 6 not in numbers(altered(folder, {"mixing": "metropolis"}))


def test_diagnostics_sources_and_data_sets_have_rows_of_their_own(folder):
    run = altered(folder, {"private_diagnostics": True}, release=False)
    assert {8, 9} & set(numbers(run)) == {9}
    run = altered(folder, {"private_diagnostics": True, "source": "seeded", "momentum": 0.9}, algorithm="DSGD")
    assert {7, 8, 9} <= set(numbers(run))
    assert {3, 13} <= set(numbers(altered(folder, dataset="cifar-100")))


def test_every_number_is_a_row_of_the_docs(runs):
    rows = {int(number) for number in re.findall(r"^\| (\d+) \|", DOCS.read_text(), re.M)}
    assert {number for run in runs.values() for number in numbers(run)} <= rows
    assert {3, 6, 8, 9, 13, 16} <= rows
