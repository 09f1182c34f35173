"""`tacit export`, `tacit verify`, `tacit sign`, `tacit key` and heads of the ledger, as someone types them."""

import json

import pytest
from invoking import QUICK, one_line
from tampering import forge

RUN = ["train", *QUICK, "--source", "seeded", "--name", "one", "-q"]


@pytest.fixture
def run(tacit, tmp_path):
    assert tacit(*RUN)[0] == 0
    return tmp_path / "runs"


def test_an_owner_signs_and_exports_and_an_auditor_verifies(tacit, run):
    code, out, _ = tacit("key", "new", "owner.key")
    assert code == 0
    assert "keep this secret" in out
    assert tacit("sign", "one", "--key", "owner.key", "-o", "head.json")[0] == 0
    assert tacit("key", "new", "witness.key")[0] == 0
    assert tacit("sign", "head.json", "--key", "witness.key", "-o", "counter.json")[0] == 0
    code, out, _ = tacit("export", "one", "--for-audit", "-o", "one.zip")
    assert code == 0
    assert "ledger.jsonl" in out
    for signature, key in (("head.json", "owner.key.pub"), ("counter.json", "witness.key.pub")):
        code, out, _ = tacit("verify", "one.zip", "--signature", signature, "--key", key)
        assert code == 0, out
        assert "everything that was checked holds" in one_line(out)
        assert "not checked" not in one_line(out)
    code, _, err = tacit("verify", "one.zip", "--signature", "head.json", "--key", "witness.key.pub")
    assert code == 2
    assert "was not signed by the key in witness.key.pub" in err


def test_a_folder_is_verified_as_its_archive_would_be(tacit, run):
    head = json.loads(tacit("ledger", "--head", "--json")[1])["head"]
    code, out, _ = tacit("verify", "one", "--head", head, "--json", "--no-replay")
    assert code == 0
    found = json.loads(out)
    assert (found["run"], found["holds"], found["failed"]) == ("one", True, [])
    assert found["not_checked"] == ["replay"]
    outcome = {each["what"]: each["outcome"] for each in found["findings"]}
    assert outcome["earlier head"] == outcome["scores on validation"] == "holds"
    assert outcome["scores on test"] == "shown", "the run states none to compare with"


def test_what_was_changed_since_a_head_is_reported_by_both_commands(tacit, run):
    head = tacit("ledger", "--head")[1].split()[0]
    assert tacit("ledger", "--verify", "--earlier", head)[0] == 0
    forge(run, "one", event=lambda event: event | {"seconds": 0.1} if event["event"] == "snapshot" else event)
    assert tacit("ledger", "--verify")[0] == 0, "all hashes follow"
    code, out, _ = tacit("ledger", "--verify", "--earlier", head)
    assert code == 1
    assert "DOES NOT HOLD: the head" in one_line(out)
    code, out, _ = tacit("verify", "one", "--head", head, "--no-replay")
    assert code == 1
    assert "DOES NOT HOLD: earlier head" in one_line(out)


def test_a_changed_event_is_reported_by_verify_of_the_ledger(tacit, run):
    path = run / "one" / "events.jsonl"
    assert '"release": false' in path.read_text()
    path.write_text(path.read_text().replace('"release": false', '"release": true', 1))
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "the hash does not follow" in one_line(out)


def test_a_deleted_checkpoint_is_reported_by_verify_of_the_ledger(tacit, run):
    (run / "one" / "checkpoint.safetensors").unlink()
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "saved a checkpoint at round 6, which is missing" in one_line(out)


def test_code_of_the_owner_is_run_only_where_it_is_asked_for(tacit, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n\ndef model():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))\n"
    )
    assert tacit(*RUN, "--model", "mine.py:model")[0] == 0
    code, out, _ = tacit("verify", "one")
    assert code == 0
    assert "everything that was checked holds; not checked: earlier head, scores, plan, replay" in one_line(out)
    assert "'mine.py:model' is not part of the library, and code of the owner is not run here" in one_line(out)
    code, out, _ = tacit("verify", "one", "--run-code")
    assert code == 0
    assert "everything that was checked holds; not checked: earlier head" in one_line(out)
    assert "replayed from its seeds, it gives the same models and the same" in one_line(out)


def test_an_archive_of_which_a_part_was_changed_does_not_hold_and_the_part_is_named(tacit, run, tmp_path):
    assert tacit("export", "one", "--for-audit", "-o", "one.zip")[0] == 0
    path = tmp_path / "one.zip"
    content = path.read_bytes()
    assert content.count(b"\nrounds = ") == 1
    path.write_bytes(content.replace(b"\nrounds = ", b"\nrounds =\t"))
    code, out, _ = tacit("verify", "one.zip", "--no-replay")
    assert code == 1
    assert "config.toml is damaged" in one_line(out)
    assert "DOES NOT HOLD: parts" in one_line(out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "one"], "say what the archive is for"),
        (["export", "none", "--for-audit"], "there is no run folder"),
        (["verify", "none.zip"], "there is no archive none.zip; tacit export RUN writes one"),
        (["verify", "one", "--head", "abc"], "is not a hash"),
        (["verify", "one", "--signature", "x.json"], "--signature and --key go together"),
        (["verify", "one", "--key", "x.pub"], "--signature and --key go together"),
        (["verify", "runs/one/config.toml"], "not an archive for an audit"),
        (["sign", "one"], "--key"),
        (["sign", "one", "--key", "none.key"], "none.key cannot be read"),
        (["key", "new", "runs/one/config.toml"], "already exists; a key is never overwritten"),
        (["ledger", "--earlier", "0" * 64], "needs --verify"),
    ],
)
def test_wrong_input_is_reported(tacit, run, words, said):
    code, _, err = tacit(*words)
    assert code == 2
    assert said in one_line(err)


def test_the_ledger_alone_can_be_signed(tacit, run):
    tacit("key", "new", "owner.key")
    code, out, _ = tacit("sign", "--key", "owner.key", "--json")
    assert code == 0
    made = json.loads(out)
    assert made["statement"]["run"] is None
    assert made["statement"]["ledger"] == tacit("ledger", "--head")[1].split()[0]
    code, _, _ = tacit("verify", "one", "--signature", made["file"], "--key", "owner.key.pub", "--no-replay")
    assert code == 0
