"""Code of a user's own, named in settings: found, imported, and refused where something is wrong with it."""

from hashlib import sha256

import networkx as nx
import pytest
import torch
from own_code import BASE, STUDY, config, play

import tacit
from tacit.algorithms import RULES
from tacit.data import AgentData
from tacit.errors import InvalidInput
from tacit.models.hashing import models_sha256
from tacit.runs import RunFolder, Runner
from tacit.runs.config import RunConfig
from tacit.runs.user_code import find, is_user_code, last_part

pytestmark = pytest.mark.usefixtures("study")


def test_all_five_by_name_make_a_run_that_keeps_where_they_are_defined(study):
    result = play(Runner.start(study / "runs", "one", config()))
    assert result.data.owners == ("north", "south", "west")
    assert type(result.algorithm).__name__ == "Heavy"
    assert type(result.module(0)).__name__ == "Net"
    folder = RunFolder.find(study / "runs" / "one")
    kept = folder.config()
    assert kept.agents == 3
    assert set(kept.code) == {"algorithm", "dataset", "graph", "model", "loss"}
    assert kept.code["model"] == {
        "defined_in": "study.py:Net",
        "sha256": sha256(STUDY.encode()).hexdigest(),
    }
    assert folder.summary()["models_sha256"] == models_sha256(result.theta)
    assert sorted(map(sorted, folder.events().plan.edges)) == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": "study.py:records", "graph": "study.py:triangle", "algorithm": "study.py:light"},
        {
            "dataset": "study.py:whole",
            "agents": 4,
            "split": "iid",
            "graph": "study.py:by_seed",
            "loss": "study.py:smoothed",
        },
        {"model": "study.py:small", "algorithm": "dsgt", "graph": "ring", "loss": "cross_entropy"},
        {"model": "logistic", "averaging": 0.9},
    ],
    ids=str,
)
def test_objects_functions_and_shipped_names_mix(study, changes):
    result = play(Runner.start(study / "runs", "one", config(**changes, rounds=3)))
    assert result.data.agents == changes.get("agents", 3)
    assert result.accuracy.shape == (result.data.agents,)


def test_a_data_set_without_classes_takes_a_model_and_a_loss_of_ones_own(study):
    changes = {
        "dataset": "study.py:numbers",
        "model": "study.py:line",
        "loss": "study.py:squared",
        "agents": 3,
        "split": "iid",
    }
    result = play(Runner.start(study / "runs", "one", config(**changes, rounds=3)))
    assert result.history[-1].accuracy is None
    with pytest.raises(InvalidInput, match=r"has no classes, but logistic is a classifier"):
        Runner.start(study / "runs", "two", config(**{**changes, "model": "logistic"}))
    with pytest.raises(InvalidInput, match="cross-entropy does not apply"):
        Runner.start(study / "runs", "two", config(**{**changes, "loss": "cross_entropy"}))
    assert not (study / "runs" / "two").exists()


def test_modules_are_found_by_their_import_path_and_what_they_import_by_its_own(study):
    package = study / "own_package_1"
    package.mkdir()
    (package / "__init__.py").write_text("from own_package_1.nets import Net\n")
    (package / "nets.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Linear):\n    def __init__(self):\n        super().__init__(4, 3)\n"
    )
    own = find("model", "own_package_1:Net")
    assert own.code["defined_in"] == "own_package_1.nets:Net"
    assert own.sha256 == find("model", "own_package_1.nets:Net").sha256 != find("model", "study.py:Net").sha256
    result = play(Runner.start(study / "runs", "one", config(model="own_package_1:Net", rounds=2)))
    assert result.theta.shape == (3, 15)


def test_a_file_may_import_what_lies_beside_it(study):
    below = study / "below"
    below.mkdir()
    (below / "beside_it_1.py").write_text("WIDTH = 5\n")
    (below / "nets.py").write_text(
        "from torch import nn\nfrom beside_it_1 import WIDTH\n\n\ndef net():\n    return nn.Linear(4, WIDTH)\n"
    )
    assert find("model", "below/nets.py:net").value().out_features == 5


