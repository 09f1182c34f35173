"""Runs of `tacit.train(..., run=...)` that were stopped or killed: resumed to the bit, and refused where something changed."""

import json
import os
import sys
import time
from dataclasses import replace

import forked
import networkx as nx
import own_run
import pytest
import torch
from own_run import OBJECTS, WIDTH, Halving, given, narrow, net, own_data, smoothed, stopped
from torch import nn

import tacit
from tacit.data import IID
from tacit.errors import InvalidInput
from tacit.models.hashing import models_sha256
from tacit.privacy import DurableLedger, PrivateOracle
from tacit.runs import RunFolder, Runner
from tacit.runs.config import RunConfig
from tacit.runs.recorded_parts import STARTING_VALUES, changed_facts


@pytest.mark.parametrize(
    ("rule", "after"),
    [(tacit.DSGT(), 0), (tacit.DSGT(), 7), (tacit.Averaged(Halving(0.25), 0.9), 3), (tacit.DiNNO(inner_steps=2), 13)],
    ids=["at once", "after a checkpoint", "a rule of one's own", "within a round"],
)
def test_a_stopped_run_goes_on_to_where_an_uninterrupted_one_ends(tmp_path, monkeypatch, rule, after):
    settings = stopped(tmp_path, monkeypatch, rule, after=after)
    whole = tacit.train(rule, **settings, run="whole", runs=tmp_path)
    resumed = tacit.resume("one", runs=tmp_path, **{key: settings[key] for key in OBJECTS})
    assert torch.equal(resumed.theta, whole.theta)
    hashes = [RunFolder(tmp_path / name).summary()["models_sha256"] for name in ("one", "whole")]
    assert hashes[0] == hashes[1] == models_sha256(whole.theta)
    assert resumed.guarantees() == whole.guarantees()
    counts = {entry.event.count for entry in DurableLedger(tmp_path / "ledger.sqlite", read_only=True).entries()}
    assert counts == {24 if isinstance(rule, tacit.DiNNO) else 12}
    with pytest.raises(InvalidInput, match="is finished"):
        tacit.resume(tmp_path / "one", **{key: settings[key] for key in OBJECTS})


def test_what_has_names_needs_no_more_than_the_runs_name(tmp_path, monkeypatch, digits):
    """A published data set, a function of a module, a shipped rule and loss, and a graph: `tacit resume` could do it, too."""
    named = {"model": tacit.models.zoo.logistic, "data": digits.split(4, IID(), seed=3)}
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "digits_net", digits_net, raising=False)
    settings = stopped(tmp_path, monkeypatch, **named | {"model": digits_net})
    whole = tacit.train(tacit.DSGT(), **settings)
    kept = RunFolder(tmp_path / "one").config()
    assert {key: part.made is not None for key, part in kept.parts.items()} == dict.fromkeys(
        ("algorithm", "model", "loss", "data", "graph", "lr", "sources", "mixing"), True
    )
    with Runner.resume(tmp_path / "one") as runner:  # as `tacit resume` does
        resumed = runner.play(stop=lambda: False)
    assert resumed.history[-1].queries == 12
    plain = tacit.train(tacit.DSGT(), **settings, spare_queries=2)
    assert torch.equal(resumed.theta, plain.theta)
    assert whole.theta.shape == resumed.theta.shape


def test_what_can_no_longer_be_had_by_its_name_may_be_given(tmp_path, monkeypatch):
    settings = stopped(tmp_path, monkeypatch, model=net)
    assert RunFolder(tmp_path / "one").config().parts["model"].made is not None
    with monkeypatch.context() as patch:
        patch.delattr(own_run, "net")
        with pytest.raises(
            InvalidInput,
            match=r"has no 'net'.*Or give it again, as it was: tacit.resume\(.*one', data=data, model=model\)",
        ):
            tacit.resume(tmp_path / "one", data=settings["data"])
    assert tacit.resume(tmp_path / "one", data=settings["data"]) is not None


def digits_net():
    return tacit.models.logistic((1, 8, 8), 10)


def test_what_has_no_name_is_asked_for(tmp_path, monkeypatch):
    stopped(tmp_path, monkeypatch)
    with pytest.raises(
        InvalidInput,
        match=r"no file can hold: data \(own, 4 agents\) and model \(.*<lambda>.*\)\. .*one', data=data, model=model\)",
    ):
        tacit.resume(tmp_path / "one")
    with pytest.raises(
        InvalidInput,
        match=r"model \(.*\)\. Give it again, as tacit.train was given it: tacit\.resume\(.*, data=data, model=model\)",
    ):
        tacit.resume(tmp_path / "one", data=own_data())


def sigmoid():
    return nn.Sequential(nn.Linear(6, WIDTH), nn.Sigmoid(), nn.Linear(WIDTH, 4))


def held_out_moved():
    data = own_data()
    data.dataset.validation.inputs.add_(1.0)
    return data


