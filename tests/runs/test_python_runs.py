"""Runs that `tacit.train(..., run=...)` keeps: the folder of the command line, resumed, loaded, and tampered with."""

import json
import os
import pickle
import re
import signal
import sys
import threading
import time
import tomllib
from dataclasses import dataclass, fields, replace
from functools import partial

import forked
import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit.data import IID, AgentData, DataSet
from tacit.errors import BudgetExceeded, DataError, InvalidInput, RuleError, StorageError
from tacit.models.hashing import models_sha256
from tacit.privacy import DurableLedger, PrivateOracle
from tacit.report import RecordedRun, write_comparison, write_report
from tacit.runs import RunFolder, Runner, list_runs
from tacit.runs.config import RunConfig
from tacit.runs.event_types import now
from tacit.runs.parts import describe_function, describe_model
from tacit.runs.python_config import PARTS
from tacit.runs.python_training import _AS_THEY_ARE
from tacit.runs.rebuilding import make_again

PRIVATE = tacit.Privacy(noise_multiplier=3.0, delta=1e-5, clip=1.0, lot_size=20)


@pytest.fixture(scope="module")
def digits():
    return tacit.data.load("digits")


def own_data(count=200, shift=0.0):
    """Records of one's own, for four agents."""
    chance = torch.Generator().manual_seed(5)
    inputs = torch.randn(count + 60, 6, generator=chance) + shift
    targets = (inputs[:, 0] > 0).long() + 2 * (inputs[:, 1] > 0).long()
    own = DataSet.from_records(
        name="own",
        train=(inputs[:count], targets[:count]),
        validation=(inputs[count : count + 30], targets[count : count + 30]),
        test=(inputs[-30:], targets[-30:]),
        classes=4,
    )
    return own.split(4, IID())


WIDTH = 5


def net():
    return nn.Sequential(nn.Linear(6, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 4))


@dataclass(frozen=True)
class Halving:
    """A rule of one's own, which this module can name."""

    factor: float = 0.5

    def init(self, theta):
        return tacit.DSGD().init(theta)

    def round(self, state, at):
        theta = at.exchange(state.theta).mix() - self.factor * at.lr * at.gradient(state.theta)
        return state._replace(theta=theta)


@dataclass(frozen=True)
class Slipping(Halving):
    """A rule with a mistake that only answers bring out."""

    def round(self, state, at):
        if at.round == 3 and float(at.gradient(state.theta).abs().sum()) > 0:
            raise KeyError("momentum")
        return super().round(state, at)


def given(**changes):
    return {
        "model": lambda: net(),
        "data": own_data(),
        "graph": tacit.graphs.ring(4),
        "privacy": PRIVATE,
        "rounds": 12,
        "lr": 0.5,
        "sources": tacit.Seeded(0),
        "evaluate_every": 3,
        **changes,
    }


OBJECTS = ("model", "data")  # those of `given` that no name stands for


def stop(monkeypatch, after):
    """Let training end with an error after so many answers, as a program's own mistake would."""
    gradient, made = PrivateOracle.gradient, []

    def limited(self, theta):
        if len(made) == after:
            raise KeyboardInterrupt
        made.append(1)
        return gradient(self, theta)

    monkeypatch.setattr(PrivateOracle, "gradient", limited)


def stopped(runs, monkeypatch, rule=None, *, after=7, **changes):
    settings = given(**changes)
    with monkeypatch.context() as patch:
        stop(patch, after)
        with pytest.raises(KeyboardInterrupt):
            tacit.train(rule or tacit.DSGT(), **settings, run="one", runs=runs, checkpoint_every=5)
    return settings


def ctrl_c(*rounds):
    """Return a tap that presses Ctrl-C in these rounds, once each; every round has one exchange."""
    seen = []

    def press(*message):
        seen.append(message)
        if len(seen) in rounds:
            signal.raise_signal(signal.SIGINT)

    return press


def test_ctrl_c_lets_the_round_finish_saves_and_says_how_to_resume(tmp_path, capsys):
    whole = tacit.train(tacit.DSGT(), **given(), run="whole", runs=tmp_path)
    settings = given(taps=[ctrl_c(7)])
    with pytest.raises(KeyboardInterrupt) as caught:
        tacit.train(tacit.DSGT(), **settings, run="one", runs=tmp_path, checkpoint_every=5)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "it is the user's again"
    assert len(caught.traceback) < 6, "no long way down"
    first, second = capsys.readouterr().err.splitlines()
    assert first == "stopping after this round; press Ctrl-C again to stop at once"
    path = tmp_path / "one"
    assert second.startswith(
        f"stopped after round 7 of 12, and saved. The run is kept in {path}; resume it with tacit."
    )
    line = re.search(r"tacit\.resume\(.*?\)", second)[0]
    assert line == f"tacit.resume({str(path)!r}, data=data, model=model)"
    events = RunFolder(path).events()
    assert (events.checkpoint.round, events.lost_queries) == (7, 0)
    resumed = eval(line, {"tacit": tacit, "data": settings["data"], "model": settings["model"]})
    assert torch.equal(resumed.theta, whole.theta)
    assert RunFolder(path).events().lost_queries == 0


