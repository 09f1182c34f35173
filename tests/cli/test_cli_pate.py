"""`tacit train --algorithm pate` and what other commands say of such a run."""

import json

import pytest
from invoking import answer, complaint, document, one_line
from test_cli_progress import text
from typer.testing import CliRunner

from tacit.cli import app
from tacit.cli.terminal.progress import _now
from tacit.runs import Runner
from tacit.runs.config import RunConfig
from tacit.runs.folder import RunFolder

OPTIONS = [
    *("--algorithm", "pate:teachers=4,records=40,answers=20,teacher_steps=10", "--agents", "3", "--split", "iid"),
    *("--epsilon", "8", "--delta", "1e-3", "--rounds", "5", "--source", "seeded"),
]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*words):
    done = CliRunner(env={"COLUMNS": "120"}).invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_run_is_planned_trained_reported_and_verified(tmp_path):
    printed = run("train", *OPTIONS, "--name", "votes")
    assert "1 and 0 spare" in printed
    assert "4, asked about 40 public records, 20 answers at most" in printed
    assert "sampling rate" not in printed
    labels = json.loads((tmp_path / "runs/votes/summary.json").read_text())["labels_per_agent"]
    assert len(labels) == 3
    assert 0 < max(labels) <= 20
    said = f"{min(labels)} to {max(labels)}" if min(labels) < max(labels) else str(max(labels))
    assert f"teachers labelled {said} of 40 public records at each agent, 20 at most" in printed
    assert "warning" not in printed
    run("report", "runs/votes")
    page = (tmp_path / "runs/votes/report.html").read_text()
    assert "labels by teachers" in page
    assert f">{sum(labels)}<" in page
    assert "among 4 teachers" in page
    assert "clip C" not in page
    assert "disagree" not in page
    assert "not checked" not in page
    assert "samples/s" not in page
    run("export", "votes", "--for-audit", "-o", "votes.zip")
    found = document("verify", "votes.zip")
    assert (found["holds"], found["not_checked"]) == (True, ["earlier head"]), "also its plan, bytes and replay"
    assert "asks teachers for votes" in complaint("audit", "runs/votes/config.toml")


def test_labels_are_shown_while_students_learn_and_kept_by_a_resume(tacit, tmp_path):
    settings = {"algorithm": OPTIONS[1], "agents": 3, "split": "iid", "epsilon": 8.0, "delta": 1e-3, "rounds": 6}
    config = RunConfig.of(settings | {"source": "seeded", "evaluate_every": 2, "checkpoint_every": 1})
    with Runner.start(tmp_path / "runs", "one", config) as runner:
        runner.play(stop=lambda: runner.session.round >= 3)
        before = runner.session.monitor.histories[0]
        assert before[0].labels is None
        given = before[1].labels.tolist()
        assert f"{min(given)}" in text(_now(runner)).splitlines()[0]
        assert "labels by each agent's teachers" in text(_now(runner)).splitlines()[0]
        assert "records/s" not in text(_now(runner))
    told = tacit("resume", "one")[2]
    assert told.count("labels by each agent's teachers") == 2
    events = RunFolder(tmp_path / "runs/one").events()
    assert [each.labels for each in events.snapshots] == [None, *[tuple(given)] * 3]


def test_teachers_who_cannot_know_all_classes_are_warned_of(tacit, tmp_path):
    uneven = [*OPTIONS[:5], "1.0", *OPTIONS[6:], "--name", "uneven"]
    printed = one_line(tacit("train", *uneven)[1])
    assert "warning no agent has enough records of all classes: 6 to 7 of 10 classes are unknown" in printed
    assert "use gradients (dsgt)" in printed
    assert tacit("report", "uneven")[0] == 0
    assert "No agent has enough records of all classes" in (tmp_path / "runs/uneven/report.html").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--lot-size", "10"], "--lot-size means nothing to pate"),
        (["--noise", "cancelling"], "--noise means nothing to pate"),
        (["--algorithm", "pate:teachers=2000"], "there are 2000 teachers for each agent, but agent 2 has 477 records"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_settings_of_sums_are_refused(options, words):
    assert words in complaint("train", *OPTIONS, *options, "--quiet")


def test_without_privacy_records_themselves_are_better():
    assert "without privacy, train on the records themselves" in complaint(
        "train", *OPTIONS[:6], "--no-private", "--quiet"
    )


def test_rounded_records_choose_their_noise_and_accountant(tmp_path):
    quick = [
        "--agents",
        "3",
        "--rounds",
        "2",
        "--noise-multiplier",
        "4",
        "--source",
        "fast",
        "--lot-size",
        "20",
        "--quiet",
    ]
    answer("train", "--algorithm", "q-dpsgd-2", *quick, "--name", "rounded")
    settings = (tmp_path / "runs/rounded/config.toml").read_text()
    assert 'noise = "discrete"' in settings
    assert 'accountant = "rdp"' in settings
    assert "use 'rdp'" in complaint("train", "--algorithm", "q-dpsgd-2", *quick, "--accountant", "pld")