def renamed():
    return replace(own_data(), owners=("a", "b", "c", "d"))


TAMPERED = [
    (
        {"model": narrow},
        r"model: parameters \(0.weight: float32 \[5, 6\] then, 0.weight: float32 \[4, 6\] now\), layers, code, starting values",
    ),
    ({"model": sigmoid}, r"model: layers"),
    ({"model": net()}, r"model: made by \(a function then, a module now\)"),
    ({"model": lambda: [torch.manual_seed(7), net()][1]}, r"model: code, starting values"),
    ({"data": own_data(180)}, r"data: numbers of records"),
    (
        {"data": own_data().dataset.split(4, IID(), seed=1)},
        r"data: partition \(own/IID/seed 0/4 agents then, own/IID/seed 1/4 agents now\), owners",
    ),
    ({"data": own_data().dataset.split(3, IID())}, r"data: agents \(4 then, 3 now\)"),
    ({"data": held_out_moved()}, r"data: validation records"),
    ({"data": renamed()}, r"data: owners"),
    (
        {"data": replace(own_data(), dataset=replace(own_data().dataset, prepare=lambda inputs: inputs * 2))},
        r"data: preparation \(.*\), code",
    ),
    ({"loss": smoothed}, r"loss: code"),
    ({"graph": tacit.graphs.path(4)}, r"graph: links \(4 then, 3 now\)"),
    ({"graph": nx.relabel_nodes(tacit.graphs.ring(4), {0: 0, 1: 2, 2: 1, 3: 3})}, r"graph: links"),
    ({"graph": tacit.networks.base_graphs(4)}, r"graph: "),
    ({"algorithm": tacit.DSGD()}, r"algorithm: rule \(dsgt then, dsgd now\)"),
    (
        {"algorithm": tacit.Averaged(tacit.DSGT())},
        r"algorithm: settings \(DSGT\(codec=Dense\(\)\) then, Averaged\(rule=DSGT\(codec=Dense\(\)\), decay=0.95\) now\)",
    ),
    ({"lr": 0.25}, r"lr: settings \(0.5 then, 0.25 now\)"),
    ({"sources": tacit.Seeded(1)}, r"sources: settings \(Seeded\(seed=0\) then, Seeded\(seed=1\) now\)"),
    ({"sources": tacit.Secret()}, r"sources: settings"),
    ({"mixing": "max_degree"}, r"mixing: settings \('metropolis' then, 'max_degree' now\)"),
    ({"rounds": 20}, r"rounds is kept with the run and cannot be changed"),
    ({"modle": net}, r"unknown object 'modle'; did you mean 'model'\?"),
]


@pytest.fixture(scope="module")
def one_stopped(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        stopped(runs, patch)
    return runs


@pytest.mark.parametrize(
    ("changes", "message"), TAMPERED, ids=[f"{i} {next(iter(c))}" for i, (c, _) in enumerate(TAMPERED)]
)
def test_what_differs_is_said_and_nothing_is_asked(one_stopped, changes, message):
    objects = {"model": lambda: net(), "data": own_data()} | changes
    before = (one_stopped / "one" / "events.jsonl").read_bytes()
    with pytest.raises(InvalidInput, match=message):
        tacit.resume(one_stopped / "one", **objects)
    assert (one_stopped / "one" / "events.jsonl").read_bytes() == before
    assert DurableLedger(one_stopped / "ledger.sqlite", read_only=True).account("one").spent == 7


def test_starting_values_drawn_by_another_kind_of_processor_are_no_difference():
    ours, theirs = ({STARTING_VALUES: f"{kind}:{digest}", "layers": "Linear"} for kind, digest in ("AB", "CD"))
    assert changed_facts(ours, theirs) == []
    assert changed_facts(ours, theirs | {"layers": "MLP"}) == ["layers"]
    assert changed_facts(ours, {**ours, STARTING_VALUES: "A:D"}) == [STARTING_VALUES]


def test_a_changed_constant_that_the_model_refers_to_is_found(one_stopped, monkeypatch):
    monkeypatch.setattr(own_run, "WIDTH", 6)
    with pytest.raises(InvalidInput, match="model: parameters"):
        tacit.resume(one_stopped / "one", model=lambda: net(), data=own_data())


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("lot_size = 20.0", "lot_size = 19.0", "was changed since the run began"),
        ('settings = "Seeded(seed=0)"', 'settings = "Seeded(seed=1)"', "was changed since the run began"),
        ('started_from = "python"', 'started_from = "window"', "unknown setting|started_from"),
        ("rounds = 12", 'rounds = "many"', "rounds is 'many'; it must be a whole number"),
        ("rounds = 12", "rond = 12", "did you mean 'rounds'"),
    ],
)
def test_changed_settings_are_refused(one_stopped, before, after, message):
    file = one_stopped / "one" / "config.toml"
    content = file.read_text()
    assert before in content
    file.write_text(content.replace(before, after))
    try:
        with pytest.raises(InvalidInput, match=message):
            tacit.resume(one_stopped / "one", model=lambda: net(), data=own_data())
    finally:
        file.write_text(content)


