"""`tacit audit FILE.toml` and `tacit train --check`: one check is run here, and one that finds a fault."""

import json
import sys
from pathlib import Path

import pytest
import torch
from invoking import _invoke, complaint, one_line

from tacit.audit.detectors.check import training_of
from tacit.privacy import noise_kinds
from tacit.report import RecordedRun, write_report
from tacit.runs.checks import last_check
from tacit.runs.config import RunConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "audit"))
import faults

SETTINGS = 'algorithm = "dsgd"\ndataset = "synthetic:400"\nagents = 2\ngraph = "path"\nlot_size = 32.0\nrounds = 3\n'
CHECK = ("audit", "run.toml", "--false-alarm", "1e-6")
CONFIG = SETTINGS + "noise_multiplier = 3.0\n"


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """A folder in which settings were checked, and what the command printed."""
    folder = tmp_path_factory.mktemp("checked")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("run.toml").write_text(CONFIG)
        result = _invoke(CHECK)
    return folder, result


@pytest.mark.chance(1e-6)
def test_a_check_prints_every_finding_and_keeps_a_page(checked):
    folder, result = checked
    assert result.exit_code == 0, (result.stdout, result.stderr)
    for words in ("influence: own sum", "lots: rounds", "noise: shifts", "bits: norms", "No fault was found"):
        assert words in result.stdout
    assert max(len(line) for line in result.stdout.splitlines() if "/" not in line) <= 80
    document = json.loads((folder / "audits/check-dsgd-1/audit.json").read_text())
    assert document["verdict"] == "no fault found"
    assert document["false_alarm"] <= 1e-6
    assert {each["outcome"] for each in document["findings"]} <= {"pass", "inconclusive"}
    page = (folder / "audits/check-dsgd-1/audit.html").read_text()
    assert "NO FAULT FOUND" in page
    assert "What this cannot show" in page


def test_a_run_shows_the_check_of_its_settings_and_the_report_says_so(checked, monkeypatch):
    monkeypatch.chdir(checked[0])
    result = _invoke(["train", "run.toml", "--name", "one", "--seed", "4"])
    assert "no fault found" in one_line(result.stdout).split("checked")[1]
    page = write_report(RecordedRun.load("runs/one"), "one.html").read_text()
    assert "no fault was found, which does not prove" in page


def test_a_run_of_other_settings_shows_how_to_check_them(checked, monkeypatch):
    monkeypatch.chdir(checked[0])
    result = _invoke(["train", "run.toml", "--name", "other", "--clip", "2"])
    assert "checked no; to check these settings: tacit audit runs/other/config.toml" in one_line(result.stdout)
    assert "These settings were not checked" in write_report(RecordedRun.load("runs/other"), "other.html").read_text()


def test_a_fault_ends_training_before_any_query(tacit, tmp_path, monkeypatch):
    (tmp_path / "run.toml").write_text(CONFIG)
    faults.use_each_lot_twice(monkeypatch)
    code, out, error = tacit("train", "run.toml", "--check", "--name", "one", "--quiet")
    assert (code, out) == (1, "")
    assert "lots: rounds" in error
    assert "nothing was spent" in error
    assert not (tmp_path / "runs" / "one").exists()
    kept = last_check(tmp_path / "runs", RunConfig.of(RunConfig.read(tmp_path / "run.toml")))
    assert kept.verdict == "fault found"


@pytest.mark.slow
@pytest.mark.chance(1e-6)
@pytest.mark.parametrize(
    ("noise", "plant", "found"),
    [
        (
            'noise = "cancelling"\nmask_ratio = 2.0\nagents = 5\ngraph = "ring"\nkeys = "graph"\n',
            faults.keep_the_curious_in_the_graph,
            "noise: protection",
        ),
        ("bands = 4\n", faults.draw_from_all_groups, "lots: turns"),
        ("bands = 4\n", lambda patch: faults.scale_bands(1.5, patch), "noise: size"),
    ],
    ids=["the curious", "groups", "columns"],
)
def test_a_fault_of_the_noise_that_a_file_asks_for_is_found(noise, plant, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [line for line in CONFIG.splitlines() if line.split(" ")[0] not in noise]
    Path("run.toml").write_text("\n".join(lines) + "\n" + noise)
    assert _invoke([*CHECK, "--json"]).exit_code == 0
    plant(monkeypatch)
    result = _invoke([*CHECK, "--json"])
    noise_kinds._deviations.cache_clear()
    assert result.exit_code == 1
    assert found in json.loads(result.stdout)["failed"]


def test_a_data_set_that_is_not_there_is_made_up_from_its_declared_shape(tmp_path):
    config = RunConfig.of({"dataset": "mnist", "data_dir": str(tmp_path), "model": "convnet", "epsilon": 1.0})
    training, words = training_of(config)
    assert "not here" in words
    assert training.data.sizes == (6000,) * 10
    assert training.data.dataset.train.inputs.shape[1:] == (1, 32, 32)
    assert training.data.dataset.train.inputs.dtype == torch.uint8
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (SETTINGS + "private = false\n", "nothing to check"),
        (SETTINGS + "epsilon = 1.0\nrunds = 3\n", "did you mean 'rounds'"),
        ("not toml", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_checked_is_refused(tmp_path, monkeypatch, content, words):
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(content)
    assert words in complaint("audit", "run.toml")


def test_what_is_neither_an_attack_nor_a_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "neighbour" in complaint("audit", "neighbour")
    assert "cannot be read" in complaint("audit", "--json", "none.toml")
