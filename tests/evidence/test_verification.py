"""An archive is verified: what holds, what is found in it alone, and what needs an earlier head."""

import json
import shutil
from contextlib import closing

import pytest
import torch
from auditing import failed, head_of, not_held, outcomes
from tampering import edit_log, forge, read_log, relabelled, state_heads, write_log

from tacit.evidence.heads import make_statement
from tacit.evidence.signatures import new_key, read_signature, save, sign
from tacit.models.hashing import models_file, read_models
from tacit.privacy import DurableLedger, Event, epsilon
from tacit.privacy.accounting import ceil_digits
from tacit.runs import RunFolder, Runner
from tacit.runs.checks import check_event
from tacit.runs.config import RunConfig


def test_a_run_that_was_left_alone_holds_to_the_bit(played):
    found = outcomes(played, head=head_of(played), replay=True)
    assert set(not_held(found)) == set()
    assert "the same models and the same" in found["replay"].words
    lines = len(RunFolder.find(played / "one").events())
    assert f"it covers 12 of the 12 rows of this run and {lines} of its {lines} events" in found["earlier head"].words
    assert "182 validation records" in found["scores on validation"].words
    assert "against everybody else together" in found["ε"].words
    assert "2 runs on these records" in found["ε of all runs"].words


def test_every_epsilon_is_derived_from_the_rows(played):
    found = outcomes(played)
    with closing(DurableLedger(played / "ledger.sqlite", read_only=True)) as ledger:
        events = [line.event(6) for line in ledger.account("one").lines]
    most = max(epsilon([event], delta=1e-5) for event in events)
    assert f"ε={ceil_digits(most):.4g} per record at δ=1e-05" in found["ε"].words


def test_without_an_earlier_head_it_is_said_what_cannot_be_known(played):
    found = outcomes(played)["earlier head"]
    assert found.outcome == "not checked"
    assert "may have changed all of them consistently" in found.words


def more_noise(runs):
    """Ten times the noise, in the settings, the plan, the record and every stated ε."""
    with closing(DurableLedger(runs / "ledger.sqlite", read_only=True)) as ledger:
        rates = [line.mechanism.sample_rate for line in ledger.account("one").lines]
    events = [{"noise_multiplier": 30.0, "sample_rate": rate, "count": 6} for rate in rates]
    each = [epsilon([Event(**event)], delta=1e-5) for event in events]

    def row(row):
        if row["kind"] != "open":
            return row
        noise = {"kind": "gaussian", "multiplier": 30.0}
        return row | {"lines": [line | {"mechanism": line["mechanism"] | {"noise": noise}} for line in row["lines"]]}

    forge(
        runs,
        "one",
        settings={"noise_multiplier": 30.0},
        event=lambda event: event | {"noise_multipliers": [30.0] * 4} if event["event"] == "plan" else event,
        row=row,
        summary=lambda facts: (
            facts
            | {
                "epsilon": ceil_digits(max(each)),
                "epsilon_per_agent": each,
                "epsilon_against": {"all": ceil_digits(max(each))},
            }
        ),
    )


def raised(runs):
    """Ten percent more accuracy at every snapshot."""

    def better(values):
        return [min(1.0, value + 0.1) for value in values]

    def event(event):
        return event | {"accuracy": better(event["accuracy"])} if event["event"] == "snapshot" else event

    def summary(facts):
        each = better(facts["accuracy_per_agent"])
        means = {"accuracy_mean": sum(each) / 4, "accuracy_min": min(each), "accuracy_max": max(each)}
        return facts | {"accuracy_per_agent": each} | means

    forge(runs, "one", event=event, summary=summary)


def without_checkpoints(runs):
    """As if none had ever been saved."""
    (runs / "one" / "checkpoint.safetensors").unlink()
    forge(runs, "one", event=lambda event: None if event["event"] == "checkpoint" else event)


def deleted(runs):
    """The other run never was; its rows are gone and what follows is numbered anew."""
    shutil.rmtree(runs / "two")
    edit_log(runs / "ledger.sqlite", lambda row: None if row.get("account") == 2 else row)
    state_heads(runs)


