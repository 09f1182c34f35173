"""Runs that `tacit.train(..., run=...)` keeps: the folder of the command line, and what is kept in it."""

import json
import re
import tomllib
from dataclasses import fields, replace
from functools import partial

import networkx as nx
import numpy as np
import pytest
import torch
from own_run import OBJECTS, Halving, given, own_data, smoothed, stopped
from torch import nn

import tacit
from tacit.data import AgentData
from tacit.errors import BudgetExceeded, InvalidInput
from tacit.privacy import DurableLedger
from tacit.report import RecordedRun, write_comparison, write_report
from tacit.runs import RunFolder, Runner, list_runs
from tacit.runs.config import RunConfig
from tacit.runs.event_types import now
from tacit.runs.python_config import PARTS
from tacit.runs.python_training import _AS_THEY_ARE
from tacit.runs.rebuilding import make_again
from tacit.runs.recorded_parts import describe_function, describe_model


def test_a_kept_run_has_the_same_folder_as_one_of_the_command_line(tmp_path, digits):
    """Both doors, the same settings: the same models to the bit, the same events, the same ledger."""
    config = RunConfig.of(
        {
            "dataset": "digits",
            "agents": 4,
            "split": "0.5",
            "noise_multiplier": 3.0,
            "lot_size": 24,
            "rounds": 6,
            "source": "seeded",
        }
    )
    with Runner.start(tmp_path, "typed", config) as runner:
        typed = runner.play(stop=lambda: False)
    kept = tacit.train(
        tacit.DSGT(),
        model=lambda: tacit.models.logistic(digits.input_shape, 10),
        data=digits.split(4, tacit.data.ByClass(t=0.5)),
        graph=tacit.graphs.ring(4),
        privacy=tacit.Privacy(noise_multiplier=3.0, delta=1e-5, clip=1.0, lot_size=24),
        sources=tacit.Seeded(0),
        rounds=6,
        lr=0.5,
        run="kept",
        runs=tmp_path,
    )
    assert torch.equal(kept.theta, typed.theta)
    folders = {folder.name: folder for folder in list_runs(tmp_path)}
    assert sorted(path.name for path in folders["kept"].path.iterdir()) == sorted(
        path.name for path in folders["typed"].path.iterdir()
    )
    summaries = {name: folder.summary() for name, folder in folders.items()}
    for key in set(summaries["typed"]) - {"heads", "seconds", "evaluation_seconds", "samples_per_second"}:
        assert summaries["kept"][key] == summaries["typed"][key], key
    plans = [replace(folders[name].events().plan, token="", fingerprint="", time=now()) for name in ("kept", "typed")]
    assert replace(plans[0], time=plans[1].time) == plans[1]
    ledger = DurableLedger(tmp_path / "ledger.sqlite", read_only=True)
    assert ledger.verify() == []
    assert {(entry.run, entry.event.count, entry.state) for entry in ledger.entries()} == {
        ("kept", 6, "finished"),
        ("typed", 6, "finished"),
    }
    write_report(RecordedRun.load(tmp_path / "kept"), tmp_path / "page.html")
    write_comparison([RecordedRun.load(tmp_path / name) for name in ("kept", "typed")], tmp_path / "both.html")
    assert kept.guarantees() == [replace(each) for each in kept.guarantees()]


def test_it_is_the_run_that_it_would_be_without_a_folder(tmp_path):
    settings = given()
    kept = tacit.train(tacit.DSGT(), **settings, run="one", runs=tmp_path)
    plain = tacit.train(tacit.DSGT(), **settings, spare_queries=2)
    assert torch.equal(kept.theta, plain.theta)
    assert kept.guarantees() == plain.guarantees()
    assert kept.folder == tmp_path / "one"
    assert plain.folder is None
    assert RunFolder(tmp_path / "one").events().plan.spare_queries == 2


