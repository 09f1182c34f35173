"""Code and files that settings name are neither run nor read by a verification, unless the auditor asks for it."""

import json
import sys

import pytest
import torch
from auditing import head_of, not_held, outcomes, play
from python_runs import changed_part, named_model, train
from tampering import forge

import tacit
from tacit.runs import Runner
from tacit.runs.config import RunConfig


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": "evil.py:Model"}, "the model 'evil.py:Model' is not part of the library"),
        ({"dataset": "evil.py:data"}, "'evil.py:data' is not one that comes with the library"),
        ({"dataset": "synthetic:99999999999"}, "not a synthetic data set of a reasonable size"),
        ({"dataset": "mnist", "data_dir": "/"}, "of the data set 'mnist' is not in"),
    ],
)
def test_nothing_that_an_archive_names_is_run_read_or_fetched(runs, settings, words, tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "nothing"))
    forge(
        runs,
        "one",
        settings=settings,
        event=lambda event: (
            event | {"dataset": settings.get("dataset", "digits")} if event["event"] == "plan" else event
        ),
        row=lambda row: (
            row | {"lines": [line | {"records": settings.get("dataset", "digits")} for line in row["lines"]]}
            if row["kind"] == "open"
            else row
        ),
    )
    path = runs / "one" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dataset": settings.get("dataset", "digits")}))
    found = outcomes(runs, replay=True)
    assert {each.what for each in found.values() if each.outcome == "fails"} == set()
    for what in ("scores", "replay"):
        assert found[what].outcome == "not checked"
        assert words in found[what].words


def test_a_function_of_a_module_is_imported_only_where_the_auditor_asks_for_it(tmp_path, monkeypatch):
    """What a run keeps of its code tells whether it is still the same."""
    train(tmp_path, model=named_model)
    found = outcomes(tmp_path, replay=True)
    assert {what for what, each in found.items() if each.outcome == "not checked"} == {
        "earlier head",
        "scores",
        "plan",
        "replay",
    }
    found = outcomes(tmp_path, replay=True, run_code=True, head=head_of(tmp_path))
    assert not_held(found) == {}

    def other(before=named_model):
        return before()

    monkeypatch.setattr(sys.modules[named_model.__module__], "named_model", other)
    found = outcomes(tmp_path, replay=True, run_code=True)
    for what in ("plan", "replay"):
        assert found[what].outcome == "not checked"
        assert "the facts in the settings do not match what they name: model: code" in found[what].words


@pytest.mark.parametrize("key", ["graph", "lr", "sources"])
def test_no_file_is_opened_that_settings_name_as_shipped(tmp_path, monkeypatch, key):
    monkeypatch.chdir(tmp_path)
    train(tmp_path / "runs")
    (tmp_path / "links.txt").write_text("0 1\n1 2\n2 3\n0 3\n")
    forge(tmp_path / "runs", "one", settings=changed_part(tmp_path / "runs", key, made={"shipped": "./links.txt"}))
    monkeypatch.setattr("tacit.runs.specs.read_graph", lambda path: pytest.fail(f"{path} was opened"))
    assert outcomes(tmp_path / "runs", replay=True)["plan"].outcome != "holds"


EVIL = """
open("ran", "w").close()

class Rule:
    pass

def model():
    return None
"""


@pytest.mark.parametrize(
    ("key", "made", "where"),
    [
        ("algorithm", {"value": {"name": "evil:Rule", "with": {}}}, "plan"),
        ("algorithm", {"own": "evil.py:Rule"}, "plan"),
        ("algorithm", {"value": {"name": "tacit.runs.user_code:find"}}, "plan"),
        ("loss", {"value": {"name": "os:system"}}, "scores"),
        ("lr", {"value": {"partial": {"name": "evil:model"}, "given": [], "with": {}}}, "plan"),
        ("sources", {"value": {"name": "evil:Rule", "with": {}}}, "plan"),
        ("data", {"dataset": "evil.py:data", "split": "IID", "agents": 4, "seed": 3}, "scores"),
        (
            "data",
            {"dataset": f"synthetic {10**8}x9, 10 classes, distance 4, seed 0", "split": "IID", "agents": 4},
            "scores",
        ),
    ],
)
def test_nothing_that_the_settings_of_a_run_from_python_name_is_imported(tmp_path, monkeypatch, key, made, where):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "evil.py").write_text(EVIL)
    train(tmp_path)
    forge(tmp_path, "one", settings=changed_part(tmp_path, key, made=made))
    found = outcomes(tmp_path, replay=True)
    assert found[where].outcome == "not checked"
    assert any(
        said in found[where].words for said in ("not part of the library", "comes with the library", "reasonable size")
    )
    assert {each.what for each in found.values() if each.outcome == "fails"} == set()
    assert not (tmp_path / "ran").exists()


