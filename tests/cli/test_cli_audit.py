"""`tacit audit`: what it prints and keeps, how it resumes, what it refuses, and when its exit code is 1. Sound systems draw their noise in secret."""

import copy
import json
import os
import shlex
import shutil
import signal
from pathlib import Path

import pytest
from audit_commands import BLANK, MEMBERSHIP, NEIGHBOR, SURE
from full_disk import files_end_at
from invoking import answer, complaint, document, one_line, plant_noise
from typer.testing import CliRunner

from tacit.audit.attacks.world import World
from tacit.cli import app
from tacit.cli.audit import neighbor as neighbor_audit
from tacit.cli.audit.printing import print_audit
from tacit.experiments import attack
from tacit.io.files import finite

pytestmark = pytest.mark.usefixtures("empty_folder")
IN_ONE_BATCH = ("--batch", 80)
KEYS = {
    "attack",
    "claimed",
    "confidence",
    "runs_per_side",
    "lower_bound",
    "lower_bound_whatever",
    "within_reach",
    "verdict",
    "thresholds",
    "roc",
    "settings",
}


def play_once(tmp_path_factory, *args):
    folder = tmp_path_factory.mktemp("played")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder, document(*args)


@pytest.fixture(scope="module")
def neighbor(tmp_path_factory):
    """A folder in which one audit was played, and its document."""
    return play_once(tmp_path_factory, *NEIGHBOR)


@pytest.fixture(scope="module")
def membership(tmp_path_factory):
    """The same of an audit of every algorithm, in `all`."""
    return play_once(tmp_path_factory, *MEMBERSHIP, "--algorithm", "all", "--folder", "all")


@pytest.fixture
def played(neighbor, tmp_path):
    """Return the document of an audit that is in the folder `one`, and may be spoilt."""
    shutil.copytree(neighbor[0] / "audits" / "neighbor-dsgd-1", tmp_path / "one")
    return copy.deepcopy(neighbor[1])


@pytest.mark.chance(1e-6)
def test_an_audit_is_one_document_and_is_kept(neighbor):
    folder, found = neighbor
    assert set(found) == KEYS
    assert found["verdict"] == "no violation found"
    assert found["claimed"]["epsilon"] == pytest.approx(1, abs=1e-3)
    assert (found["runs_per_side"], found["confidence"]) == (40, SURE[1])
    assert {each["statistic"] for each in found["thresholds"]} >= {"likelihood", "variation"}
    attack = found["attack"]
    assert (attack["target"], attack["observers"], attack["queries"], attack["exact_answers"]) == (0, [1], 5, 5)
    assert attack["share_seen"] == pytest.approx(1)
    folder = folder / "audits" / "neighbor-dsgd-1"
    assert json.loads((folder / "audit.json").read_text()) == found
    assert "NO VIOLATION FOUND" in (folder / "audit.html").read_text()


