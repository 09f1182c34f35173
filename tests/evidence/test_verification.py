"""An archive is verified: what holds, what is found in it alone, and what needs an earlier head."""

import json
import shutil
from contextlib import closing

import pytest
import torch
from auditing import failed, head_of, outcomes, play
from tampering import edit_log, forge, gaussians, read_log, relabelled, state_heads, write_log

from tacit.errors import PrivacyError
from tacit.evidence.archive import pack, sealed
from tacit.evidence.heads import make_statement
from tacit.evidence.signatures import new_key, read_signature, save, sign
from tacit.evidence.verification import Log, verify
from tacit.io import chains
from tacit.models.hashing import models_file, read_models
from tacit.privacy import Budget, DurableLedger, Event, epsilon
from tacit.privacy.accounting import ceil_digits
from tacit.runs import RunFolder, Runner
from tacit.runs.checks import check_event
from tacit.runs.config import RunConfig


def test_a_run_that_was_left_alone_holds_to_the_bit(played):
    found = outcomes(played, head=head_of(played), replay=True)
    assert {what for what, each in found.items() if each.outcome != "holds"} == set()
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
    "another rule": ({"algorithm": "DSGD"}, {"settings"}),
}


@pytest.mark.parametrize("field", ALONE)
def test_a_plan_that_alone_says_otherwise_is_found_without_a_head(runs, field):
    change, where = ALONE[field]
    forge(runs, "one", event=lambda event: event | change if event["event"] == "plan" else event)
    assert where <= failed(runs) <= where | {"ε"}


STATED = {
    "ε": (lambda facts: facts | {"epsilon": 0.1}, "ε"),
    "one owner's ε": (lambda facts: facts | {"epsilon_per_agent": [0.1, *facts["epsilon_per_agent"][1:]]}, "ε"),
    "mean accuracy": (lambda facts: facts | {"accuracy_mean": 0.99}, "summary"),
    "an agent's accuracy": (lambda facts: facts | {"accuracy_per_agent": [0.99] * 4}, "summary"),
    "release": (lambda facts: facts | {"release": True}, "summary"),
    "hash of models": (lambda facts: facts | {"models_sha256": "0" * 64}, "summary"),
}


@pytest.mark.parametrize("what", STATED)
def test_a_summary_that_says_otherwise_is_found(runs, what):
    change, where = STATED[what]
    forge(runs, "one", summary=change)
    assert failed(runs) == {where}


def test_other_models_are_found(runs):
    folder = RunFolder.find(runs / "one")
    theta = read_models(folder.models_file.read_bytes())
    theta[2, 5] = torch.nextafter(theta[2, 5], torch.tensor(9.0))
    folder.models_file.write_bytes(models_file(theta))
    assert failed(runs) == {"models"}
    folder.models_file.unlink()
    assert failed(runs) == {"models"}


OTHER = {"dataset": "synthetic:200", "agents": 2, "split": "1.0", "lot_size": 9, "rounds": 2, "source": "secret"}


def study(runs, name, **changes):
    """Play one more run beside the others."""
    play(runs, name, **OTHER | changes)


def shown(archive):
    return [json.loads(row) for row in archive.parts["ledger.jsonl"].splitlines()]


def test_rows_on_other_records_are_sealed_and_the_chain_still_leads_to_the_head(runs):
    study(runs, "elsewhere")
    archive = pack(RunFolder.find(runs / "one"))
    text = archive.parts["ledger.jsonl"].decode()
    assert "elsewhere" not in text
    assert "synthetic" not in text
    found = {each.what: each for each in verify(archive, head=head_of(runs), replay=False)}
    assert {what for what, each in found.items() if each.outcome == "fails"} == set()
    assert "7 are shown only as digests" in found["ledger"].words
    assert "which digests cannot show" in found["ε of all runs"].words
    whole = pack(RunFolder.find(runs / "one"), whole_ledger=True)
    assert "elsewhere" in whole.parts["ledger.jsonl"].decode()


