import re
from functools import partial
from pathlib import Path

import pytest
from made_runs import read_events, toml, write_events
from torch import nn

import tacit
from tacit.report import RecordedRun, list_errata
from tacit.runs.config import RunConfig

DOCS = Path(__file__).parents[2] / "docs" / "errata.md"


def numbers(run):
    return [erratum.number for erratum in list_errata(run)]


def altered(folder, config=None, **plan):
    events = read_events(folder)
    events[0] |= plan
    write_events(folder, events)
    (folder / "config.toml").write_text(toml(config or {}))
    return RecordedRun.load(folder)


def test_rows_follow_from_the_run(runs):
    assert numbers(runs["dsgt"]) == [4, 5, 10, 11, 15]
    assert numbers(runs["dinno"]) == [1, 2, 4, 7, 10, 11, 15]
    assert numbers(runs["seeded"]) == [4, 5, 8, 10, 11, 15]
    assert numbers(runs["open"]) == [5, 10, 11, 15]
    assert numbers(runs["alone"]) == [4, 10, 11]


def test_dinno_says_what_it_was_charged(runs):
    assert any("16 queries in 8 rounds" in erratum.here for erratum in list_errata(runs["dinno"]))


def test_uniform_weights_drift_only_on_irregular_graphs(folder):
    run = altered(folder, {"mixing": "uniform"})
    assert next(e for e in list_errata(run) if e.number == 6).here.startswith("This graph is regular")
    run = altered(folder, {"mixing": "uniform"}, edges=[[0, i] for i in range(1, 6)])
    assert "drifts" in next(e for e in list_errata(run) if e.number == 6).here
    assert 6 not in numbers(altered(folder, {"mixing": "metropolis"}))


def test_diagnostics_sources_and_data_sets_have_rows_of_their_own(folder):
    run = altered(folder, {"private_diagnostics": True}, release=False)
    assert {8, 9} & set(numbers(run)) == {9}
    run = altered(folder, {"private_diagnostics": True, "source": "seeded", "step": "momentum"}, algorithm="dsgd")
    assert {7, 8, 9} <= set(numbers(run))
    assert {3, 13} <= set(numbers(altered(folder, dataset="cifar-100")))


def test_only_dsgd_with_momentum_has_the_erratum_of_momentum(folder):
    """The settings of every run have a value of `momentum`, whether its steps use it or not."""
    plain = RunConfig.of({"algorithm": "dsgd", "epsilon": 1.0}).pinned().model_dump(exclude_none=True)
    assert plain["momentum"] == 0.9
    assert 7 not in numbers(altered(folder, plain, algorithm="dsgd"))
    assert 7 in numbers(altered(folder, plain | {"step": "momentum"}, algorithm="dsgd"))


@pytest.mark.parametrize(("step", "expected"), [(tacit.Plain(), False), (tacit.Momentum(0.5), True)])
def test_momentum_of_a_run_from_python_is_found_in_its_rule(tmp_path, step, expected):
    tacit.train(
        tacit.DSGD(step=step),
        model=partial(nn.Linear, 20, 10),
        data=tacit.data.synthetic(100).split(2, tacit.data.IID()),
        graph=tacit.graphs.ring(2),
        privacy=tacit.NoPrivacy(lot_size=20),
        rounds=1,
        lr=0.1,
        run="kept",
        runs=tmp_path,
    )
    assert (7 in numbers(RecordedRun.load(tmp_path / "kept"))) == expected


def test_every_number_is_a_row_of_the_docs(runs):
    rows = {int(number) for number in re.findall(r"^\| (\d+) \|", DOCS.read_text(), re.M)}
    assert {number for run in runs.values() for number in numbers(run)} <= rows
    assert {3, 6, 8, 9, 13, 16} <= rows
