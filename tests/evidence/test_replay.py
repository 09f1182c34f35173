"""A run is replayed from its settings, seeds and public records: its plan, every snapshot, its checkpoint and its models."""

import shutil
from contextlib import closing
from dataclasses import replace

import pytest
from auditing import SETTINGS, failed, head_of, outcomes, play
from tampering import forge, read_events, relabelled

from tacit.models.hashing import models_file, models_sha256, read_models
from tacit.privacy import DurableLedger, Event, epsilon
from tacit.privacy.accounting import ceil_digits
from tacit.runs import RunFolder, Runner
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.config import RunConfig


def with_models(runs, factor, processor=None, checkpoint=True):
    """Keep other models than those that the seeds give, in all files, and maybe another processor."""
    folder = RunFolder.find(runs / "one")
    theta = read_models(folder.models_file.read_bytes()) * factor
    folder.models_file.write_bytes(models_file(theta))
    stated = {"models_sha256": models_sha256(theta)}
    if checkpoint:
        saved = Checkpoint.load(folder.checkpoint_file)
        replace(saved, tensors={**saved.tensors, "state.0": theta}).save(folder.checkpoint_file)

    def event(event):
        if event["event"] == "plan" and processor:
            return event | {"machine": event["machine"] | {"processor": processor}}
        return event | stated if event["event"] == "finish" else event

    forge(runs, "one", event=event, summary=lambda facts: facts | stated)


def test_models_that_the_seeds_do_not_give_are_found_in_the_same_environment(runs):
    with_models(runs, 1 + 1e-4)
    found = outcomes(runs, replay=True)["replay"]
    assert found.outcome == "fails"
    assert "replayed in the same environment, the models are different" in found.words


@pytest.mark.parametrize(
    ("factor", "outcome", "words"),
    [
        (1 + 1e-4, "holds", "but not to the bit, since processor differs"),
        (1.02, "fails", "models are 0.02 of their length from the recorded ones, but at most 0.01 is expected"),
    ],
)
def test_in_another_environment_a_replay_agrees_within_a_tolerance(runs, factor, outcome, words):
    with_models(runs, factor, processor="another")
    found = outcomes(runs, replay=True)["replay"]
    assert found.outcome == outcome
    assert words in found.words


def test_a_run_that_carries_rounding_on_is_not_called_false_in_another_environment(tmp_path):
    """DiNNO's fresh Adam takes signs of gradients: one that rounding turns changes all that follows."""
    play(tmp_path, algorithm="dinno", model="mlp", lr=0.2, rounds=24, evaluate_every=6)
    with_models(tmp_path, 1.05, processor="another")
    found = outcomes(tmp_path, replay=True)["replay"]
    assert found.outcome == "not checked"
    assert "this run amplifies rounding: from a start that is slightly different, models end" in found.words
    forge(tmp_path, "one", event=of_snapshot(6, bytes_sent=[1, 1, 1, 1]))
    assert "replay" in failed(tmp_path, replay=True), "bytes are the same on every machine"


def test_models_that_are_not_those_of_the_last_checkpoint_are_found(runs):
    with_models(runs, 1 + 1e-6, checkpoint=False)
    assert failed(runs) == {"models"}
    assert "the checkpoint after the last round holds different models" in outcomes(runs)["models"].words


def test_models_that_are_not_as_far_apart_as_in_the_last_snapshot_are_found(runs):
    """Also those of a release, which nobody can play again."""
    with_models(runs, 1.01)
    assert "apart, but the last snapshot states" in outcomes(runs)["models"].words


def of_snapshot(round, **changes):
    """Return a change of the snapshot after a round."""
    return lambda event: event | changes if event["event"] == "snapshot" and event["round"] == round else event


def without_snapshot(round):
    return lambda event: None if event["event"] == "snapshot" and event["round"] == round else event


# Looks of run "one" are after rounds 0, 3 and 6. Every one but the last is of a sample.
LOOKS = {
    "an accuracy": (of_snapshot(3, accuracy=[0.5] * 4), {"replay"}),
    "a loss": (of_snapshot(3, loss=[1.0] * 4), {"replay"}),
    "the distance": (of_snapshot(3, consensus_distance=0.01), {"replay"}),
    "no distance": (of_snapshot(3, consensus_distance=None), {"replay"}),
    "the start": (of_snapshot(0, loss=[2.0] * 4), {"plan", "replay"}),
    "the distance at the start": (of_snapshot(0, consensus_distance=0.1), {"plan", "replay"}),
    "queries": (of_snapshot(3, queries=2), {"plan", "replay"}),
    "bytes": (of_snapshot(3, bytes_sent=[9, 9, 9, 9]), {"plan", "replay"}),
    "how many were scored": (of_snapshot(3, scored=[182, 182]), {"plan", "replay"}),
    "a snapshot less": (without_snapshot(3), {"plan"}),
    "the first snapshot": (without_snapshot(0), {"plan"}),
}


