"""Which rows of a ledger an archive shows, which it seals, and what still follows from them."""

import json
from contextlib import closing

import pytest
from auditing import failed, head_of, outcomes, play
from tampering import edit_log, forge, gaussians, read_log, state_heads, write_log

from tacit.errors import PrivacyError
from tacit.evidence.archive import pack, sealed
from tacit.evidence.verification import Log, verify
from tacit.io import chains
from tacit.privacy import Budget, DurableLedger
from tacit.runs import RunFolder

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