def test_a_sealed_row_cannot_be_found_by_trying(runs):
    """Without a salt, few rows could be the fifth query of account 3, or the budget of a known owner."""
    study(runs, "elsewhere")
    sealed = {row["sealed"] for row in shown(pack(RunFolder.find(runs / "one"))) if "sealed" in row}
    rows = [row for row in read_log(runs / "ledger.sqlite") if row.get("account") == 3]
    assert {chains.digest(chains.canonical(row)) for row in rows} == sealed
    salts = {row["salt"] for row in read_log(runs / "ledger.sqlite")}
    assert len(salts) == len(read_log(runs / "ledger.sqlite")), "each has its own"
    assert all(len(bytes.fromhex(salt)) == 16 for salt in salts)
    for row in rows:
        bare = {name: value for name, value in row.items() if name != "salt"}
        assert chains.digest(chains.canonical(bare)) not in sealed


def test_after_a_budget_was_raised_other_studies_stay_sealed_and_what_it_proves_is_the_same(tmp_path):
    """How many runs came before follows from the accounts' numbers, which continue in sealed rows."""
    mine = {"dataset": "digits", "agents": 4, "lot_size": 24, "noise_multiplier": 9.0}
    ledger = DurableLedger(tmp_path / "ledger.sqlite", Budget(epsilon=3.0, delta=1e-5))
    study(tmp_path, "theirs")
    study(tmp_path, "one", **mine)
    study(tmp_path, "theirs-2")
    ledger.raise_budget(4.0, who="board", reason="agreed")
    study(tmp_path, "theirs-3")
    study(tmp_path, "two", **mine)
    study(tmp_path, "three", **mine)
    ledger.close()
    for name in ("one", "three"):
        archive = pack(RunFolder.find(tmp_path / name))
        assert b"theirs" not in archive.parts["ledger.jsonl"]
        assert b"agreed" in archive.parts["ledger.jsonl"]
        found = {each.what: each for each in verify(archive, head=head_of(tmp_path), replay=False)}
        assert {what for what, each in found.items() if each.outcome == "fails"} == set()
        assert "3 runs on these records" in found["ε of all runs"].words
        log = Log(archive.parts["ledger.jsonl"])
        with closing(DurableLedger(tmp_path / "ledger.sqlite", read_only=True)) as whole:
            owners = RunFolder.find(tmp_path / name).events().plan.owners
            for owner in owners:
                kept = log.reader.ledger.guarantee(owner, delta=1e-5)
                assert kept == whole.guarantee(owner, delta=1e-5)
                assert kept.basis == "plans", "the budget may have been raised by what the first run gave"
                assert log.reader.ledger.filtered(owner) == whole.filtered(owner)


def test_a_budget_that_was_raised_before_the_first_of_these_runs_proves_what_it_did(tmp_path):
    ledger = DurableLedger(tmp_path / "ledger.sqlite", Budget(epsilon=3.0, delta=1e-5))
    study(tmp_path, "theirs")
    study(tmp_path, "theirs-2")
    ledger.raise_budget(4.0, who="board", reason="agreed")
    ledger.close()
    for name in ("one", "two"):
        study(tmp_path, name, dataset="digits", agents=4, lot_size=24, noise_multiplier=9.0)
    log = Log(pack(RunFolder.find(tmp_path / "one")).parts["ledger.jsonl"])
    for owner in RunFolder.find(tmp_path / "one").events().plan.owners:
        kept = log.reader.ledger.guarantee(owner, delta=1e-5)
        assert (kept.basis, kept.adaptive) == ("filter", 4.0)


def test_all_that_an_epsilon_follows_from_is_shown_and_nothing_else(tmp_path):
    """One name may stand for several data sets, each of which was dealt out in another way; a run may be called like an owner."""
    path = tmp_path / "ledger.sqlite"
    ledger = DurableLedger(path)
    runs = {
        "one": ("clinic", "2023", "seed 0"),
        "two": ("clinic", "2024", "seed 0"),
        "three": ("p", "2023", "seed 1"),
        "four": ("q", "2024", "seed 1"),
        "clinic": ("z", "elsewhere", "seed 0"),
    }
    for number, (run, (owner, records, partition)) in enumerate(runs.items(), 1):
        held = {"owners": [owner], "records": records, "partition": partition}
        account = ledger.open(run=run, mechanisms=gaussians([0.1], [number]), queries=3, release=True, **held)
        account.spend()
        account.close()
    ledger.abandon("clinic", who="me", reason="the machine is gone")
    rows = sealed([text for text, _ in ledger.log], "one")
    assert sum('"sealed"' in row for row in rows) == 4, "an account, a query, its end and the decision"
    log = Log("".join(f"{row}\n" for row in rows).encode())
    assert log.hashes[-1] == ledger.head.hash
    assert {account.run for account in log.reader.ledger.accounts} == {"one", "two", "three", "four"}
    assert log.reader.ledger.guarantee("clinic", delta=1e-5) == ledger.guarantee("clinic", delta=1e-5)


