"""`tacit train`, `resume`, `list` and `ledger`, as a user types them, and what bad input gets."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.privacy import Budget, DurableLedger
from tacit.report import Run, write_report

QUICK = ["--agents", "4", "--split", "0.5", "--noise-multiplier", "3", "--lot-size", "24", "--rounds", "6", "--lr", "1"]


@pytest.fixture
def tacit(tmp_path, monkeypatch):
    """Run a command in an empty folder; returns exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.stdout, result.stderr

    return run


def test_train_prints_the_plan_and_what_came_of_it(tacit, tmp_path):
    code, out, _ = tacit("train", *QUICK, "--name", "one")
    assert code == 0
    for part in ("noise multiplier σ", "sampling rate q", "6 and 2 spare", "a release", "in runs/one", "δ=1e-05"):
        assert part in out
    assert (tmp_path / "runs" / "one" / "summary.json").is_file()


def test_json_is_the_summary_and_nothing_else(tacit):
    code, out, _ = tacit("train", *QUICK, "--json", "--seed", 3)
    assert code == 0
    summary = json.loads(out)
    assert summary["rounds"] == 6
    assert len(summary["accuracy_per_agent"]) == 4
    assert summary["release"] is True
    assert summary["run"] == "runs/dsgt-digits-1"


def test_options_win_over_the_file(tacit, tmp_path):
    (tmp_path / "run.toml").write_text('algorithm = "dsgd"\nagents = 4\nepsilon = 2.0\nrounds = 9\nlot_size = 24\n')
    code, out, _ = tacit("train", "run.toml", "--rounds", 3, "--json")
    assert code == 0
    summary = json.loads(out)
    assert (summary["algorithm"], summary["rounds"]) == ("dsgd", 3)
    assert max(summary["epsilon_per_agent"]) <= 2.0


def test_list_and_ledger_tell_what_was_run_and_spent(tacit):
    tacit("train", *QUICK, "--name", "one")
    tacit("train", *QUICK, "--name", "two", "--source", "seeded")
    code, out, _ = tacit("list", "--json")
    assert code == 0
    assert [(row["run"], row["state"]) for row in json.loads(out)["runs"]] == [("one", "finished"), ("two", "finished")]
    code, out, _ = tacit("ledger", "--json", "--verify")
    record = json.loads(out)
    assert code == 0
    assert record["whole"] is True
    rows = [row for row in record["spent"] if row["owner"] == record["spent"][0]["owner"]]
    assert [row["run"] for row in rows] == ["one", "two", None]
    assert [row["release"] for row in rows] == [True, False, False]
    one, two, both = (row["epsilon"]["add_remove"] for row in rows)
    assert max(one, two) < both
    assert all(row["epsilon"]["replace_one"] > row["epsilon"]["add_remove"] for row in rows)
    assert "all together" in tacit("ledger")[1]
    assert "finished" in tacit("list")[1]


def test_a_ledger_that_is_not_whole_is_told_and_exits_with_1(tacit, tmp_path):
    tacit("train", *QUICK, "--name", "one")
    record = DurableLedger(tmp_path / "runs" / "ledger.sqlite")
    record._database.execute("DELETE FROM queries WHERE number = 3")
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "NOT WHOLE" in out


def test_a_run_that_states_less_than_the_record_is_told(tacit, tmp_path):
    tacit("train", *QUICK, "--name", "one")
    path = tmp_path / "runs" / "one" / "summary.json"
    summary = json.loads(path.read_text())
    summary["epsilon_per_agent"][1] *= 0.9
    path.write_text(json.dumps(summary))
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "run 'one' states ε =" in out
    assert "agent 1" in out


def test_the_report_counts_what_the_ledger_holds(tacit, tmp_path):
    tacit("train", *QUICK, "--name", "one")
    folder = tmp_path / "runs" / "one"
    told = Run.load(folder)
    assert told.charged == told.told == told.spent > 0
    with sqlite3.connect(tmp_path / "runs" / "ledger.sqlite") as database:
        database.execute("DELETE FROM queries WHERE number > 2")
    less = Run.load(folder)
    assert less.charged == 2
    assert less.spent == told.spent
    write_report(less, folder / "report.html")
    assert "The ledger holds 2 queries of this run" in (folder / "report.html").read_text()
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "run 'one' was answered 6 queries; 2 are on record" in out


