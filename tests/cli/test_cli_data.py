import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from invoking import answer, complaint, document, is_picture, noted, process

from tacit.data import IID, ByClass, Dirichlet, Schema, load
from tacit.errors import InvalidInput
from tacit.runs.config import RunConfig
from tacit.runs.specs import parse_split

DIGITS = ("data", "digits", "--agents", 10)


@pytest.fixture(scope="module")
def real_data():
    folder = Path(os.environ.get("TACIT_DATA") or Path(__file__).parents[3] / "shared" / "data")
    if not (folder / "MNIST" / "raw").exists() or not (folder / "cifar-100-small" / "train").exists():
        pytest.skip(f"no MNIST and CIFAR-100 in {folder}; set TACIT_DATA to a folder that has them")
    return folder


def test_json_says_who_gets_what():
    result = document(*DIGITS, "--split", 0.5, "--seed", 3)
    expected = load("digits").split(10, ByClass(t=0.5), 3)
    assert result["counts"] == expected.counts.tolist()
    assert result["sizes"] == list(expected.sizes)
    assert (result["name"], result["agents"], result["classes"]) == ("digits", 10, 10)
    assert (result["split"], result["seed"]) == ("0.5", 3)
    assert sum(result["sizes"]) == 1433
    assert Schema.of(result["schema"]) == Schema.draft(expected.dataset)


def test_synthetic_data_is_that_which_train_takes():
    result = document("data", "synthetic:600", "--agents", 4, "--seed", 3)
    config = RunConfig.of({"dataset": "synthetic:600", "agents": 4, "seed": 3, "private": False})
    assert result["counts"] == config.load_data().counts.tolist()
    assert sum(result["sizes"]) == 600
    assert "write synthetic:RECORDS" in complaint("data", "synthetic:few", "--agents", 4)


def test_at_one_each_agent_has_a_class_of_its_own():
    counts = np.array(document(*DIGITS, "--split", 1)["counts"])
    assert np.array_equal(counts > 0, np.eye(10, dtype=bool))
    assert document(*DIGITS)["counts"] == counts.tolist()


@pytest.mark.parametrize(
    ("split", "rule"), [("iid", IID()), ("dirichlet:0.3", Dirichlet(alpha=0.3)), ("0", ByClass(t=0.0))]
)
def test_other_splits(split, rule):
    result = document(*DIGITS, "--split", split, "--seed", 1)
    assert result["counts"] == load("digits").split(10, rule, 1).counts.tolist()


def test_table_is_a_heat_map_with_totals():
    text = answer(*DIGITS, "--split", 0.9)
    assert text.startswith("digits, A(t=0.9), 10 agents, seed 0: 1,433 training records\n")
    assert "\na record: inputs: uint8 [1, 8, 8], 0 to 255; targets: int64, 0 to 9\n" in text
    counts = np.array(document(*DIGITS, "--split", 0.9)["counts"])
    lines = text.splitlines()
    first = next(line for line in lines if line.split()[:1] == ["0"])
    assert first.split()[-1] == str(counts[0].sum())
    assert f"█{counts[0, 0]}" in first
    assert f"░{counts[0, 1]}" in first
    whole = next(line for line in lines if line.split()[:1] == ["all"])
    assert whole.split()[1:] == [*map(str, counts.sum(axis=0)), "1433"]
    assert [line.split()[0] for line in lines[-4:]] == ["min", "mean", "max", "all"]


def test_an_empty_cell_is_a_dot():
    text = answer(*DIGITS, "--split", 1)
    assert next(line for line in text.splitlines() if line.split()[:1] == ["3"]).split()[1:4] == ["·"] * 3


def test_many_agents_are_summed_up():
    text = answer("data", "digits", "--agents", 300, "--split", "iid")
    assert "The first 20 of 300 agents; --json lists all." in text
    assert "records of an agent: 4 to 5, 4.8 on average" in text
    assert len(text.splitlines()) < 40


def test_one_agent_holds_everything():
    text = answer("data", "digits", "--agents", 1)
    assert "records of an agent: 1,433\n" in text


def test_many_classes_are_shaded(real_data, tmp_path):
    args = ("data", "cifar100-small", "--agents", 30, "--split", "dirichlet:0.1", "--data-dir", real_data)
    text = answer(*args, "--plot", tmp_path / "heat.png")
    assert "each cell is 2 classes: · none, ░ up to " in text
    assert "The first 20 of 30 agents" in text
    assert is_picture(tmp_path / "heat.png")