def deleted_before(runs):
    """The same for the first of two runs, seen by whoever gets the second."""
    shutil.rmtree(runs / "one")
    rows = [row for row in read_log(runs / "ledger.sqlite") if row.get("account") != 1]
    write_log(runs / "ledger.sqlite", [row | {"account": 1} for row in rows])
    state_heads(runs)


# What is found in an archive alone, without a replay; what no set names needs an earlier head.
FORGED = {
    "more noise": (more_noise, "one", set()),
    "a seeded run as a release": (relabelled, "one", set()),  # a replay finds it, see below
    "raised accuracies": (
        raised,
        "one",
        {"scores on validation", "plan"},
    ),  # found if the public records are available
    "a deleted checkpoint": (without_checkpoints, "one", {"checkpoint"}),
    "a deleted run": (deleted, "one", set()),
    "a run deleted before another": (deleted_before, "two", set()),
}


@pytest.mark.parametrize("how", FORGED)
def test_consistent_edits_of_all_files_are_found_by_whoever_holds_an_earlier_head(runs, how):
    change, name, seen = FORGED[how]
    head = head_of(runs)
    assert failed(runs, name, head=head) == set()
    change(runs)
    assert failed(runs, name) == seen, "all hashes follow: without a head, nothing more can be known"
    assert failed(runs, name, head=head) == {"earlier head", *seen}


@pytest.mark.parametrize("how", FORGED)
def test_consistent_edits_are_found_by_a_signature(runs, how, tmp_path):
    change, name, seen = FORGED[how]
    new_key(tmp_path / "key")
    save(sign(make_statement(runs, RunFolder.find(runs / name)), tmp_path / "key"), tmp_path / "signature.json")
    signature = read_signature(tmp_path / "signature.json")
    assert failed(runs, name, signature=signature) == set()
    change(runs)
    assert failed(runs, name, signature=signature) == {"earlier head", *seen}


def test_an_earlier_head_stays_good_while_runs_are_added(played, runs):
    """The head after the first run is in the ledger that has two."""
    closed = next(place for place, row in enumerate(read_log(runs / "ledger.sqlite"), 1) if row["kind"] == "close")
    write_log(runs / "ledger.sqlite", read_log(runs / "ledger.sqlite")[:closed])
    earlier = head_of(runs)
    assert outcomes(played, head=earlier)["earlier head"].outcome == "holds"
    covered = outcomes(played, "two", head=earlier)["earlier head"]
    assert covered.outcome == "holds"
    assert "it covers 0 of the" in covered.words, "it is not evidence of a run that came later"


def test_the_head_of_the_events_is_an_earlier_head_too(runs):
    head = RunFolder.find(runs / "one").events_head
    assert failed(runs, head=head) == set()
    more_noise(runs)
    assert failed(runs, head=head) == {"earlier head"}


ALONE = {
    "clip": ({"clips": [0.5] * 4}, {"settings", "record"}),
    "lot": ({"lot_sizes": [48.0] * 4}, {"settings", "record", "summary"}),
    "q": ({"sample_rates": [0.001] * 4}, {"settings", "record"}),
    "σ": ({"noise_multipliers": [30.0] * 4}, {"settings", "record"}),
    "queries": ({"queries": 80}, {"settings", "record", "queries"}),
    "release": ({"release": True}, {"settings", "record", "summary"}),
    "rounds": ({"rounds": 7}, {"settings"}),
    "owners": ({"owners": ["a", "b", "c", "d"]}, {"record", "plan"}),
    "counts": ({"counts": [[1] * 10] * 4}, {"plan"}),
    "schema": ({"schema": {}}, {"plan"}),
    "links": ({"edges": [[0, 1], [1, 2], [2, 3]]}, {"plan"}),
    "weights": ({"weights": [0.3] * 4}, {"plan"}),
    "parameters": ({"params": 651}, {"models", "plan"}),
    "sizes": ({"sizes": [10_000] * 4}, {"settings"}),
    "δ": ({"delta": 0.5}, {"settings", "summary"}),
    "token": ({"token": "0" * 16}, {"record", "checkpoint"}),
    "another rule": ({"algorithm": "dsgd"}, {"settings"}),
}


