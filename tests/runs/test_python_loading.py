"""Finished runs of `tacit.train(..., run=...)`: loaded from their folders."""

import pickle
import re

import numpy as np
import pytest
import torch
from own_run import given, narrow, net, stopped

import tacit
from tacit.errors import DataError, InvalidInput, StorageError
from tacit.runs import RunFolder, Runner
from tacit.runs.config import RunConfig


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
    assert repr(found).startswith("Result('one': dsgt, 12 rounds, 4 agents, accuracy")
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


def test_without_its_ledger_nothing_is_guaranteed_of_a_run(tmp_path):
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
