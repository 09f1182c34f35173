"""`tacit audit noise`, `one-run` and `votes`: what they print and keep, what they refuse, and when the exit code is 1."""

import json
import os
import signal
from dataclasses import replace

import pytest
from invoking import answer, complaint, document, one_line, plant_noise
from typer.testing import CliRunner

from tacit.audit.attacks.world import World
from tacit.cli import app
from tacit.privacy import teachers

SURE = ("--confidence", 0.999999)
NOISE = ("audit", "noise", "--runs", 10, "--rounds", 6, "--false-alarm", 1e-6)
ONE_RUN = ("audit", "one-run", "--canaries", 60, "--records", 10, "--rounds", 2, *SURE)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.chance(1e-6)
def test_sound_noise_is_as_stated_and_the_report_is_kept(tmp_path):
    said = answer(*NOISE)
    for words in (
        "Noise and lots: dsgd · 3 agents · graph: complete · 6 rounds · 10 runs",
        "at least 0.",
        "size of the noise",
        "Noise and lots of all agents are as stated, as far as 10 runs show.",
        "This is not a proof.",
        "audits/noise-dsgd-1/audit.html",
    ):
        assert words in said
    folder = tmp_path / "audits" / "noise-dsgd-1"
    kept = json.loads((folder / "audit.json").read_text())
    assert [each["agent"] for each in kept["agents"]] == [0, 1, 2]
    assert kept["agents"][0]["epsilon"]["stated"] == pytest.approx(1, abs=1e-3)
    assert (kept["settings"]["observers"], kept["settings"]["runs"], kept["trials"]) == ([1, 2], 10, 10)
    assert "AS STATED" in (folder / "audit.html").read_text()


@pytest.mark.chance(1e-9)
def test_too_little_noise_is_not_as_stated(tmp_path, monkeypatch):
    plant_noise(0.5, monkeypatch)
    result = CliRunner().invoke(app, [*map(str, NOISE), "--folder", "bad"])
    assert result.exit_code == 1
    said = one_line(result.stdout)
    assert "Noise or lots are not as stated: the noise does not have the stated size" in said
    assert "does not have the stated size (agents 0–2)" in said
    kept = json.loads((tmp_path / "bad" / "audit.json").read_text())
    assert kept["agents"][0]["sigma"]["high"] < kept["agents"][0]["sigma"]["stated"]
    assert "✕ NOT AS STATED" in (tmp_path / "bad" / "audit.html").read_text()


@pytest.mark.chance(2e-6)
def test_on_a_ring_the_neighbours_of_agent_0_observe_or_those_who_are_named():
    ring = (*NOISE, "--graph", "ring", "--agents", 6)
    found = document(*ring)
    assert found["attack"]["observers"] == [1, 5]
    assert [each["agent"] for each in found["agents"]] == [0, 1, 5]
    said = one_line(answer(*ring))
    assert "Noise and lots of agents 0, 1, 5 (of 6) are as stated" in said
    assert "Not tested: 2–4, whose answers these observers do not see in full." in said
    assert "cannot reconstruct all answers of any other agent" in complaint(*ring, "--observer", 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--runs", 1), "runs is 1; it must be at least 2"),
        (("--rounds", 1), "each agent answers one query; at least 2 are needed"),
        (("--observer", 3), "observer is 3; it must be an agent, from 0 to 2"),
        (("--agents", 1), "agent 0 has no neighbours"),
        (("--false-alarm", 0), "false_alarm is 0.0"),
        (("--lot-size", 101), "101"),
        (("--folder", "file.txt"), "file.txt is not a folder"),
        (("--folder", "used"), "used holds another audit; choose another folder"),
    ],
)
def test_bad_input_to_noise_is_refused_with_a_sentence(options, message, tmp_path):
    (tmp_path / "file.txt").write_text("")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "scores.jsonl").write_text("")
    assert message in complaint(*NOISE, *options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.txt", "used"]


def test_a_folder_that_is_read_only_is_refused_before_anything_is_played(tmp_path, monkeypatch):
    monkeypatch.setattr(World, "play", None)
    monkeypatch.setattr("tacit.cli.terminal.output.os.access", lambda folder, _: str(folder) != ".")
    assert complaint(*NOISE) == "audits/audit.json: cannot be written, because . is read-only"
    assert "cannot be written, because . is read-only" in complaint(*NOISE, "--folder", "new")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("mishap", "said"),
    [
        (OSError(28, "No space left on device", "audit.json"), "error: audit.json: No space left on device"),
        (MemoryError("8 GB"), "error: this does not fit into memory: 8 GB"),
    ],
)
def test_a_mishap_does_not_end_with_the_exit_code_of_a_broken_claim(mishap, said, monkeypatch):
    def fail(*args, **options):
        raise mishap

    monkeypatch.setattr(World, "play", fail)
    result = CliRunner().invoke(app, [str(word) for word in NOISE])
    assert (result.exit_code, one_line(result.stderr)) == (2, said)


def test_a_stop_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(World, "play", lambda *args, **options: os.kill(os.getpid(), signal.SIGINT))
    result = CliRunner().invoke(app, [str(word) for word in NOISE])
    assert result.exit_code == 130
    assert one_line(result.stderr) == "stopped; nothing is kept of an incomplete audit"
    assert not list(tmp_path.iterdir())