@pytest.mark.chance(1e-6)
@pytest.mark.parametrize(
    ("options", "against", "statistic", "about"),
    [
        (
            ("--noise", "cancelling", "--curious", 2, "--agents", 5, "--mask-ratio", 2),
            "any 2 other agents together",
            "likelihood",
            "masks: complete keys",
        ),
        (("--bands", 2), None, "bands", "2 bands"),
        pytest.param(
            ("--noise", "discrete", "--rounding-bits", 3),
            None,
            "likelihood",
            "discrete noise",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["masks", "bands", "discrete"],
)
def test_noise_of_every_kind_is_attacked_and_claimed_as_it_is(options, against, statistic, about):
    found = document("audit", "neighbor", "--runs", 12, "--rounds", 4, "--workers", 1, *SURE, *options)
    assert found["verdict"] == "no violation found"
    assert found["claimed"]["epsilon"] == pytest.approx(1, abs=1e-2)
    assert found["attack"].get("against") == against
    assert len(found["attack"]["observers"]) == (2 if against else 1)
    assert about in found["attack"]["about"]
    assert statistic in {each["statistic"] for each in found["thresholds"]}
    event = found["claimed"]["event"]
    assert (event["count"], event["cyclic"], event["discrete"]) == (
        2 if "--bands" in options else 4,
        "--bands" in options,
        "discrete" in options,
    )
    assert "tradeoff" in {bound["method"] for each in found["thresholds"] for bound in each["bounds"]}


@pytest.mark.chance(1e-6)
def test_text_has_claim_thresholds_and_verdict():
    said = answer(*NEIGHBOR, *IN_ONE_BATCH, "--algorithm", "dsgt", "--quiet")
    for words in (
        "Curious neighbour: dsgt · 3 agents · graph: complete · 5 rounds",
        "ε = 1 at δ = 0.01, add-or-remove-one adjacency",
        "of the 5 answers of agent 0; 5 exactly",
        "/40",
        "any fault",
        "No violation found.",
        "This does not prove the claim",
        "audits/neighbor-dsgt-1/audit.html",
    ):
        assert words in said


def test_the_table_of_a_large_audit_fits_80_columns(played, monkeypatch, capsys):
    for each in played["thresholds"]:
        each["outcomes"] = {"absent": 50_000, "false_alarms": 20_000, "present": 50_000, "misses": 20_000}
    monkeypatch.setenv("COLUMNS", "80")
    print_audit(played, Path("large"))
    said = capsys.readouterr().out
    assert "20,000/50,000" in said
    assert "…" not in said


@pytest.mark.chance(1e-6)
def test_progress_is_reported_in_lines_and_a_folder_is_never_used_twice(tmp_path):
    (tmp_path / "audits" / "neighbor-dsgd-1").mkdir(parents=True)
    result = CliRunner().invoke(app, [str(word) for word in NEIGHBOR])
    assert result.exit_code == 0
    assert result.stdout.endswith("Page: audits/neighbor-dsgd-2/audit.html\n")
    lines = result.stderr.splitlines()
    assert lines[0].startswith("neighbor-dsgd: 20 of 80 runs, about ")
    assert lines[0].endswith("left")
    assert lines[-1] == "neighbor-dsgd: 80 of 80 runs"


@pytest.mark.chance(1e-6)
def test_what_is_there_is_not_played_again(played, tmp_path, monkeypatch):
    scores = (tmp_path / "one" / "scores.jsonl").read_bytes()
    batches = played_batches(monkeypatch)
    assert document(*NEIGHBOR, "--folder", "one") == played
    assert batches == [1]  # the run that every audit begins with, to see whether it can be played
    assert (tmp_path / "one" / "scores.jsonl").read_bytes() == scores
    assert document(*NEIGHBOR, "--folder", "one", "--confidence", 0.9999999)["confidence"] == 0.9999999


def test_the_folder_of_a_single_audit_is_refused(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "audit.json").write_text("{}")
    assert "one holds another audit; choose another folder" in complaint(*NEIGHBOR, "--folder", "one")
    assert (tmp_path / "one" / "audit.json").read_text() == "{}"


def test_other_settings_in_the_same_folder_are_refused_by_name(played, tmp_path):
    kept = (tmp_path / "one" / "scores.jsonl").read_bytes()
    said = complaint(*NEIGHBOR, "--folder", "one", "--lr", 0.5, "--epsilon", 2)
    assert "one/scores.jsonl holds scores of another attack (epsilon, lr differ)" in said
    assert "(runs differ)" in complaint(*NEIGHBOR, "--folder", "one", "--runs", 60)
    assert (tmp_path / "one" / "scores.jsonl").read_bytes() == kept


@pytest.mark.chance(1e-6)
def test_a_stop_keeps_batches_and_says_how_to_resume(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        played = played_batches(patch, stop_at=4)
        args = [*NEIGHBOR, "--observer", 2, "--observer", 1, "--folder", "a b"]
        result = CliRunner().invoke(app, [str(word) for word in args], prog_name="tacit")
    assert result.exit_code == 130
    assert played == [1, 20, 20, 20]
    assert "stopped; 40 of 80 runs are kept. Resume with: tacit audit neighbor " in one_line(result.stderr)
    again = shlex.split(one_line(result.stderr).partition("Resume with: tacit ")[2])
    played = played_batches(monkeypatch)
    assert CliRunner().invoke(app, again).exit_code == 0
    assert played == [1, 20, 20]
    assert json.loads((tmp_path / "a b" / "audit.json").read_text())["attack"]["observers"] == [1, 2]


@pytest.mark.chance(1e-6)
def test_a_full_disk_keeps_batches_and_says_how_to_resume(neighbor):
    facts, first, second, *_ = (
        (neighbor[0] / "audits" / "neighbor-dsgd-1" / "scores.jsonl").read_bytes().splitlines(keepends=True)
    )
    with files_end_at(len(facts + first) + len(second) // 2):
        result = CliRunner().invoke(app, [str(word) for word in (*NEIGHBOR, "--folder", "one")])
    said = one_line(result.stderr)
    assert result.exit_code == 2  # 1 would say that a claim is broken
    assert "one/scores.jsonl: cannot be written: " in said
    assert "; 20 of 80 runs are kept. Resume with: tacit audit neighbor " in said
    assert document(*NEIGHBOR, "--folder", "one")["verdict"] == "no violation found"


def test_a_stop_before_the_first_run_leaves_nothing(tmp_path, monkeypatch):
    played_batches(monkeypatch, stop_at=1)
    result = CliRunner().invoke(app, [str(word) for word in NEIGHBOR])
    assert (result.exit_code, result.stderr) == (130, "stopped before the first run\n")
    assert not list(tmp_path.iterdir())


def played_batches(monkeypatch, stop_at=0):
    """Write down how many runs each batch has, and interrupt one of them."""
    played, play = [], World.play

    def watched(world, trials, **options):
        played.append(trials)
        if len(played) == stop_at:
            os.kill(os.getpid(), signal.SIGINT)
        return play(world, trials, **options)

    monkeypatch.setattr(World, "play", watched)
    return played


@pytest.mark.chance(1e-6)
def test_a_system_without_noise_is_broken_and_the_exit_code_says_so(tmp_path, monkeypatch):
    plant_noise(1e-9, monkeypatch)
    more = ("--runs", "80", "--batch", "80", "--rounds", "10", "--confidence", "0.95", "-q", "--folder", "bad")
    result = CliRunner().invoke(app, [*map(str, NEIGHBOR), *more])
    assert result.exit_code == 1
    assert "The claim of ε = 1 is broken: ε is at least " in one_line(result.stdout)
    assert json.loads((tmp_path / "bad" / "audit.json").read_text())["verdict"] == "broken"
    assert "BROKEN" in (tmp_path / "bad" / "audit.html").read_text()


@pytest.mark.chance(1e-6)
@pytest.mark.parametrize(
    "options",
    [
        ("--algorithm", "dinno"),
        ("--algorithm", "dinno", "--adam"),
        ("--algorithm", "dinno", "--plain", "--inner-steps", 2),
        ("--graph", "ring", "--agents", 5, "--target", 3),
    ],
)
def test_rules_and_graphs_can_be_chosen(options):
    found = document(*NEIGHBOR, *IN_ONE_BATCH, *options)
    assert found["attack"]["target"] not in found["attack"]["observers"]
    assert found["attack"]["queries"] == (10 if "--inner-steps" in options else 5)
    assert (found["attack"]["share_seen"] is None) == ("--adam" in options)


@pytest.mark.chance(1e-6)
def test_a_graph_in_a_file_has_its_own_number_of_agents(tmp_path):
    (tmp_path / "graph.txt").write_text("0 1\n1 2\n2 3\n")
    found = document(*NEIGHBOR, *IN_ONE_BATCH, "--graph", "graph.txt", "--target", 3)
    assert (found["attack"]["agents"], found["attack"]["observers"]) == (4, [2])
    assert found["settings"]["links"] == [[0, 1], [1, 2], [2, 3]]


@pytest.mark.chance(1e-6)
def test_a_blank_image_is_a_natural_record(tmp_path):
    blank = (*NEIGHBOR[:2], *BLANK, "--runs", 10, "--rounds", 3, "--workers", 1, *SURE)
    found = document(*blank)
    assert (found["attack"]["observers"], found["attack"]["exact_answers"]) == ([1], 3)
    assert found["attack"]["dataset"] == "digits, 300 images"
    assert (found["settings"]["canary"], found["settings"]["batch"]) == ("blank", 10)
    assert "blank image labelled 0" in (tmp_path / "audits" / "neighbor-dsgd-1" / "audit.html").read_text()


def test_the_batch_of_natural_records_is_limited_by_the_memory_of_their_messages(monkeypatch):
    monkeypatch.setattr(neighbor_audit, "_MESSAGES", 3e6)
    (case,) = neighbor_audit.NeighborAudit(canary="blank", dataset="digits", rounds=10, runs=10, workers=20).cases()
    assert case.most == int(3e6 / (8 * 10 * 3 * 1560))


@pytest.mark.chance(2e-6)
def test_membership_audits_one_algorithm_or_all(membership, monkeypatch):
    found = document(*MEMBERSHIP)
    assert set(found) == KEYS
    assert found["attack"]["dataset"] == "digits, 300 images"
    folder, both = membership
    assert list(both["audits"]) == ["sgd", "dsgd", "dsgt", "dinno"]
    for name, each in both["audits"].items():
        assert json.loads((folder / "all" / name / "audit.json").read_text()) == each
    monkeypatch.chdir(folder)
    said = answer(*MEMBERSHIP, "--algorithm", "all", "--folder", "all", "--quiet")
    # So that all hold together.
    assert [1 - each["confidence"] for each in both["audits"].values()] == pytest.approx([1e-6 / 4] * 4)
    printed = one_line(said.replace("\u202f", " "))
    assert "All lower bounds together hold at 99.9999 % confidence, and so do all intervals together." in printed
    assert "counted on the other 2 × 10" in printed
    assert said.count("no violation found") == 4


def test_the_experiment_and_the_command_prove_the_same_of_the_same_scores(membership, monkeypatch):
    monkeypatch.setattr(attack, "_CONFIDENCE", SURE[1])
    folder, found = membership[0], membership[1]["audits"]
    rows = []
    for name, each in found.items():
        event = each["claimed"]["event"]
        fixed = {"algorithm": name, "delta": 0.01, "queries": event["count"]}
        fixed |= {key: event[key] for key in ("sample_rate", "noise_multiplier")}
        for line in (folder / "all" / name / "scores.jsonl").read_text().splitlines()[1:]:
            kept = json.loads(line)
            rows += [{**fixed, "present": kept["present"], "score": score} for score in kept["scores"]["loss"]]
    for name, each in found.items():
        proven = finite(attack.judge_scores(rows, name).to_json())
        assert {key: each[key] for key in proven} == json.loads(json.dumps(proven))