def test_what_a_folder_keeps_reveals_nothing_of_private_records(tmp_path):
    """Other records in the place of the same number: no byte of the settings is another one."""
    tacit.train(tacit.DSGT(), **given(data=own_data()), run="one", runs=tmp_path / "a")
    other = own_data()
    other.dataset.train.inputs.add_(1.0)
    other.dataset.train.targets.copy_(other.dataset.train.targets.flip(0))
    tacit.train(tacit.DSGT(), **given(data=other), run="one", runs=tmp_path / "b")
    one, two = ((tmp_path / name / "one" / "config.toml").read_bytes() for name in "ab")
    assert one == two


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run": 3}, "run is 3; give the run a name"),
        ({"run": "../up"}, "cannot be called"),
        ({"ledger": tacit.Ledger()}, "leave out ledger"),
        ({"name": "two"}, "leave out name"),
        ({"budget": 3}, r"budget is 3; give a Budget\("),
        ({"checkpoint_every": 0}, "checkpoint_every is 0; it must be a whole number"),
        ({"run": None, "checkpoint_every": 5}, "checkpoint_every is for a run that is kept"),
        ({"run": None, "budget": tacit.Budget(epsilon=1.0, delta=1e-5)}, r"pass ledger=Ledger\(Budget"),
        ({"data": "study"}, "unknown data set 'study'"),
        ({"model": "nowhere.py:net"}, r"model nowhere.py:net: the file nowhere.py does not exist"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_kept_is_refused(tmp_path, changes, message):
    with pytest.raises(InvalidInput, match=message):
        tacit.train(tacit.DSGT(), **{**given(), "run": "one", "runs": tmp_path, **changes})
    assert not list_runs(tmp_path)


def test_several_trials_have_no_folder():
    with pytest.raises(InvalidInput, match="a folder keeps one run"):
        tacit.train_trials(2, tacit.DSGT(), **given(), run="one")


def test_a_budget_is_stored_and_holds(tmp_path):
    budget = tacit.Budget(epsilon=2.5, delta=1e-5)
    tacit.train(tacit.DSGT(), **given(), run="one", runs=tmp_path, budget=budget)
    assert DurableLedger(tmp_path / "ledger.sqlite", read_only=True).budget == budget
    with pytest.raises(BudgetExceeded):
        tacit.train(tacit.DSGT(), **given(), run="two", runs=tmp_path)
    assert [folder.name for folder in list_runs(tmp_path)] == ["one"]


def test_a_run_without_privacy_is_kept_and_resumed(tmp_path, monkeypatch):
    settings = given(privacy=tacit.NoPrivacy(lot_size=20), sources=None)
    whole = tacit.train(tacit.DSGT(), **settings, run="whole", runs=tmp_path)
    runner = Runner.start(
        tmp_path,
        "cut",
        RunFolder(tmp_path / "whole").config(),
        make=lambda say: tacit.Training(algorithm=tacit.DSGT(), **settings),
    )
    with runner:
        assert runner.play(stop=lambda: runner.session.round >= 5) is None
    resumed = tacit.resume("cut", runs=tmp_path, model=settings["model"], data=settings["data"])
    assert torch.equal(resumed.theta, whole.theta)
    assert tacit.load("cut", runs=tmp_path).guarantees()[0].epsilon == float("inf")


def test_everything_that_a_training_is_made_of_is_kept():
    """A setting that is added later must be kept, too, or be said not to matter here."""
    kept = {*_AS_THEY_ARE, *PARTS, "privacy", "sizes", "device", "absences"}
    of_no_matter = {"ledger", "name", "taps", "progress"}  # the folder's own, and what only watches
    assert {field.name for field in fields(tacit.Training)} == kept | of_no_matter


def test_all_kinds_of_settings_come_back(tmp_path, monkeypatch):
    schedule = tacit.networks.RandomMatchings(4, seed=2)
    settings = stopped(
        tmp_path,
        monkeypatch,
        rule=Halving(0.25),
        graph=schedule,
        lr=tacit.LogSpaced(0.5, 0.1),
        sizes=[60, 60, 60, 60],
        privacy=tacit.Privacy(
            noise_multiplier=[3.0, 4.0, 5.0, 6.0], delta=1e-4, clip=0.5, lot_size=np.array([10, 11, 12, 13])
        ),
        loss=smoothed,
        seed=4,
        any_order=True,
    )
    kept = tomllib.loads((tmp_path / "one" / "config.toml").read_text())
    assert kept["noise_multiplier"] == [3.0, 4.0, 5.0, 6.0]
    assert kept["lot_size"] == [10.0, 11.0, 12.0, 13.0]
    whole = tacit.train(Halving(0.25), **settings, spare_queries=2)
    resumed = tacit.resume(tmp_path / "one", **{key: settings[key] for key in (*OBJECTS, "graph")})
    assert torch.equal(resumed.theta, whole.theta)
    assert resumed.sizes == (60, 60, 60, 60)
    assert isinstance(resumed.data, AgentData)


def test_weights_of_ones_own_and_named_places_are_compared(tmp_path, monkeypatch):
    graph = nx.relabel_nodes(tacit.graphs.ring(4), dict(enumerate(("a", "b", "c", "d"))))
    weights = tacit.graphs.mixing_matrix(tacit.graphs.ring(4), "max_degree")
    settings = stopped(tmp_path, monkeypatch, graph=graph, mixing=weights)
    objects = {key: settings[key] for key in (*OBJECTS, "graph")}
    with pytest.raises(InvalidInput, match=r"mixing \(a matrix of your own\)"):
        tacit.resume(tmp_path / "one", **objects)
    with pytest.raises(InvalidInput, match=r"mixing: weights"):
        tacit.resume(
            tmp_path / "one",
            **objects,
            mixing=tacit.graphs.mixing_matrix(tacit.graphs.ring(4), "metropolis") * 0.5 + weights * 0.5 @ weights,
        )
    assert tacit.resume(tmp_path / "one", **objects, mixing=weights) is not None


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        (partial(tacit.models.mlp, (1, 8, 8), 10, hidden=(7,)), True),
        (partial(tacit.models.mlp, input_shape=(1, 8, 8), classes=10), True),
        (partial(tacit.models.mlp, [1, 8, 8], 10), False),
        (partial(lambda width: nn.Linear(width, 10), 64), False),
    ],
)
def test_a_function_with_some_of_its_arguments_is_kept_by_its_name_and_these(model, kept):
    part = describe_model(model, 3) if kept else describe_function(model)
    assert (part.made is not None) == kept
    if kept:
        again = make_again("model", json.loads(json.dumps(part.made)), None)
        assert describe_model(again, 3) == part