@pytest.fixture(scope="session")
def watched(tmp_path_factory):
    """A seeded run, and a release for an ε, with snapshots after rounds 0, 3 and 6."""
    runs = tmp_path_factory.mktemp("watched") / "runs"
    play(runs, evaluate_every=3)
    play(runs, "released", evaluate_every=3, source="secret", noise_multiplier=None, epsilon=2.0)
    return runs


@pytest.fixture
def seen(watched, tmp_path):
    return shutil.copytree(watched, tmp_path / "runs")


@pytest.mark.parametrize("what", LOOKS)
def test_every_snapshot_of_a_seeded_run_is_compared_with_the_one_that_its_seeds_give(seen, what):
    """All hashes follow, and still no accuracy can be raised, no snapshot hidden and no byte left out."""
    change, where = LOOKS[what]
    assert failed(seen, replay=True) == set()
    forge(seen, "one", event=change)
    assert failed(seen, replay=True) == where


def test_a_snapshot_that_no_plan_has_is_found(seen):
    folder = seen / "one"
    stated = read_events(folder)
    later = [place for place, event in enumerate(stated) if event["event"] == "snapshot"][1]
    forge(seen, "one", event=lambda event: event | {"round": 4} if event == stated[later] else event)
    assert {"plan"} <= failed(seen, replay=True)


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (lambda event: event | {"loss": [value * (1 + 1e-5) for value in event["loss"]]}, "holds"),
        (lambda event: event | {"loss": [value * 0.95 for value in event["loss"]]}, "fails"),
        (lambda event: event | {"accuracy": [value + 0.03 for value in event["accuracy"]]}, "fails"),
        (lambda event: event | {"consensus_distance": event["consensus_distance"] * 0.5}, "fails"),
        (lambda event: event | {"bytes_sent": [value - 1 for value in event["bytes_sent"]]}, "fails"),
    ],
)
def test_in_another_environment_snapshots_agree_within_a_tolerance(seen, change, outcome):
    def event(event):
        if event["event"] == "plan":
            return event | {"machine": event["machine"] | {"processor": "another"}}
        return change(event) if event["event"] == "snapshot" and event["round"] == 3 else event

    forge(seen, "one", event=event)
    assert outcomes(seen, replay=True)["replay"].outcome == outcome


def test_of_two_snapshots_after_one_round_both_are_held_against_the_seeds(tmp_path):
    """A run that was stopped before its checkpoint plays a round twice, and tells of it twice."""
    config = RunConfig.of(SETTINGS | {"evaluate_every": 1, "checkpoint_every": 6})
    with Runner.start(tmp_path, "one", config) as runner, pytest.raises(KeyboardInterrupt):
        runner.play(stop=lambda: False, on_round=lambda runner: interrupt(runner.session.round == 4))
    with Runner.resume(tmp_path / "one") as runner:
        runner.play(stop=lambda: False)
    rounds = [event["round"] for event in read_events(tmp_path / "one") if event["event"] == "snapshot"]
    assert rounds.count(3) == 2
    assert failed(tmp_path, replay=True) == set()
    first = next(event for event in read_events(tmp_path / "one") if event.get("round") == 3)
    forge(tmp_path, "one", event=lambda event: event | {"loss": [1.0] * 4} if event == first else event)
    assert failed(tmp_path, replay=True) == {"replay"}


def interrupt(now):
    if now:
        raise KeyboardInterrupt


def test_of_a_release_the_plan_and_whatever_follows_from_it_are_rebuilt(seen):
    found = outcomes(seen, "released")
    assert found["plan"].outcome == "holds"
    for what, (change, where) in LOOKS.items():
        if "plan" in where:
            copy = shutil.copytree(seen, seen.with_name(what.replace(" ", "-")))
            forge(copy, "released", event=change)
            assert failed(copy, "released") == {"plan"}, what


def test_snapshots_of_a_release_before_its_last_need_an_earlier_head(seen):
    """Nothing that is public tells how good models were that nobody kept."""
    head = head_of(seen)
    forge(seen, "released", event=of_snapshot(3, accuracy=[0.9] * 4))
    assert failed(seen, "released") == set()
    assert failed(seen, "released", head=head) == {"earlier head"}


