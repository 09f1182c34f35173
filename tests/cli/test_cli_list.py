"""`tacit list`: what state each run is in, and that one broken folder hides no other."""

import io
import json
from contextlib import closing

from invoking import PLAIN, QUICK
from rich.console import Console

from tacit.cli.commands.list import _table
from tacit.cli.terminal.output import round_up
from tacit.privacy import DurableLedger
from tacit.privacy.accounting import ceil_digits
from tacit.runs import RunFolder, Runner
from tacit.runs.config import RunConfig


def start(runs, name):
    settings = {"agents": 4, "split": "0.5", "noise_multiplier": 3.0, "lot_size": 24, "rounds": 6, "evaluate_every": 2}
    return Runner.start(runs, name, RunConfig.of(settings))


def test_a_run_that_a_process_works_on_is_running(tacit, tmp_path):
    with start(tmp_path / "runs", "one") as runner:
        runner.play(stop=lambda: runner.session.round >= 3)
        (row,) = json.loads(tacit("list", "--json")[1])["runs"]
        assert row["state"] == "running"
        assert runner.play(stop=lambda: runner.session.round >= 5) is None  # asking disturbed nothing
    (row,) = json.loads(tacit("list", "--json")[1])["runs"]
    assert row["state"] == "stopped"
    looks = RunFolder(tmp_path / "runs" / "one").events().snapshots
    assert row["accuracy"] == sum(looks[-1].accuracy) / 4
    assert (row["rounds"], row["of"], row["release"]) == (5, 6, True)
    with closing(DurableLedger(tmp_path / "runs" / "ledger.sqlite", read_only=True)) as ledger:
        kept = ledger.guarantees(ledger.owners, delta=1e-5, run="one")
    assert row["epsilon"] == ceil_digits(max(each.epsilon for each in kept)) > 0  # of its whole plan


def test_finished_runs_show_what_they_spent_and_whether_they_are_releases(tacit):
    tacit("train", *QUICK, "--name", "secret")
    tacit("train", *QUICK, "--name", "seeded", "--source", "seeded")
    tacit("train", *PLAIN, "--name", "open")
    secret, seeded, plain = json.loads(tacit("list", "--json")[1])["runs"]
    assert [row["state"] for row in (secret, seeded, plain)] == ["finished"] * 3
    assert [row["release"] for row in (secret, seeded, plain)] == [True, False, False]
    assert secret["epsilon"] == seeded["epsilon"] > 0
    assert plain["epsilon"] is None
    first, second, _, one, _, three, *_ = tacit("list")[1].splitlines()
    assert (first.split(), second.split()[-3:]) == (["ε", "per"], ["accuracy", "record", "release"])
    assert one.split()[-2:] == [round_up(secret["epsilon"]), "yes"]
    assert three.split()[-2:] == ["none", "no"]


def test_a_broken_folder_is_reported_and_hides_no_other_run(tacit, tmp_path):
    tacit("train", *QUICK, "--name", "good")
    for name, file, content in (
        ("no-toml", "config.toml", "rounds = ["),
        ("unknown", "config.toml", "rond = 3"),
        ("half", "summary.json", '{"accuracy'),
        ("other", "summary.json", "[]"),
        ("strange", "events.jsonl", '{"event": "snapshot"}\n'),
    ):
        folder = tmp_path / "runs" / name
        folder.mkdir()
        (folder / "config.toml").write_text((tmp_path / "runs" / "good" / "config.toml").read_text())
        (folder / file).write_text(content)
    code, out, error = tacit("list", "--json")
    assert code == 0
    states = {row["run"]: row["state"] for row in json.loads(out)["runs"]}
    assert states == {"good": "finished"} | dict.fromkeys(["no-toml", "unknown", "half", "other", "strange"], "broken")
    assert error.count("is broken: ") == 5
    assert "did you mean 'rounds'" in error
    assert "good" in tacit("list")[1]


def test_names_are_never_cut_off(tacit, monkeypatch):
    name = "a-name-that-is-longer-than-all-the-room-there-is-" + "x" * 40
    tacit("train", *QUICK, "--name", name)
    assert name in tacit("list")[1]
    monkeypatch.setenv("COLUMNS", "60")
    narrow = tacit("list")[1]
    assert name in narrow
    assert "…" not in narrow


def test_a_list_with_observers_fits_80_columns_and_breaks_no_default_name():
    facts = {"agents": 10, "rounds": 1000, "of": 1000, "state": "finished", "accuracy": 0.9134, "private": True}
    spent = {"epsilon": 1.234, "epsilon_against": {"1": 1.234, "all": 4.567}, "unit": "record", "release": True}
    row = {"run": "dinno-digits-1", "dataset": "digits", **facts, **spent}
    screen = Console(width=80, file=io.StringIO())
    screen.print(_table([(row, "dinno")]))
    lines = screen.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-2].split() == [
        "dinno-digits-1",
        "dinno",
        "digits",
        "10",
        "1,000",
        "finished",
        "91.3%",
        "1.234",
        "any",
        "1",
        "yes",
    ]
    assert lines[-1].split() == ["4.567", "all"]