def test_the_command_line_says_where_such_settings_belong(one_stopped):
    with pytest.raises(InvalidInput, match="a run that was started from Python"):
        RunConfig.of(RunConfig.read(one_stopped / "one" / "config.toml"), {})


def play_counted(tell, runs, count):
    """Go on with a run, with a byte for every answer that left the oracle."""
    answers = os.open(count, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    gradient = PrivateOracle.gradient

    def counted(self, theta):
        answer = gradient(self, theta)
        os.write(answers, b".")
        return answer

    PrivateOracle.gradient = counted
    tell("going")
    settings = given(rounds=60, evaluate_every=30)
    if (runs / "killed").exists():
        tacit.resume("killed", runs=runs, **{key: settings[key] for key in OBJECTS})
    else:
        tacit.train(tacit.DSGT(), **settings, spare_queries=6, run="killed", runs=runs, checkpoint_every=12)


def test_kill_9_in_a_loop_ends_bit_for_bit_and_asks_nothing_twice(tmp_path):
    whole = tacit.train(tacit.DSGT(), **given(rounds=60, evaluate_every=30), spare_queries=6)
    count, kills = tmp_path / "count", 0
    count.touch()
    while not (tmp_path / "killed" / "summary.json").exists():
        child, said = forked.start(play_counted, tmp_path, count)
        with said:
            assert said.readline() == "going\n"
            before = count.stat().st_size
            while kills < 3 and child.is_alive() and count.stat().st_size < before + 13:
                time.sleep(0.005)
            if kills < 3 and child.is_alive():
                child.kill()
                kills += 1
            child.join()
    assert kills == 3
    summary = json.loads((tmp_path / "killed" / "summary.json").read_text())
    assert summary["models_sha256"] == models_sha256(whole.theta)
    ledger = DurableLedger(tmp_path / "ledger.sqlite", read_only=True)
    (spent,) = {entry.event.count for entry in ledger.entries(run="killed")}
    assert 60 <= count.stat().st_size <= spent <= 60 + kills
    assert ledger.verify() == []


def test_a_run_that_was_killed_before_it_asked_anything_begins_when_it_is_resumed(tmp_path):
    settings = given()
    whole = tacit.train(tacit.DSGT(), **settings, run="whole", runs=tmp_path)
    RunFolder.create(tmp_path, "one", RunFolder(tmp_path / "whole").config())  # and no more than that
    resumed = tacit.resume("one", runs=tmp_path, **{key: settings[key] for key in OBJECTS})
    assert torch.equal(resumed.theta, whole.theta)


@pytest.mark.parametrize("graph", ["ring", "matchings"])
def test_a_run_whose_parts_were_given_by_name_is_resumed_by_its_name_alone(tmp_path, monkeypatch, graph):
    named = {"data": "digits", "agents": 4, "split": "0.5", "model": "mlp", "graph": graph}
    whole = tacit.train("dinno", **given(**named), run="whole", runs=tmp_path)
    stopped(tmp_path, monkeypatch, "dinno", **named)
    config = RunFolder(tmp_path / "one").config()
    assert (config.algorithm, config.model, config.graph) == ("dinno", "mlp", graph), "as tacit train keeps them"
    resumed = tacit.resume("one", runs=tmp_path)
    assert torch.equal(resumed.theta, whole.theta)
    assert tacit.load("one", runs=tmp_path).evaluate().loss.tolist() == whole.evaluate().loss.tolist()


@pytest.mark.parametrize("rule", ["dsgt", "sgd"])
def test_data_of_ones_own_that_was_divided_here_is_divided_again_in_the_same_way(tmp_path, monkeypatch, rule):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "from tacit.data import DataSet\n"
        "inputs = torch.randn(90, 6, generator=torch.Generator().manual_seed(1))\n"
        "def whole():\n"
        "    units = [row // 3 for row in range(90)]\n"
        "    return DataSet.from_records(name='mine', train=(inputs, (inputs[:, 0] > 0).long()), classes=2, units=units)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    privacy = tacit.Privacy(noise_multiplier=3.0, delta=1e-5, clip=1.0, lot_size=5, unit=tacit.Unit("patient", most=3))
    named = {"data": "mine.py:whole", "agents": 3, "split": "iid", "model": "logistic", "privacy": privacy}
    named["graph"] = None if rule == "sgd" else "ring"
    whole = tacit.train(rule, **given(**named), run="whole", runs=tmp_path)
    stopped(tmp_path, monkeypatch, rule, **named)
    assert torch.equal(tacit.resume("one", runs=tmp_path).theta, whole.theta)