def test_noise_that_does_not_follow_from_the_epsilon_of_the_settings_is_found(seen):
    """Ten times the noise in plan and ledger, with every ε that follows: less than the settings ask for, and not what was done."""
    with closing(DurableLedger(seen / "ledger.sqlite", read_only=True)) as ledger:
        lines = ledger.account("released").lines
    sigmas = [10 * line.mechanism.noise_multiplier for line in lines]
    each = [
        epsilon([Event(sample_rate=line.mechanism.sample_rate, noise_multiplier=sigma, count=6)], delta=1e-5)
        for line, sigma in zip(lines, sigmas, strict=True)
    ]

    def noisy(line, sigma):
        return line | {"mechanism": line["mechanism"] | {"noise": {"kind": "gaussian", "multiplier": sigma}}}

    forge(
        seen,
        "released",
        event=lambda event: event | {"noise_multipliers": sigmas} if event["event"] == "plan" else event,
        row=lambda row: row | {"lines": list(map(noisy, row["lines"], sigmas))} if row["kind"] == "open" else row,
        summary=lambda facts: (
            facts
            | {
                "epsilon": ceil_digits(max(each)),
                "epsilon_per_agent": each,
                "epsilon_against": {"all": ceil_digits(max(each))},
            }
        ),
    )
    assert failed(seen, "released") == {"plan"}
    assert "noise_multipliers is" in outcomes(seen, "released")["plan"].words


def with_step_size(runs, name):
    """Another step size in the settings, of which neither plan nor ledger tell."""
    forge(runs, name, settings={"lr": 0.3})


def with_models_of_another(runs, name):
    """The models, scores and distances of run "one" in the place of a run's own."""
    one, folder = RunFolder.find(runs / "one"), RunFolder.find(runs / name)
    theta = read_models(one.models_file.read_bytes())
    folder.models_file.write_bytes(one.models_file.read_bytes())
    saved = Checkpoint.load(folder.checkpoint_file)
    replace(saved, tensors={**saved.tensors, "state.0": theta}).save(folder.checkpoint_file)
    last = [event for event in read_events(one.path) if event["event"] == "snapshot"][-1]
    measured = {key: last[key] for key in ("accuracy", "loss", "consensus_distance")}
    stated = {"models_sha256": models_sha256(theta)}
    scored = ("accuracy_mean", "accuracy_min", "accuracy_max", "accuracy_per_agent", "consensus_distance")
    facts = {key: one.summary()[key] for key in scored}

    def event(event):
        if event["event"] == "snapshot" and event["round"] == last["round"]:
            return event | measured
        return event | stated if event["event"] == "finish" else event

    forge(runs, name, event=event, summary=lambda kept: kept | stated | facts)


@pytest.mark.parametrize("change", [with_step_size, with_models_of_another])
def test_what_nothing_public_shows_about_a_release_needs_an_earlier_head(seen, change):
    head = head_of(seen)
    change(seen, "released")
    assert failed(seen, "released", replay=True) == set()
    assert failed(seen, "released", head=head) == {"earlier head"}


def test_a_step_size_that_a_seeded_run_did_not_have_is_found(seen):
    with_step_size(seen, "one")
    assert failed(seen, replay=True) == {"replay"}


def test_a_release_cannot_be_replayed_and_this_is_said(seen):
    found = outcomes(seen, "released", replay=True)["replay"]
    assert found.outcome == "not checked"
    assert found.words == (
        "lots and noise were secret, so nobody can replay the run; they do not come from the run's public seed"
    )


@pytest.mark.parametrize("source", ["seeded", "fast"])
def test_a_seeded_run_that_was_relabelled_as_a_release_is_found_by_its_own_seed(tmp_path, source):
    play(tmp_path, evaluate_every=3, source=source)
    relabelled(tmp_path)
    assert failed(tmp_path) == set()
    assert failed(tmp_path, replay=True) == {"replay"}
    assert "they were not secret, and this is not a release" in outcomes(tmp_path, replay=True)["replay"].words


def test_a_state_that_the_seeds_do_not_give_is_found_in_the_checkpoint(runs):
    path = runs / "one" / "checkpoint.safetensors"
    saved = Checkpoint.load(path)
    replace(saved, tensors={**saved.tensors, "state.1": saved.tensors["state.1"] + 1e-3}).save(path)
    forge(runs, "one")
    assert failed(runs) == set()
    assert failed(runs, replay=True) == {"replay"}


def test_a_seeded_run_that_was_stopped_is_played_again_as_far_as_it_came(tmp_path):
    config = RunConfig.of(SETTINGS | {"evaluate_every": 1})
    with Runner.start(tmp_path, "one", config) as runner:
        runner.play(stop=lambda: runner.session.round >= 4)
    found = outcomes(tmp_path, replay=True)
    assert "up to round 4, it gives the same 5 snapshots to the bit" in found["replay"].words
    assert {what for what, each in found.items() if each.outcome == "fails"} == set()
    forge(tmp_path, "one", event=of_snapshot(2, accuracy=[0.9] * 4))
    assert failed(tmp_path, replay=True) == {"replay"}