BAD = [
    ({"model": "nowhere.py:Net"}, r"model nowhere.py:Net: the file nowhere.py does not exist"),
    ({"model": "no_such_module_1:Net"}, r"there is no module 'no_such_module_1', neither installed nor in "),
    ({"model": "study.py:Nett"}, r"model study.py:Nett: study.py has no 'Nett'; did you mean 'Net'\?"),
    ({"model": "odd.py:number"}, r"model odd.py:number is a int; name an nn.Module class or a function"),
    ({"model": "odd.py:made"}, r"model odd.py:made is a module that is made again whenever its file is run"),
    (
        {"model": "odd.py:Wide"},
        r"model odd.py:Wide needs width, which is not provided; it may ask for input_shape and classes",
    ),
    ({"model": "odd.py:fails"}, r"model odd.py:fails failed: ZeroDivisionError: division by zero \(odd.py, line 25\)"),
    ({"model": "odd.py:nothing"}, r"model odd.py:nothing made nothing \(None\); it must make an nn.Module"),
    ({"loss": "study.py:Net"}, r"loss study.py:Net is a class; name a function of outputs and targets"),
    ({"loss": "odd.py:number"}, r"loss odd.py:number is a int; name a function"),
    ({"loss": "square"}, r"unknown loss 'square'"),
    ({"algorithm": "study.py:loss"}, r"algorithm study.py:loss is a function; name a rule"),
    (
        {"algorithm": "odd.py:Rule"},
        r"algorithm odd.py:Rule needs rho, .*; give it a default, or name an object of this class",
    ),
    ({"dataset": "odd.py:number"}, r"dataset odd.py:number is a int; name a DataSet, an AgentData, or a function"),
    ({"dataset": "odd.py:nothing"}, r"dataset odd.py:nothing returned nothing \(None\)"),
    ({"dataset": "odd.py:fails"}, r"dataset odd.py:fails failed: ZeroDivisionError"),
    (
        {"dataset": "study.py:clinics", "agents": 4},
        r"agents is 4, but the records of study.py:clinics are divided among 3",
    ),
    ({"dataset": "study.py:clinics", "split": "iid"}, r"split is 'iid', but the records .* leave split out"),
    ({"dataset": "study.py:clinics", "clip": [1.0, 2.0]}, r"clip has 2 values, but there are 3 agents"),
    (
        {"graph": "odd.py:graph_fails"},
        r"graph odd.py:graph_fails failed: KeyError: 'no such place' \(odd.py, line 33\)",
    ),
    ({"graph": "odd.py:needs_more"}, r"graph odd.py:needs_more needs radius"),
    ({"graph": "odd.py:nothing"}, r"graph odd.py:nothing failed: TypeError"),
    ({"graph": "odd.py:number"}, r"graph odd.py:number is a int; name a graph, a topology, or a function"),
    ({"algorithm": "study.py:Heavy", "rho": 2.0}, r"rho means nothing to study.py:Heavy; leave it out"),
    ({"algorithm": "study.py:Heavy", "momentum": 0.5}, r"momentum means nothing to study.py:Heavy; leave it out"),
    ({"algorithm": "study.py:Heavy", "step": "adam"}, r"step means nothing to study.py:Heavy; leave it out"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[str(changes) for changes, _ in BAD])
def test_what_is_wrong_with_a_name_is_said_and_leaves_nothing_behind(study, changes, message):
    with pytest.raises(InvalidInput, match=message):
        Runner.start(study / "runs", "one", config(**changes))
    assert not (study / "runs" / "one").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("def broken(:\n", r"running bad.py failed: SyntaxError: .* \(bad.py, line 1\)"),
        (
            "import nothing_of_this_name_1\n",
            r"running bad.py failed: ModuleNotFoundError: No module named 'nothing_of_this_name_1'",
        ),
        ("raise ValueError('not today')\n", r"running bad.py failed: ValueError: not today \(bad.py, line 1\)"),
        ("import sys\nsys.exit(3)\n", r"running bad.py failed: SystemExit: 3"),
    ],
)
def test_a_file_that_cannot_be_run_is_an_error_that_says_where(study, content, message):
    (study / "bad.py").write_text(content)
    with pytest.raises(InvalidInput, match=message):
        find("model", "bad.py:Net")


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("file.py:name", True),
        ("some/folder/file.py:name.inner", True),
        ("package.module:name", True),
        ("ring", False),
        ("random:fiedler=0.39", False),
        ("synthetic:6400", False),
        ("file.py", False),
        ("file.py:", False),
        ("file.py:2", False),
        ("1.0", False),
    ],
)
def test_a_name_is_distinguished_from_other_texts(text, own):
    assert is_user_code(text) is own
    assert last_part(text) == ({"file.py:name": "name"}.get(text, text.rpartition(":")[2]) if own else text)


def test_kinds_of_graphs_and_data_win_over_modules_of_the_same_name(study):
    (study / "synthetic.py").write_text("few = 3\n")
    with pytest.raises(InvalidInput, match="write synthetic:RECORDS"):
        RunConfig.of({"dataset": "synthetic:few", "private": False}).load_data()
    with pytest.raises(InvalidInput, match="graph option"):
        RunConfig.of({"graph": "random:fiedler", "private": False}).load_graph(4)


def test_reading_settings_runs_no_code(study):
    (study / "bad.py").write_text("raise RuntimeError('it was run')\n")
    settings = RunConfig.of(BASE | {"model": "bad.py:Net"})
    assert "bad.py:Net" in settings.to_toml()
    play(Runner.start(study / "runs", "one", config(rounds=2)))
    (study / "study.py").write_text("raise RuntimeError('it was run')\n")
    assert RunFolder.find(study / "runs" / "one").config().model == "study.py:Net"


def test_the_library_takes_the_same_names(study):
    settings = {
        "data": "study.py:clinics",
        "model": "study.py:Net",
        "loss": "study.py:loss",
        "graph": "study.py:along",
        "privacy": tacit.Privacy(noise_multiplier=3.0, delta=1e-5, clip=1.0, lot_size=10),
        "sources": tacit.Seeded(0),
        "rounds": 12,
        "lr": 0.1,
        "spare_queries": 2,
    }
    by_name = tacit.train("study.py:Heavy", **settings)
    on_disk = play(Runner.start(study / "runs", "one", config()))
    assert torch.equal(by_name.theta, on_disk.theta)
    assert isinstance(by_name.data, AgentData)
    assert tacit.train("study.py:Heavy", **settings | {"data": "study.py:whole"}, agents=3).data.agents == 3
    assert nx.is_connected(find("graph", "study.py:triangle").value)


def test_both_doors_know_the_same_rules_by_name():
    for name in RULES:
        assert RunConfig.of({"algorithm": name, "private": False}).rule() == RULES[name]()
