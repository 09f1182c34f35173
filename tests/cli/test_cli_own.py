"""The command line with code of the user's own, and with runs that were started from Python."""

import json
import sys

import pytest
from invoking import complaint, one_line

import tacit as library
from tacit.data import IID
from tacit.errors import InvalidInput
from tacit.privacy import PrivateOracle
from tacit.runs import RunFolder

NETS = """
from torch import nn

import tacit


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, classes))

    def forward(self, images):
        return self.layers(images)


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def study():
    digits = tacit.data.load("digits")
    return tacit.data.DataSet.from_records(
        name="a study", train=digits.train, validation=digits.validation, classes=10, prepare=digits.prepare
    )
"""
QUICK = ["--agents", "4", "--split", "iid", "--noise-multiplier", "3", "--lot-size", "24", "--rounds", "4"]


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "nets.py").write_text(NETS)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_a_run_on_other_records_has_no_note_about_how_digits_were_divided(tacit, own):
    for name, seed in (("one", 0), ("two", 1)):
        tacit("train", *QUICK, "--name", name, "--seed", seed)
    assert "digits was divided in 2 ways" in one_line(tacit("ledger")[1])
    code, out, error = tacit("train", *QUICK, "--name", "own", "--dataset", "nets.py:study")
    assert code == 0, error
    assert "was divided in" not in one_line(out)


def test_a_model_of_ones_own_is_trained_listed_reported_and_compared(tacit, own):
    code, out, error = tacit("train", *QUICK, "--model", "nets.py:Net", "--source", "seeded")
    assert code == 0, error
    assert "nets.py:Net, 610 parameters" in out
    code, _, error = tacit("train", "runs/dsgt-digits-1/config.toml", "--name", "again", "--seed", "1", "--quiet")
    assert code == 0, error
    assert tacit("list")[0] == 0
    assert tacit("report", "again")[0] == 0
    assert "nets.py:Net" in (own / "runs" / "again" / "report.html").read_text()
    assert tacit("compare", "again", "dsgt-digits-1")[0] == 0
    assert tacit("ledger", "--verify")[0] == 0


def test_names_can_be_in_a_file_like_other_settings(tacit, own):
    (own / "run.toml").write_text(
        'model = "nets.py:Net"\nagents = 4\nsplit = "iid"\nnoise_multiplier = 3.0\nlot_size = 24\nrounds = 2\n'
    )
    code, out, error = tacit("train", "run.toml", "--json")
    assert code == 0, error
    assert json.loads(out)["rounds"] == 2
    assert RunFolder(own / "runs" / "dsgt-digits-1").config().code["model"]["defined_in"] == "nets.py:Net"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "nets.py:Nett"], "model nets.py:Nett: nets.py has no 'Nett'; did you mean 'Net'?"),
        (["--model", "net.py:Net"], "model net.py:Net: the file net.py does not exist"),
        (["--loss", "nets.py:Net"], "loss nets.py:Net is a class"),
        (["--loss", "entropy"], "unknown loss 'entropy'; did you mean 'cross_entropy'?"),
        (["--algorithm", "nets.py:net"], "algorithm nets.py:net is a function; name a rule"),
        (["--dataset", "nets.py:net"], "dataset nets.py:net returned a Sequential"),
        (["--graph", "nets.py:net"], "graph nets.py:net failed: TypeError"),
        (["--algorithm", "nets"], "it must be one of sgd, local, dsgd, dsgt, dinno"),
    ],
    ids=str,
)
def test_mistakes_are_sentences(tacit, own, words, message):
    code, out, error = tacit("train", *QUICK, *words)
    assert (code, out) == (2, "")
    assert message in one_line(error)
    assert "Traceback" not in error
    assert not (own / "runs").exists() or not any(path.is_dir() for path in (own / "runs").iterdir())


def python_run(runs, monkeypatch, **changes):
    """A run that Python started and that was stopped after two rounds."""
    digits = library.data.load("digits")
    gradient, made = PrivateOracle.gradient, []

    def limited(self, theta):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(1)
        return gradient(self, theta)

    settings = {
        "model": "nets.py:net",
        "data": digits.split(4, IID()),
        "graph": library.graphs.ring(4),
        "privacy": library.Privacy(noise_multiplier=3.0, delta=1e-5, clip=1.0, lot_size=24),
        "rounds": 4,
        "lr": 0.5,
        "sources": library.Seeded(0),
        **changes,
    }
    with monkeypatch.context() as patch:
        patch.setattr(PrivateOracle, "gradient", limited)
        with pytest.raises(KeyboardInterrupt):
            library.train(library.DSGT(), **settings, run="kept", runs=runs)
    return settings


def test_a_run_from_python_whose_parts_have_names_is_resumed_by_the_command_line(tacit, own, monkeypatch):
    settings = python_run("runs", monkeypatch)
    code, out, _ = tacit("list", "--json")
    (row,) = json.loads(out)["runs"]
    assert (row["run"], row["state"], row["algorithm"], row["dataset"], row["agents"], row["of"]) == (
        "kept",
        "stopped",
        "dsgt",
        "digits",
        4,
        4,
    )
    assert row["epsilon"] > 0
    code, out, error = tacit("resume", "kept")
    assert code == 0, error
    assert "nets.py:net, 650 parameters" in out
    whole = library.train(library.DSGT(), **settings, spare_queries=2)
    assert (library.load("kept").theta == whole.theta).all()
    assert tacit("report", "kept", "--figures")[0] == 0
    assert tacit("ledger", "--verify")[0] == 0