def test_a_model_of_ones_own_is_not_taken_for_one_of_the_library(tmp_path):
    train(tmp_path, model=lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10, bias=False)))
    found = outcomes(tmp_path, replay=True)
    for what in ("scores", "plan", "replay"):
        assert found[what].outcome == "not checked"
        assert "by its layers, parameters" in found[what].words
        assert "is not part of the library" in found[what].words


def test_facts_that_no_run_keeps_are_not_followed(tmp_path):
    train(tmp_path)
    forge(tmp_path, "one", settings=changed_part(tmp_path, "model", facts={"parameters": 3}))
    found = outcomes(tmp_path, replay=True)
    for what in ("scores", "plan", "replay"):
        assert found[what].outcome == "not checked"


MINE = """
import torch
import tacit

open("ran", "w").close()

def model():
    return torch.nn.Linear(3, 2)

def visits():
    generator = torch.Generator().manual_seed(0)
    parts = [(torch.randn(60, 3, generator=generator), torch.randint(2, (60,), generator=generator)) for _ in range(5)]
    return tacit.data.AgentData.from_parts(parts[:4], name="visits", validation=(parts[4][0][:20], parts[4][1][:20]))
"""


def test_code_that_settings_name_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    own = {"model": "mine.py:model", "dataset": "mine.py:visits"}
    config = RunConfig.of(own | {"agents": 4, "noise_multiplier": 3.0, "lot_size": 9, "rounds": 3, "source": "seeded"})
    with Runner.start(tmp_path / "runs", "one", config) as runner:
        runner.play(stop=lambda: False)
    (tmp_path / "ran").unlink()
    found = outcomes(tmp_path / "runs", replay=True)
    assert {what for what, each in found.items() if each.outcome == "fails"} == set()
    for what in ("plan", "replay"):
        assert (
            "the model 'mine.py:model' is not part of the library, and code of the owner is not run"
            in found[what].words
        )
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("door", ["command line", "python"])
def test_the_owners_code_is_run_where_the_auditor_asks_for_it_and_its_files_are_the_same(tmp_path, monkeypatch, door):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    if door == "python":
        privacy = tacit.Privacy(noise_multiplier=3.0, delta=1e-3, clip=1.0, lot_size=9)
        own = {"model": "mine.py:model", "data": "mine.py:visits", "sources": tacit.Seeded(1), "privacy": privacy}
        tacit.train(
            tacit.DSGT(), **own, graph=tacit.graphs.ring(4), rounds=3, lr=0.5, run="one", runs=tmp_path / "runs"
        )
    else:
        play(tmp_path / "runs", model="mine.py:model", dataset="mine.py:visits", lot_size=9, rounds=3, split=None)
    found = outcomes(tmp_path / "runs", replay=True, run_code=True, head=head_of(tmp_path / "runs"))
    assert not_held(found) == {}
    assert "20 validation records" in found["scores on validation"].words
    (tmp_path / "ran").unlink()
    (tmp_path / "mine.py").write_text(MINE + "# changed")
    found = outcomes(tmp_path / "runs", replay=True, run_code=True)
    for what in ("scores", "plan", "replay"):
        assert found[what].outcome == "not checked"
        assert "mine.py was changed since the run began" in found[what].words
    assert not (tmp_path / "ran").exists()