def test_a_second_ctrl_c_stops_at_once(tmp_path, capsys):
    def press(*message):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tacit.train(tacit.DSGT(), **given(taps=[press]), run="one", runs=tmp_path)
    assert "stopped after round 0 of 12, at once. The run is kept in" in capsys.readouterr().err
    resumed = tacit.resume("one", runs=tmp_path, **{key: given()[key] for key in OBJECTS})
    assert resumed.history[-1].round == 12


def test_ctrl_c_in_the_last_round_finishes_the_run_and_still_stops_the_program(tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt):
        tacit.train(tacit.DSGT(), **given(taps=[ctrl_c(12)]), run="one", runs=tmp_path)
    said = capsys.readouterr().err.splitlines()[-1]
    line = f"tacit.load({str(tmp_path / 'one')!r}, data=data, model=model)"
    assert said == f"the run had reached its end, and is finished: {line} loads it"
    assert tacit.load("one", runs=tmp_path).history[-1].round == 12


def test_ctrl_c_while_a_run_is_resumed_says_that_it_is_kept(tmp_path, monkeypatch, capsys):
    settings = stopped(tmp_path, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(
            "tacit.training.session.choose_engine", lambda *args, **options: signal.raise_signal(signal.SIGINT)
        )
        with pytest.raises(KeyboardInterrupt):
            tacit.resume("one", runs=tmp_path, **{key: settings[key] for key in OBJECTS})
    assert "stopped before anything more was asked. The run is kept in" in capsys.readouterr().err
    assert tacit.resume("one", runs=tmp_path, **{key: settings[key] for key in OBJECTS}).history[-1].round == 12


def test_ctrl_c_before_the_first_round_leaves_no_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "tacit.training.session.choose_engine", lambda *args, **options: signal.raise_signal(signal.SIGINT)
    )
    with pytest.raises(KeyboardInterrupt):
        tacit.train(tacit.DSGT(), **given(), run="one", runs=tmp_path)
    assert not (tmp_path / "one").exists()
    assert capsys.readouterr().err == ""