def test_a_run_from_python_whose_parts_have_no_names_says_how_to_resume_it(tacit, own, monkeypatch):
    python_run("runs", monkeypatch, model=lambda: library.models.logistic((1, 8, 8), 10))
    code, _, error = tacit("resume", "kept")
    assert code == 2
    assert "tacit.resume('runs/kept', model=model)" in one_line(error)
    code, _, error = tacit("train", "runs/kept/config.toml")
    assert code == 2
    assert "a run that was started from Python" in one_line(error)
    code, _, error = tacit("audit", "runs/kept/config.toml")
    assert code == 2
    assert "a run that was started from Python" in one_line(error)


def test_a_changed_file_is_reported_at_resume(tacit, own, monkeypatch):
    python_run("runs", monkeypatch)
    (own / "nets.py").write_text(NETS.replace("nn.Linear(64, 10)", "nn.Linear(64, 10, bias=False)"))
    code, _, error = tacit("resume", "kept")
    assert code == 2
    assert "nets.py was changed since the run began; put it back, or start a new run" in one_line(error)


def test_settings_with_code_of_ones_own_are_checked(tacit, own):
    code, _, error = tacit("train", *QUICK, "--model", "nets.py:net", "--check", "--name", "one", "--rounds", "2")
    assert code == 0, error
    assert RunFolder(own / "runs" / "one").events().check is not None


def test_an_auditor_verifies_such_runs_without_running_anything_of_their_owners(tacit, own, monkeypatch):
    """Nothing of theirs is run. A run of the library's parts alone, from Python, is scored and played again all the same."""
    python_run("runs", monkeypatch)
    assert tacit("resume", "kept", "--quiet")[0] == 0
    words = ["--model", "nets.py:Net", "--dataset", "nets.py:study", "--source", "seeded", "--name", "typed", "--quiet"]
    assert tacit("train", *QUICK, *words)[0] == 0
    (own / "nets.py").write_text("raise RuntimeError('it was run')\n")
    for run in ("kept", "typed"):
        code, _, error = tacit("export", run, "--for-audit", "-o", f"{run}.zip")
        assert code == 0, error
        code, out, error = tacit("verify", f"{run}.zip")
        assert code == 0, (out, error)
        if run == "typed":
            assert "not part of the library, and code of the owner is not run here" in one_line(out)
        else:
            assert "it gives the same models and the same" in one_line(out)


RULE = """
from typing import NamedTuple


class State(NamedTuple):
    theta: object


class Slips:
    def init(self, theta):
        return State(theta)

    def round(self, state, at):
        answer = at.gradient(state.theta)
        if at.round == 2 and float(answer.abs().max()) > 0:
            raise KeyError("momentum")
        return State(state.theta - at.lr * answer)
"""


def test_a_mistake_in_a_users_rule_is_a_sentence_and_a_traceback_if_asked_for(tacit, own):
    (own / "rule.py").write_text(RULE)
    command = ("train", *QUICK, "--algorithm", "rule.py:Slips", "--quiet", "--name")
    code, _, error = tacit(*command, "one")
    assert code == 2
    said = one_line(error)
    assert "error: Slips.round failed in round 3 of 4 (at.round is 2): KeyError: 'momentum' (rule.py, line 16)" in said
    assert (
        "The queries of the run stay charged. A rule that was changed needs a new run; `tacit ledger abandon one"
        in said
    )
    assert "Traceback" not in error
    code, _, error = tacit(*said.partition("`tacit ")[2].partition("`")[0].split())
    assert code == 0, error
    code, _, error = tacit("--debug", *command, "two")
    assert code == 2
    assert 'raise KeyError("momentum")' in error
    assert "error: Slips.round failed" in error


@pytest.mark.parametrize("key", ["dataset", "model", "loss", "algorithm", "graph"])
def test_a_file_without_the_name_of_what_to_take_from_it_is_refused(own, key, monkeypatch):
    monkeypatch.chdir(own)
    said = "must have the name of what to take from that file: nets.py:NAME"
    (own / "run.toml").write_text(f'{key} = "nets.py"\nprivate = false\n')
    assert complaint("train", f"--{key}", "nets.py", "--no-private") == f"--{key} is 'nets.py'; it {said}"
    assert complaint("train", "run.toml") == f"{key} is 'nets.py'; it {said}"


def test_data_in_a_file_need_its_name(own, monkeypatch):
    monkeypatch.chdir(own)
    said = "it must have the name of what to take from that file: nets.py:NAME"
    assert complaint("data", "nets.py") == f"dataset is 'nets.py'; {said}"
    with pytest.raises(InvalidInput, match=f"data is 'nets.py'; {said}"):
        library.train("dsgt", data="nets.py", model="logistic", privacy=library.NoPrivacy(lot_size=4), rounds=1, lr=1)