def test_mnist_by_class_has_the_known_sizes(real_data):
    sizes = document("data", "mnist", "--agents", 10, "--split", 1, "--data-dir", real_data)["sizes"]
    assert (min(sizes), max(sizes), sum(sizes)) == (5421, 6742, 60000)
    assert "█6742" in answer("data", "mnist", "--agents", 10, "--data-dir", real_data)


@pytest.mark.parametrize(("name", "agents"), [("heat.png", 10), ("heat.pdf", 1), ("heat.svg", 50)])
def test_plot_makes_the_picture_that_its_name_says(tmp_path, name, agents):
    document("data", "digits", "--agents", agents, "--plot", tmp_path / name)
    assert is_picture(tmp_path / name)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("data", "digit", "--agents", 10), "unknown data set 'digit'; did you mean 'digits'?"),
        (("data", "[red]", "--agents", 10), "unknown data set '[red]'"),
        (("data", "mine.py:records"), "dataset mine.py:records: the file mine.py does not exist"),
        (("data", "--agents", 10), "missing argument"),
        (("data", "digits", "--agents", 0), "--agents is 0; it must be at least 1"),
        (("data", "digits", "--agents", 5000), "between 1 and 1433 agents"),
        (("data", "digits", "--agents", "ten"), "--agents is 'ten'; it must be a whole number"),
        ((*DIGITS, "--split", 1.5), "t=1.5 is outside [0, 1]"),
        ((*DIGITS, "--split", "half"), "unknown split 'half' (a number t from 0 to 1 for A(t), iid, or"),
        ((*DIGITS, "--split", "idd"), "did you mean 'iid'?"),
        ((*DIGITS, "--split", "dirichlt:1"), "did you mean 'dirichlet:0.3'?"),
        ((*DIGITS, "--split", "dirichlet"), "has no number for alpha; write it as in dirichlet:0.3"),
        ((*DIGITS, "--split", "dirichlet:alpha=0.1,min_size=40"), "write it as in dirichlet:0.1,min_size=40"),
        ((*DIGITS, "--split", "dirichlet:-1"), "alpha=-1.0 is outside (0, 1e6]"),
        (("data", "digits", "--agents", 500, "--split", "dirichlet:0.01"), "use a larger alpha, fewer agents"),
        ((*DIGITS, "--seed", -3), "--seed is -3; it must be at least 0"),
        ((*DIGITS, "--plot", "x.bmp"), "x.bmp: a picture is saved as .png, .pdf, .svg"),
        ((*DIGITS, "--plit", 1), "unknown option '--plit'; did you mean '--split'?"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(args, message):
    assert message in complaint(*args)


def test_a_picture_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert "is not a folder" in complaint(*DIGITS, "--plot", tmp_path / "file" / "x.png")


def test_data_that_is_not_there_is_reported_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.data.download._download", lambda *args: False)
    said = complaint("data", "mnist", "--agents", 10, "--data-dir", tmp_path)
    assert f"MNIST/raw/train-images-idx3-ubyte.gz is not in {tmp_path}" in said


def test_broken_data_is_an_error(tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (raw / f"{name}-ubyte").write_bytes(b"not a picture")
    assert str(raw) in complaint("data", "mnist", "--agents", 10, "--data-dir", tmp_path)


def test_help_has_an_example():
    assert "tacit data mnist --agents 10 --split 0.5" in answer("data", "--help")


def test_a_terminal_without_our_letters_still_gets_the_numbers():
    done = process(*DIGITS, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "1433" in done.stdout


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("1", ByClass(t=1.0)),
        (" 0.25 ", ByClass(t=0.25)),
        ("IID", IID()),
        ("dirichlet:0.3", Dirichlet(alpha=0.3)),
        ("dirichlet:1e2", Dirichlet(alpha=100.0)),
    ],
)
def test_a_text_names_a_split(text, rule):
    assert parse_split(text) == rule


@pytest.mark.parametrize("text", ["", "nan", "iid:1", "0.5:1", "dirichlet:", "dirichlet:nan", "a(0.5)", "-0.1", "inf"])
def test_a_text_that_names_no_split_is_refused(text):
    with pytest.raises(InvalidInput):
        parse_split(text)


OWN = """
import torch
from tacit.data import AgentData, DataSet

inputs = torch.arange(60.0).reshape(30, 2)

def whole():
    return DataSet.from_records(name="mine", train=(inputs, torch.arange(30) % 3), classes=3)

def divided():
    parts = [(inputs[:10], torch.arange(10) % 2), (inputs[10:], torch.arange(20) % 2)]
    return AgentData.from_parts(parts, name="clinics", classes=2)

def numbers():
    return DataSet.from_records(name="doses", train=(inputs, torch.arange(30.0)))
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])


WARNING = "how many records of each class an agent holds is private: do not publish or forward these counts"


@pytest.mark.usefixtures("own")
def test_classes_of_ones_own_data_are_counted_only_when_asked_for_and_with_a_warning(tmp_path):
    args = ("data", "mine.py:divided")
    found = document(*args)
    assert (found["sizes"], found["classes"], found["counts"]) == ([10, 20], 2, None)
    text = answer(*args)
    assert "classes of an agent" not in text
    assert [line.split() for line in text.splitlines()[-3:-1]] == [["0", "10"], ["1", "20"]]
    assert text.splitlines()[-1] == "How many are of each class is private; --private-counts shows it to you."
    assert WARNING in complaint(*args, "--plot", tmp_path / "heat.png")
    assert not (tmp_path / "heat.png").exists()
    text, note = noted(*args, "--private-counts", "--plot", "heat.png")
    assert text.splitlines()[-2].split() == ["all", "15", "15", "30"]
    assert note == WARNING
    assert is_picture(tmp_path / "heat.png")


@pytest.mark.usefixtures("own")
def test_data_of_ones_own_is_shown_as_train_would_divide_it():
    args = ("data", "mine.py:whole", "--agents", 3, "--split", "iid", "--seed", 2, "--private-counts", "--json")
    result = json.loads(noted(*args)[0])
    config = RunConfig.of({"dataset": "mine.py:whole", "agents": 3, "split": "iid", "seed": 2, "private": False})
    assert result["counts"] == config.load_data().counts.tolist()
    text = answer("data", "mine.py:whole", "--agents", 3)
    assert text.startswith("mine.py:whole, A(t=1), 3 agents, seed 0: 30 training records\n")
    private = "This split goes by class, so that the numbers of records above are private, too.\n"
    assert text.endswith(private)  # each agent has a class of its own: their numbers are those of the classes
    assert private not in answer("data", "mine.py:whole", "--agents", 3, "--split", "iid")


@pytest.mark.usefixtures("own")
def test_data_that_is_divided_already_is_shown_as_it_is():
    assert answer("data", "mine.py:divided").startswith("mine.py:divided, 2 agents: 30 training records\n")
    result = json.loads(noted("data", "mine.py:divided", "--private-counts", "--json")[0])
    assert (result["sizes"], result["counts"], result["split"]) == ([10, 20], [[5, 5], [10, 10]], None)
    assert "are divided among 2 agents already; leave agents out" in complaint("data", "mine.py:divided", "--agents", 3)


@pytest.mark.usefixtures("own")
def test_data_without_classes_is_shown_by_sizes(tmp_path):
    text = answer("data", "mine.py:numbers", "--agents", 2, "--split", "iid")
    assert [line.split() for line in text.splitlines()[-2:]] == [["0", "15"], ["1", "15"]]
    assert document("data", "mine.py:numbers", "--agents", 2, "--split", "iid")["counts"] is None
    said = complaint("data", "mine.py:numbers", "--agents", 2, "--split", "iid", "--plot", tmp_path / "heat.png")
    assert "has no classes, so there is no heat map to draw" in said


MISSING = """
import torch
import tacit

inputs = torch.zeros(70, 3)
inputs[::7, 1] = float("nan")
data = tacit.data.DataSet.from_records(name="visits", train=(inputs, torch.arange(70) % 2), classes=2)
"""


def test_missing_numbers_are_refused_as_a_run_would(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "missing.py").write_text(MISSING)
    message = complaint("data", "missing.py:data", "--agents", 2, "--split", "iid")
    assert "training records do not fit the schema of visits" in message
    assert "inputs that are not finite" in message