@pytest.mark.chance(2e-6)
def test_one_run_guesses_canaries_and_bounds_epsilon(tmp_path):
    found = document(*ONE_RUN, "--seed", 3)
    assert found["verdict"] == "no violation found"
    assert (found["outcome"]["canaries"], found["outcome"]["guesses"]) == (60, 20)
    assert found["claimed"]["epsilon"] == pytest.approx(8, rel=1e-3)
    assert found["settings"]["seed"] == 3
    assert len(found["scores"]) == len(found["included"]) == 60
    assert found["roc"]["score"]["hits"][-1] == 1
    assert json.loads((tmp_path / "audits" / "one-run-dsgd-1" / "audit.json").read_text()) == found
    said = answer(*ONE_RUN, "--guesses", 30)
    for words in ("60, each in or out by a coin", "30, the surest", "any fault  ε ≥", "No violation found."):
        assert words in said
    assert "one-run-dsgd-2/audit.html" in said


@pytest.mark.chance(1e-9)
def test_without_noise_one_run_breaks_the_claim(tmp_path, monkeypatch):
    """Without noise every guess is right."""
    plant_noise(1e-9, monkeypatch)
    result = CliRunner().invoke(app, [*map(str, ONE_RUN), "--epsilon", "1", "--confidence", "0.95", "--folder", "bad"])
    assert result.exit_code == 1
    assert "20 (100.0" in result.stdout
    assert "The claim of ε = 1 is broken" in one_line(result.stdout)
    assert "✕ BROKEN" in (tmp_path / "bad" / "audit.html").read_text()


@pytest.mark.chance(1e-6)
@pytest.mark.parametrize("sees", ["answers", "models"])
def test_one_run_on_images_has_canaries_with_wrong_labels(sees):
    images = ("audit", "one-run", "--dataset", "digits", "--rounds", 2, "--algorithm", "dsgt", *SURE)
    said = answer(*images, "--sees", sees)
    assert "Canaries in one run: dsgt on digits · 3 agents · graph: complete · 2 rounds" in said
    assert "200, each in or out by a coin" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--guesses", 61), "guesses is 61; it must lie between 0 and canaries=60"),
        (("--guesses", 0), "guesses is 0; it must be at least 1"),
        (("--canaries", 1), "canaries is 1; it must be at least 2"),
        (("--sample-rate", 1.5), "sample rate is 1.5; it must be above 0 and at most 1"),
        (("--confidence", 1), "confidence is 1.0"),
        (("--sees", "model"), "--sees is 'model'; it must be one of answers, models; did you mean 'models'?"),
        (("--data-dir", "."), "--data-dir is an option of --dataset"),
        (("--dataset", "digit"), "unknown data set 'digit'; did you mean 'digits'?"),
        (("--dataset", "digits", "--canaries", 5000), "30 records and 5,000 canaries need more"),
    ],
)
def test_bad_input_to_one_run_is_refused_with_a_sentence(options, message, tmp_path):
    assert message in complaint(*ONE_RUN, *options)
    assert not list(tmp_path.iterdir())


@pytest.mark.chance(1e-6)
def test_masks_are_tested_with_their_covariance():
    options = ("--noise", "cancelling", "--mask-ratio", 2, "--curious", 1)
    found = document(*NOISE, *options)
    assert found["verdict"] == "as stated"
    assert "sum" in {each["name"] for each in found["checks"]}
    assert "Answers contain masks" in found["attack"]["saw"]
    assert "--keys means nothing without --noise cancelling" in complaint(*NOISE, "--keys", "graph")


@pytest.mark.chance(2e-6)
def test_a_coalition_is_attacked_with_the_epsilon_against_so_many():
    small = ("--agents", 4, "--graph", "ring", "--keys", "graph", "--mask-ratio", 2, "--rounds", 4, "--records", 10)
    attack = ("audit", "coalition", *small, "--lot-size", 2, "--runs", 10, "--workers", 1, *SURE)
    one, two = (document(*attack, *more) for more in ((), ("--observer", 1, "--observer", 3)))
    assert (one["attack"]["observers"], one["attack"]["against"]) == ([1], "any one other agent")
    assert one["claimed"]["epsilon"] == pytest.approx(1, abs=1e-3)
    assert two["claimed"]["epsilon"] > 1.5
    assert two["attack"]["against"] == "any 2 other agents together"
    alone = "They know all masks of agent 0, so only its own noise protects it from them."
    assert [alone in each["attack"]["saw"] for each in (one, two)] == [False, True], "agent 0 is between 1 and 3"
    assert "curious is 0; it must be at least 1" in complaint(*attack, "--curious", 0)


@pytest.mark.chance(1e-6)
def test_votes_of_teachers_are_attacked_and_a_check_without_noise_is_found(tmp_path, monkeypatch):
    votes = ("audit", "votes", "--runs", 200, *SURE)
    said = answer(*votes)
    assert "Votes of teachers: pate · 10 teachers · 20 public records · 8 answers" in said
    assert "audits/votes-pate-1/audit.html" in said
    sound = teachers.answer
    monkeypatch.setattr(
        teachers, "answer", lambda counts, noise, stream: sound(counts, replace(noise, threshold_noise=1e-3), stream)
    )
    assert CliRunner().invoke(app, ["audit", "votes", "--runs", "300", "--folder", "bad"]).exit_code == 1
    assert json.loads((tmp_path / "bad" / "audit.json").read_text())["verdict"] == "broken"
    assert "answers is 30, but only 20 records are asked about" in complaint(*votes, "--answers", 30)