def test_ctrl_c_is_left_to_a_program_that_takes_it_and_to_runs_that_are_not_kept(tmp_path, capsys):
    heard = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        result = tacit.train(tacit.DSGT(), **given(taps=[ctrl_c(3)]), run="one", runs=tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (heard, result.history[-1].round) == ([signal.SIGINT], 12)
    with pytest.raises(KeyboardInterrupt):
        tacit.train(tacit.DSGT(), **given(taps=[ctrl_c(3)]))
    assert capsys.readouterr().err == ""


def test_runs_may_be_played_in_another_thread(tmp_path):
    """Signals can be taken in the main thread only."""
    done = []
    settings = given()
    play = threading.Thread(
        target=lambda: done.append(tacit.train(tacit.DSGT(), **settings, run="one", runs=tmp_path)), daemon=True
    )
    play.start()
    play.join(120)
    assert done[0].history[-1].round == 12


def test_a_run_that_its_own_rule_ended_says_what_becomes_of_it(tmp_path):
    with pytest.raises(RuleError, match=r"Slipping.round failed in round 4 of 12") as caught:
        tacit.train(Slipping(), **given(), run="one", runs=tmp_path)
    (note,) = caught.value.__notes__
    assert f"`tacit ledger abandon one --runs {tmp_path} --reason WHY` gives this one up" in note
    assert "What the run asked stays charged" in note


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
    for key in set(summaries["typed"]) - {"algorithm", "heads", "seconds", "evaluation_seconds", "samples_per_second"}:
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


def test_what_a_folder_keeps_tells_nothing_of_private_records(tmp_path):
    """Other records in the place of the same number: no byte of the settings is another one."""
    tacit.train(tacit.DSGT(), **given(data=own_data()), run="one", runs=tmp_path / "a")
    other = own_data()
    other.dataset.train.inputs.add_(1.0)
    other.dataset.train.targets.copy_(other.dataset.train.targets.flip(0))
    tacit.train(tacit.DSGT(), **given(data=other), run="one", runs=tmp_path / "b")
    one, two = ((tmp_path / name / "one" / "config.toml").read_bytes() for name in "ab")
    assert one == two


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
        patch.delattr(sys.modules[__name__], "net")
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


def narrow():
    return nn.Sequential(nn.Linear(6, 4))


def sigmoid():
    return nn.Sequential(nn.Linear(6, WIDTH), nn.Sigmoid(), nn.Linear(WIDTH, 4))


def held_out_moved():
    data = own_data()
    data.dataset.validation.inputs.add_(1.0)
    return data


def renamed():
    return replace(own_data(), owners=("a", "b", "c", "d"))


def smoothed(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)


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
    ({"algorithm": tacit.DSGD()}, r"algorithm: rule \(DSGT then, DSGD now\)"),
    (
        {"algorithm": tacit.Averaged(tacit.DSGT())},
        r"algorithm: settings \(DSGT\(\) then, Averaged\(rule=DSGT\(\), decay=0.95\) now\)",
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


def test_a_changed_constant_that_the_model_refers_to_is_found(one_stopped, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "WIDTH", 6)
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


def test_a_finished_run_is_loaded_with_all_that_it_was(tmp_path):
    settings = given()
    result = tacit.train(tacit.DSGT(), **settings, run="one", runs=tmp_path)
    found = tacit.load("one", runs=tmp_path, model=settings["model"], data=settings["data"])
    assert torch.equal(found.theta, result.theta)
    assert found.guarantees() == result.guarantees()
    assert np.array_equal(found.epsilons_over_time(), result.epsilons_over_time())
    assert [look.accuracy.tolist() for look in found.history] == [look.accuracy.tolist() for look in result.history]
    assert found.evaluate().accuracy.tolist() == result.evaluate().accuracy.tolist()
    probe = torch.randn(3, 6)
    assert torch.equal(found.module(2)(probe), result.module(2)(probe))
    assert (found.run, found.bytes_sent, found.release, found.folder) == (
        "one",
        result.bytes_sent,
        False,
        tmp_path / "one",
    )
    assert found.schema == result.schema
    assert (found.plan.noise_multipliers, found.plan.queries) == (result.plan.noise_multipliers, result.plan.queries)
    assert repr(found) == repr(result)


def test_without_its_objects_everything_else_of_a_run_is_loaded(tmp_path):
    result = tacit.train(tacit.DSGT(), **given(), run="one", runs=tmp_path)
    found = tacit.load(tmp_path / "one")
    assert found.guarantees() == result.guarantees()
    assert torch.equal(found.theta, result.theta)
    assert found.accuracy.tolist() == result.accuracy.tolist()
    assert repr(found).startswith("Result('one': DSGT, 12 rounds, 4 agents, accuracy")
    with pytest.raises(InvalidInput, match=r"no file can hold: model .*: tacit\.load\('.*one', model=model\)"):
        found.module(0)
    with pytest.raises(InvalidInput, match=r"no file can hold: data "):
        found.evaluate()
    with pytest.raises(InvalidInput, match=r"not what the run was trained with\. model: parameters"):
        tacit.load(tmp_path / "one", model=narrow)
    for wrong, said in (
        ({"model": 5}, "model is 5; give"),
        ({"data": 5}, "data is a int"),
        ({"loss": 5}, "loss is 5; give"),
    ):
        with pytest.raises(InvalidInput, match=said):
            tacit.load(tmp_path / "one", **wrong)
    assert result.module(result.accuracy.argmax()) is not None
    for agent in (4, -5, "0"):
        with pytest.raises(InvalidInput, match=f"agent is {agent!r}; there are 4, numbered from 0"):
            result.module(agent)
    assert tacit.load(tmp_path / "one", model=lambda: net()).module(1)(torch.randn(2, 6)).shape == (2, 4)


def test_loading_an_unfinished_run_says_in_a_line_that_can_be_pasted_how_to_resume_it(tmp_path, monkeypatch):
    settings = stopped(tmp_path, monkeypatch)
    with pytest.raises(InvalidInput, match=r"run 'one' is not finished") as caught:
        tacit.load("one", runs=tmp_path)
    said = str(caught.value)
    assert "with data (own, 4 agents) and model (" in said
    line = re.search(r"tacit\.resume\(.*?\)", said)[0]
    result = eval(line, {"tacit": tacit, "data": settings["data"], "model": settings["model"]})
    assert torch.equal(tacit.load("one", runs=tmp_path).theta, result.theta)


def test_a_run_of_the_command_line_is_loaded_and_resumed_too(tmp_path):
    config = RunConfig.of(
        {"dataset": "digits", "agents": 4, "noise_multiplier": 3.0, "lot_size": 24, "rounds": 6, "source": "seeded"}
    )
    with Runner.start(tmp_path, "one", config) as runner:
        assert runner.play(stop=lambda: runner.session.round >= 2) is None
    with pytest.raises(InvalidInput, match=r"run 'one' is not finished, .* resume it with tacit.resume\('.*one'\)$"):
        tacit.load(tmp_path / "one")
    with pytest.raises(InvalidInput, match=r"leave out model, which must not be changed"):
        tacit.resume("one", runs=tmp_path, model=net)
    result = tacit.resume("one", runs=tmp_path)
    found = tacit.load("one", runs=tmp_path)
    assert torch.equal(found.theta, result.theta)
    assert found.evaluate().accuracy.tolist() == result.evaluate().accuracy.tolist()
    assert found.guarantees() == result.guarantees()


def test_a_loaded_run_is_the_one_that_finished(tmp_path):
    tacit.train(tacit.DSGT(), **given(), run="one", runs=tmp_path)
    folder = RunFolder(tmp_path / "one")
    content = bytearray(folder.models_file.read_bytes())
    content[-2] ^= 1
    folder.models_file.write_bytes(bytes(content))
    with pytest.raises(StorageError, match="does not hold the models that the run ended with"):
        tacit.load(folder.path)
    folder.models_file.write_bytes(b"nothing")
    with pytest.raises(StorageError, match="is broken, or does not hold models"):
        tacit.load(folder.path)
    folder.models_file.unlink()
    with pytest.raises(StorageError, match="cannot be read"):
        tacit.load(folder.path)


def test_without_its_ledger_nothing_is_promised_of_a_run(tmp_path):
    tacit.train(tacit.DSGT(), **given(), run="one", runs=tmp_path)
    (tmp_path / "ledger.sqlite").unlink()
    with pytest.raises(InvalidInput, match="there is no ledger beside the run"):
        tacit.load(tmp_path / "one")


def test_pickling_names_the_folder(tmp_path):
    kept = tacit.train(tacit.DSGT(), **given(rounds=2), run="one", runs=tmp_path)
    with pytest.raises(DataError, match=f"this run is kept in {tmp_path / 'one'}: tacit.load") as refused:
        pickle.dumps(kept)
    line = re.search(r"tacit\.load\(.*?\)", str(refused.value))[0]
    assert line.endswith(", data=data, model=model)"), "what its folder does not hold"
    with pytest.raises(DataError, match=re.escape(line)):
        pickle.dumps(tacit.load(tmp_path / "one"))
    with pytest.raises(DataError, match=r"keep the run in a folder with tacit\.train\(\.\.\., run="):
        pickle.dumps(tacit.train(tacit.DSGT(), **given(rounds=2)))


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
        ({"model": "nowhere.py:net"}, r"model nowhere.py:net: the file nowhere.py is not there"),
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


def test_a_run_that_was_killed_before_it_asked_anything_begins_when_it_is_resumed(tmp_path):
    settings = given()
    whole = tacit.train(tacit.DSGT(), **settings, run="whole", runs=tmp_path)
    RunFolder.create(tmp_path, "one", RunFolder(tmp_path / "whole").config())  # and no more than that
    resumed = tacit.resume("one", runs=tmp_path, **{key: settings[key] for key in OBJECTS})
    assert torch.equal(resumed.theta, whole.theta)


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
    promise = tacit.Privacy(noise_multiplier=3.0, delta=1e-5, clip=1.0, lot_size=5, unit=tacit.Unit("patient", most=3))
    named = {"data": "mine.py:whole", "agents": 3, "split": "iid", "model": "logistic", "privacy": promise}
    named["graph"] = None if rule == "sgd" else "ring"
    whole = tacit.train(rule, **given(**named), run="whole", runs=tmp_path)
    stopped(tmp_path, monkeypatch, rule, **named)
    assert torch.equal(tacit.resume("one", runs=tmp_path).theta, whole.theta)


def test_the_bar_of_a_kept_run_stays_whole_on_80_columns_with_what_the_last_look_saw_below_it(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich take the stream for a terminal
    monkeypatch.setenv("COLUMNS", "80")
    tacit.train(tacit.DSGT(), **given(progress=True), run="a-run-with-a-name", runs=tmp_path)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capfd.readouterr().err)
    assert re.search(r"a-run-with-a-name ━+ 12/12", shown)
    assert re.search(r"after round 12: accuracy [\d.]+%, ε=[\d.]+ per record at δ=1e-05,", shown)
    assert "…" not in shown