def test_ctrl_c_stops_at_a_round_saves_and_says_how_to_go_on(tmp_path):
    command = [
        sys.executable,
        "-m",
        "tacit",
        "train",
        *QUICK,
        "--rounds",
        "4000",
        "--name",
        "long",
        "--source",
        "seeded",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as run:
        events = tmp_path / "runs" / "long" / "events.jsonl"
        while not events.exists() or '"snapshot"' not in events.read_text():
            assert run.poll() is None, run.stderr.read()
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        _, told = run.communicate(timeout=120)
    assert run.returncode == 130
    assert "Go on with: tacit resume runs/long" in " ".join(told.split())
    assert (tmp_path / "runs" / "long" / "checkpoint.safetensors").is_file()


BAD = [
    ("train", "say what to promise"),
    ("train --epsilon 1 --noise-multiplier 2", "not both"),
    ("train --no-private --epsilon 1", "private is false"),
    ("train --epsilon -1", "epsilon is -1.0: Input should be greater than 0"),
    ("train --epsilon 1 --delta 2", "delta is 2.0"),
    ("train --epsilon 1 --rounds 0", "rounds is 0"),
    ("train --epsilon 1 --rounds many", "--rounds is 'many', but it must be a whole number"),
    ("train --epsilon 1 --agents 0", "agents is 0"),
    ("train --epsilon 1 --agents 5000", "cannot divide"),
    ("train --epsilon 1 --algorithm dsgdd", "dsgdd"),
    ("train --epsilon 1 --dataset mnits", "did you mean 'mnist'"),
    ("train --epsilon 1 --dataset synthetic:few", "synthetic:RECORDS"),
    ("train --epsilon 1 --model convnets", "did you mean 'convnet'"),
    ("train --epsilon 1 --split 2", "outside"),
    ("train --epsilon 1 --split dirichlet", "dirichlet:0.3"),
    ("train --epsilon 1 --graph rign", "did you mean 'ring'"),
    ("train --epsilon 1 --graph no/such/file.txt", "no/such/file.txt"),
    ("train --epsilon 1 --graph hypercube", "power"),
    ("train --epsilon 1 --graph random:fiedler=0.95", "out of reach"),
    ("train --epsilon 1 --graph star --mixing uniform", "average drifts"),
    ("train --epsilon 1 --lot-size 5000", "larger than agent 0's"),
    ("train --epsilon 1 --clip 0", "clip is 0"),
    ("train --epsilon 1 --accountant rdp --adjacency replace_one", "use accountant='pld'"),
    ("train --epsilon 1 --algorithm dsgt --step adam", "does not apply"),
    ("train --epsilon 1 --lr 0", "lr is 0"),
    ("train --epsilon 1 --device quantum", "device is 'quantum'"),
    ("train --epsilon 1 --name ../up", "cannot be called"),
    ("train --epsilon 1 --data-dir nowhere --dataset mnist", "nowhere"),
    ("train --epsilon 1 --roundz 3", "did you mean '--rounds'"),
    ("train missing.toml --epsilon 1", "missing.toml"),
    ("train broken.toml --epsilon 1", "is not TOML"),
    ("train misspelt.toml", "did you mean 'rounds'"),
    ("train wrong.toml", "rounds is 'many'"),
    ("train --epsilon 1 --graph apart.txt", "connected"),
    ("train --epsilon 1 --graph pair.txt", "the graph has 2 agents, but 10 are wanted"),
    ("train --epsilon 1 --dataset synthetic --model convnet --lot-size 9", "channels, height, width"),
    ("train --no-private --private-diagnostics", "does not clip"),
    ("resume nowhere", "there is no run folder"),
    ("resume .", "has no config.toml"),
    ("ledger", "there is no ledger"),
    ("ledger --delta 7 --runs spent", "delta is 7"),
    ("frobnicate", "no such command 'frobnicate'"),
]


@pytest.mark.parametrize(("line", "message"), BAD, ids=[line for line, _ in BAD])
def test_bad_input_gets_a_sentence_and_leaves_nothing_behind(line, message, tacit, tmp_path):
    (tmp_path / "broken.toml").write_text("rounds = [")
    (tmp_path / "misspelt.toml").write_text("epsilon = 1.0\nrond = 3\n")
    (tmp_path / "wrong.toml").write_text('epsilon = 1.0\nrounds = "many"\n')
    (tmp_path / "apart.txt").write_text("0 1\n2 3\n")
    (tmp_path / "pair.txt").write_text("0 1\n")
    if "spent" in line:
        account = DurableLedger(tmp_path / "spent" / "ledger.sqlite").open(
            run="r", owners=["a"], sample_rates=[0.1], noise_multipliers=[1.0], queries=1, release=True
        )
        account.spend()
    code, out, error = tacit(*line.split())
    assert code == 2
    said = " ".join(error.split())
    assert message in said
    assert "Traceback" not in said + out
    assert not [path for path in (tmp_path / "runs").glob("*") if path.is_dir()]


def test_a_second_run_that_would_pass_the_budget_is_refused(tacit, tmp_path):
    DurableLedger(tmp_path / "runs" / "ledger.sqlite", Budget(epsilon=1.0, delta=1e-5))
    assert tacit("train", *QUICK, "--name", "one")[0] == 0
    code, _, error = tacit("train", *QUICK, "--noise-multiplier", 0.7, "--name", "two")
    assert code == 2
    assert "past its budget of ε=1" in " ".join(error.split())
    assert not (tmp_path / "runs" / "two").exists()


def test_report_and_compare_write_pages_and_figures(tacit, tmp_path):
    for name in ("one", "two"):
        assert tacit("train", *QUICK, "--name", name)[0] == 0
    code, out, _ = tacit("report", "runs/one", "runs/two", "--figures")
    assert code == 0
    assert "runs/two/report.html" in out
    page = (tmp_path / "runs" / "one" / "report.html").read_text()
    assert "add-or-remove-one" in page
    assert sorted(path.suffix for path in (tmp_path / "runs" / "one" / "figures").iterdir()).count(".pdf") >= 4
    code, out, _ = tacit("compare", "runs/one", "runs/two", "-o", "both.html", "--figures", "pictures")
    assert code == 0
    assert "two" in (tmp_path / "both.html").read_text()
    assert list((tmp_path / "pictures").glob("*.png"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "nowhere"], "nowhere"),
        (["compare", "runs/one"], "at least two runs"),
        (["report", "."], "config.toml"),
    ],
)
def test_pages_of_what_is_no_run_are_refused(tacit, words, message):
    code, _, error = tacit(*words)
    assert code == 2
    assert message in " ".join(error.split())
