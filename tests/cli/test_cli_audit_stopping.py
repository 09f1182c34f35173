"""Ctrl-C in a terminal reaches worker processes, too: only the command itself answers, and what was done is kept."""

import json

import pytest
from invoking import document, interrupted, one_line

BATCHES = 12
AUDIT = (
    "audit",
    "neighbor",
    "--runs",
    BATCHES,
    "--batch",
    2,
    "--rounds",
    2,
    "--folder",
    "one",
    "--confidence",
    0.999999,
)


@pytest.mark.slow
@pytest.mark.chance(1e-6)
def test_ctrl_c_leaves_no_traceback_and_an_audit_that_can_be_resumed(tmp_path, monkeypatch):
    done = interrupted("tacit.cli.audit.batches", *AUDIT, "--workers", 2, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (130, "")
    said = done.stderr
    assert said.startswith(f"neighbor-dsgd: 2 of {2 * BATCHES} runs, about ")
    assert f"of {2 * BATCHES} runs are kept. Resume with: " in one_line(said)
    for word in ("Traceback", "KeyboardInterrupt", "leaked"):
        assert word not in said

    scores = tmp_path / "one" / "scores.jsonl"
    kept = [json.loads(line) for line in scores.read_text().splitlines()]
    assert 2 <= len(kept) < 1 + BATCHES
    monkeypatch.chdir(tmp_path)
    assert document(*AUDIT, "--workers", 1)["runs_per_side"] == BATCHES
    assert [json.loads(line) for line in scores.read_text().splitlines()][: len(kept)] == kept
    assert len(scores.read_text().splitlines()) == 1 + BATCHES