@pytest.mark.parametrize("field", ALONE)
def test_a_plan_that_alone_says_otherwise_is_found_without_a_head(runs, field):
    change, where = ALONE[field]
    forge(runs, "one", event=lambda event: event | change if event["event"] == "plan" else event)
    assert where <= failed(runs) <= where | {"ε"}


STATED = {
    "ε": (lambda facts: facts | {"epsilon": 0.1}, {"ε", "summary"}),
    "one owner's ε": (
        lambda facts: facts | {"epsilon_per_agent": [0.1, *facts["epsilon_per_agent"][1:]]},
        {"ε", "summary"},
    ),
    "mean accuracy": (lambda facts: facts | {"accuracy_mean": 0.99}, {"summary"}),
    "an agent's accuracy": (lambda facts: facts | {"accuracy_per_agent": [0.99] * 4}, {"summary"}),
    "release": (lambda facts: facts | {"release": True}, {"summary"}),
    "hash of models": (lambda facts: facts | {"models_sha256": "0" * 64}, {"summary"}),
}


@pytest.mark.parametrize("what", STATED)
def test_a_summary_that_says_otherwise_is_found(runs, what):
    change, where = STATED[what]
    forge(runs, "one", summary=change)
    assert failed(runs) == where


def test_other_models_are_found(runs):
    folder = RunFolder.find(runs / "one")
    theta = read_models(folder.models_file.read_bytes())
    theta[2, 5] = torch.nextafter(theta[2, 5], torch.tensor(9.0))
    folder.models_file.write_bytes(models_file(theta))
    assert failed(runs) == {"models"}
    folder.models_file.unlink()
    assert failed(runs) == {"models"}


def test_a_run_that_was_stopped_is_verified_as_far_as_it_came(tmp_path):
    config = RunConfig.of({"agents": 4, "noise_multiplier": 3.0, "lot_size": 24, "rounds": 6})
    with Runner.start(tmp_path, "one", config) as runner:
        runner.play(stop=lambda: runner.session.round >= 3)
    found = outcomes(tmp_path)
    assert {what for what, each in found.items() if each.outcome == "fails"} == set()
    assert {what for what, each in found.items() if each.outcome == "not checked"} == {
        "earlier head",
        "models",
        "scores",
        "replay",
    }
    assert "3 of 8 on record" in found["queries"].words
    (tmp_path / "one" / "checkpoint.safetensors").unlink()
    assert failed(tmp_path) == {"checkpoint"}


def test_a_run_without_privacy_is_verified_and_replayed(tmp_path):
    config = RunConfig.of({"agents": 4, "private": False, "lot_size": 24, "rounds": 3})
    with Runner.start(tmp_path, "one", config) as runner:
        runner.play(stop=lambda: False)
    found = outcomes(tmp_path, replay=True, head=head_of(tmp_path))
    assert set(not_held(found)) == set()
    assert "ε = ∞" in found["ε"].words


def test_the_summary_has_the_heads_that_the_run_ended_with(played):
    summary = json.loads((played / "one" / "summary.json").read_text())
    rows = read_log(played / "ledger.sqlite")
    last = max(place for place, row in enumerate(rows, 1) if row.get("account") == 1)
    assert summary["heads"]["ledger_rows"] == last
    assert rows[last - 1]["kind"] == "close"
    assert summary["heads"]["events"] == RunFolder.find(played / "one").events_head


def test_a_check_of_the_settings_after_the_end_changes_nothing(runs):
    folder = RunFolder.find(runs / "one")
    found = {"verdict": "no fault found", "failed": [], "false_alarm": 1e-4}
    folder.log(check_event(folder.config(), found))
    assert failed(runs, head=head_of(runs)) == set()
    folder.log(folder.events().snapshots[-1])
    assert failed(runs) == {"heads"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("consensus_distance", 0.0),
        ("observer", "nobody"),
        ("unit", "patient"),
        ("algorithm", "dinno"),
        ("dataset", "mnist"),
        ("award", "best paper"),
    ],
)
def test_every_field_of_the_summary_is_compared_with_something(runs, field, value):
    path = runs / "one" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    assert "summary" in failed(runs)