def test_heads_that_the_ledger_should_have_taken_in_are_missed(runs):
    """At each checkpoint, not only in the end: a head that was published on the way covers the run until then."""
    anchors = [row["events"] for row in read_log(runs / "ledger.sqlite") if row["kind"] == "anchor"]
    edit_log(runs / "ledger.sqlite", lambda row: None if row.get("events") == anchors[1] else row)
    state_heads(runs)
    assert failed(runs) == {"heads"}
    assert "does not have the head of the events of run 'one' at line 3, a checkpoint" in outcomes(runs)["heads"].words


def test_queries_that_no_file_shows_are_found(runs):
    rows = read_log(runs / "ledger.sqlite")
    last = max(place for place, row in enumerate(rows) if row["kind"] == "query" and row["account"] == 1)
    write_log(runs / "ledger.sqlite", [*rows[: last + 1], rows[last] | {"number": 7}, *rows[last + 1 :]])
    state_heads(runs)
    assert "queries" in failed(runs)
    assert "7 queries on record, but its files show 6 answered and 0 lost" in outcomes(runs)["queries"].words


def test_a_summary_that_hides_a_run_without_privacy_is_found(tmp_path):
    play(tmp_path, "open", private=False, noise_multiplier=None, source=None)
    play(tmp_path)
    assert failed(tmp_path) == set()
    forge(tmp_path, "one", summary=lambda facts: facts | {"exposed": False})
    assert failed(tmp_path) == {"summary"}
    assert "run 'open' had read these records without privacy" in outcomes(tmp_path)["summary"].words


def test_sealed_rows_leave_a_raise_no_more_room_than_they_can_hold(tmp_path):
    ledger = DurableLedger(tmp_path / "ledger.sqlite", Budget(epsilon=3.0, delta=1e-5))
    study(tmp_path, "one", dataset="digits", lot_size=24)
    study(tmp_path, "theirs")
    ledger.raise_budget(4.0, who="board", reason="agreed")
    study(tmp_path, "two", dataset="digits", lot_size=24)
    ledger.close()
    rows = shown(pack(RunFolder.find(tmp_path / "two")))
    sealed = sum("sealed" in row for row in rows)

    def log(runs):
        forged = [row | {"decision": row["decision"] | {"runs": runs}} if "decision" in row else row for row in rows]
        return Log("".join(f"{chains.canonical(row)}\n" for row in forged).encode())

    log(2)
    for runs, said in ((0, f"1 to {1 + sealed}"), (2 + sealed, f"1 to {1 + sealed}")):
        with pytest.raises(PrivacyError, match=f"raised after {runs} runs, but {said} were on record"):
            log(runs)
    with pytest.raises(PrivacyError, match="'two' is account 3, but 1 were opened before it"):
        log(1)


def test_runs_on_these_records_are_counted_and_no_others(runs):
    study(runs, "elsewhere")
    study(runs, "dealt-anew", dataset="digits", lot_size=24, seed=4)
    for whole in (False, True):
        archive = pack(RunFolder.find(runs / "one"), whole_ledger=whole)
        found = {each.what: each for each in verify(archive, replay=False)}
        assert "3 runs on these records" in found["ε of all runs"].words
        assert all(each.outcome != "fails" for each in found.values())
    alone = {each.what: each for each in verify(pack(RunFolder.find(runs / "elsewhere")), replay=False)}
    assert "this is the only run on these records" in alone["ε of all runs"].words


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
    assert {what for what, each in found.items() if each.outcome != "holds"} == set()
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