def test_step_sizes_of_numpy_and_torch_are_kept_as_numbers(tmp_path, monkeypatch):
    settings = stopped(tmp_path, monkeypatch, lr=np.array([0.1, 0.2, 0.3, 0.4]))
    assert tomllib.loads((tmp_path / "one" / "config.toml").read_text())["lr"] == "[0.1, 0.2, 0.3, 0.4]"
    seen = []
    objects = {key: settings[key] for key in OBJECTS}
    resumed = tacit.resume(tmp_path / "one", **objects, taps=[lambda tensors: seen.append(len(tensors))])
    assert torch.equal(resumed.theta, tacit.train(tacit.DSGT(), **settings, spare_queries=2).theta)
    assert len(seen) == 7  # rounds 5 to 11: two are played again with the answers on record


def test_one_graph_is_kept(tmp_path):
    tacit.train(tacit.DSGT(), **given(graph=[tacit.graphs.ring(4)], rounds=2), run="one", runs=tmp_path)
    with pytest.raises(InvalidInput, match=r"2 graphs for one run; give one.* a Cycle"):
        tacit.train(tacit.DSGT(), **given(graph=[tacit.graphs.ring(4)] * 2), run="two", runs=tmp_path)
    assert len(RunFolder(tmp_path / "one").events().plan.edges) == 4


def test_the_bar_of_a_kept_run_stays_whole_on_80_columns_with_the_last_snapshot_below_it(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich take the stream for a terminal
    monkeypatch.setenv("COLUMNS", "80")
    tacit.train(tacit.DSGT(), **given(progress=True), run="a-run-with-a-name", runs=tmp_path)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capfd.readouterr().err)
    assert re.search(r"a-run-with-a-name ━+ 12/12", shown)
    assert re.search(r"after round 12: accuracy [\d.]+%, ε=[\d.]+ per record at δ=1e-05,", shown)
    assert "…" not in shown
