"""`tacit reproduce`: a list, a run that can be stopped and resumed, and sentences for what cannot be."""

import json
import pickle
import re
import shutil

import pytest
from full_disk import files_end_at
from invoking import answer, complaint, document, interrupted, is_picture, one_line
from typer.testing import CliRunner

from tacit.cli import app
from tacit.experiments import EXPERIMENTS, load_experiment
from tacit.io.lock import held

ERRATA = ("reproduce", "errata", "--profile", "smoke")
SMALL = ("reproduce", "convergence", "--profile", "smoke", "--only", "algorithm=dsgd", "--only", "part=constant")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Results with all points of `errata`, and what was printed when they were played."""
    results = tmp_path_factory.mktemp("results")
    return results, document(*ERRATA, "--results", results)


@pytest.fixture
def results(finished, tmp_path):
    """A copy of these to change."""
    return shutil.copytree(finished[0], tmp_path / "results")


def lines(folder):
    return [json.loads(line) for line in (folder / "points.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_without_a_name_all_are_listed_with_their_times():
    text = answer("reproduce")
    listed = document("reproduce")
    assert list(listed) == list(EXPERIMENTS)
    for name in EXPERIMENTS:
        assert f"\n{name} " in text
        assert listed[name]["seconds"]["smoke"] < 60
    assert listed["split"]["seconds"]["paper"] is None
    assert re.search(r"^split .* not timed ", text, flags=re.MULTILINE)
    assert "days" not in text
    assert "What is not timed needs one, and was never timed there." in one_line(text)
    assert "All of laptop takes roughly" in one_line(text)


def test_an_experiment_is_played_and_its_finding_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = one_line(answer(*ERRATA, "--quiet"))
    assert "The paper: The CIFAR-100 runs are (10, 1e-5)-DP" in said
    assert "as run: two queries a round, ε is 14.2 (add-or-remove-one, δ=1e-05). Against the claim." in said
    assert "as defined: replace one, ε is 1.93 (replace-one, δ=1e-05)" in said
    folder = tmp_path / "results" / "errata-smoke"
    assert is_picture(folder / "figure.png")
    assert is_picture(folder / "figure.pdf")
    assert "14.2" in (folder / "finding.md").read_text()
    assert len(lines(folder)) == 4
    assert (folder / "results.csv").read_text().startswith("row,what,nominal_epsilon,")


@pytest.mark.slow
def test_points_may_be_played_by_several_processes(finished, tmp_path):
    two = document(*ERRATA, "--results", tmp_path / "two", "--workers", "2")
    assert two["finding"] == finished[1]["finding"]
    assert "it must be at least 1" in complaint(*ERRATA, "--results", tmp_path, "--workers", "0")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_can_be_handed_to_a_process(name):
    assert pickle.loads(pickle.dumps(load_experiment(name).run)) is not None


def test_a_finished_folder_is_drawn_again(finished, results):
    folder, first = results / "errata-smoke", finished[1]
    before = (folder / "points.jsonl").read_bytes()
    (folder / "finding.md").unlink()
    assert document(*ERRATA, "--results", results) == first | {"folder": str(folder)}
    assert (folder / "points.jsonl").read_bytes() == before
    assert (folder / "finding.md").exists()
    assert first["points"] == first["of"] == 3


def test_the_rest_of_a_folder_needs_to_be_asked_for(tmp_path):
    some = document(*ERRATA, "--results", tmp_path, "--only", "row=4")
    assert (some["points"], some["of"]) == (1, 3)
    assert "Points finished so far: 1 of 3." in some["finding"]
    said = complaint(*ERRATA, "--results", tmp_path)
    assert "errata-smoke has 1 of 3 points; add --resume to continue" in one_line(said)
    assert document(*ERRATA, "--results", tmp_path, "--resume")["points"] == 3


@pytest.mark.slow
def test_ctrl_c_keeps_finished_points_and_says_how_to_resume(tmp_path):
    done = interrupted("tacit.cli.commands.reproduce_points", *SMALL, "--results", tmp_path)
    assert (done.returncode, done.stdout) == (130, "")
    said = done.stderr
    assert said.startswith("3 points to play: roughly ")
    assert re.search("1 of 3 points.* left", said)
    assert "of 3 points are kept. Resume with: tacit reproduce convergence --profile smoke --only" in one_line(said)
    assert "--resume" in said
    assert "Traceback" not in said
    kept = lines(tmp_path / "convergence-smoke")
    assert len(kept) >= 2
    assert f"the finished points are drawn in {tmp_path / 'convergence-smoke'}" in one_line(said)
    assert "Points finished so far: " in (tmp_path / "convergence-smoke" / "finding.md").read_text()
    assert (tmp_path / "convergence-smoke" / "figure.png").exists()
    assert document(*SMALL, "--results", tmp_path, "--resume")["points"] == 3
    assert lines(tmp_path / "convergence-smoke")[: len(kept)] == kept


def test_a_second_command_changes_nothing_while_the_first_writes_a_line(results):
    folder = results / "errata-smoke"
    whole = (folder / "points.jsonl").read_bytes()
    half = whole[:-20]
    (folder / "points.jsonl").write_bytes(half)
    with held(folder / "lock", folder):
        said = complaint(*ERRATA, "--results", results, "--resume", "--quiet")
    assert "another process is working on" in one_line(said)
    assert (folder / "points.jsonl").read_bytes() == half


def test_a_full_disk_is_reported_with_what_is_kept_and_how_to_resume(tmp_path):
    document(*ERRATA, "--results", tmp_path, "--only", "row=4")
    file = tmp_path / "errata-smoke" / "points.jsonl"
    before = file.read_bytes()
    with files_end_at(len(before) + 20):
        said = complaint(*ERRATA, "--results", tmp_path, "--resume", "--quiet")
    assert f"{file}: cannot be written: " in said
    assert "; 1 of 3 points are kept. Resume with: tacit reproduce errata --profile smoke" in said
    assert said.endswith("--resume")
    assert len(file.read_bytes()) == len(before) + 20
    assert document(*ERRATA, "--results", tmp_path, "--resume")["points"] == 3
    assert file.read_bytes().startswith(before)
    assert len(lines(file.parent)) == 1 + 3


def test_nothing_to_resume_is_reported(tmp_path):
    run = [
        one_line(CliRunner().invoke(app, [*map(str, ERRATA), "--results", str(tmp_path), "--resume", *only]).stderr)
        for only in (["--only", "row=4"], [])
    ]
    assert f"nothing to resume in {tmp_path} with the profile smoke; starting from the beginning" in run[0]
    assert "nothing to resume" not in run[1]


def test_points_of_something_else_are_refused(results):
    (results / "errata-smoke").rename(results / "graphs-smoke")
    said = complaint("reproduce", "graphs", "--profile", "smoke", "--results", results)
    assert "holds points of another experiment (experiment differ)" in one_line(said)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("conectivity",), "unknown experiment 'conectivity'; did you mean 'connectivity'?"),
        (("errata", "--profile", "huge"), "--profile is 'huge'; it must be one of smoke, laptop, paper"),
        (("errata", "--only", "row"), "write KEY=VALUE, such as algorithm=dsgt"),
        (("errata", "--only", "rov=2"), "unknown setting 'rov'; did you mean 'row'?"),
        (("errata", "--only", "row=7"), "no point has row=7; there are 2, 3, 4"),
        (("all", "--only", "row=2"), "--only restricts one experiment; name it instead of all"),
        (("--only", "row=2"), "--only needs the name of an experiment, or all"),
        (("--resume",), "--resume needs the name of an experiment, or all"),
        (("errata", "--results", "/dev/null"), "because /dev/null is not a folder"),
        (("errata", "--device", "nonsense"), "device is 'nonsense', which cannot be used here"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in one_line(complaint("reproduce", *args, "--quiet"))
    assert not list(tmp_path.iterdir())
