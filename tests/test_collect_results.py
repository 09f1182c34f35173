"""Pages are copied from what was written, keep what was said by hand, and can be found again from what is beside them."""

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
COLLECTING = runpy.run_path(str(DOCS / "collect_results.py"))
collect, shortened = COLLECTING["collect"], COLLECTING["shortened"]


@pytest.fixture
def results(tmp_path):
    for name in ("graphs-smoke", "graphs-laptop", "graphs-paper", "errata-paper", "split-laptop"):
        folder = tmp_path / "results" / name
        folder.mkdir(parents=True)
        for file in ("finding.md", "figure.png", "results.csv", "points.jsonl"):
            (folder / file).write_text(f"{file} of {name}\n")
    (tmp_path / "results" / "split-laptop" / "finding.md").unlink()  # the first points are being played
    return tmp_path / "results"


def test_the_laptop_profile_is_taken_or_else_the_papers(results, tmp_path):
    collect(results, tmp_path / "pages")
    assert {page.name for page in (tmp_path / "pages").iterdir()} == {"graphs", "errata"}
    assert (tmp_path / "pages" / "graphs" / "points.jsonl").read_text() == "points.jsonl of graphs-laptop\n"
    assert (tmp_path / "pages" / "errata" / "finding.md").read_text() == "finding.md of errata-paper\n"


def test_what_was_said_by_hand_stays(results, tmp_path):
    page = tmp_path / "pages" / "graphs"
    page.mkdir(parents=True)
    (page / "note.txt").write_text("By hand.\n")
    for _ in range(2):
        collect(results, tmp_path / "pages")
        assert (page / "finding.md").read_text() == "finding.md of graphs-laptop\n\nBy hand.\n"


def test_what_is_large_is_left_out_and_an_old_one_does_not_stay(results, tmp_path):
    collect(results, tmp_path / "pages")
    (results / "graphs-laptop" / "points.jsonl").write_bytes(bytes(500_001))
    collect(results, tmp_path / "pages")
    assert not (tmp_path / "pages" / "graphs" / "points.jsonl").exists()
    assert (tmp_path / "pages" / "graphs" / "results.csv").exists()


def test_the_attacks_finding_follows_from_the_scores_beside_it(capsys):
    runpy.run_path(str(DOCS / "results" / "attack" / "recompute.py"))
    finding = capsys.readouterr().out.strip()
    assert "DP-DiNNO: the estimate is" in finding
    assert f" {finding}\n\n![" in (DOCS / "results" / "attack" / "finding.md").read_text()


def test_scores_are_shortened_and_keep_their_order():
    rows = [
        {"algorithm": "dsgd", "batch": 0, "runs": 2, "delta": 0.01, "present": present, "run": run, "score": -run / 3}
        for present in (False, True)
        for run in (2, 1)
    ]
    assert shortened(rows).replace("\n", "") == (
        '{"dsgd":{"settings":{"delta":0.01},"absent":[-0.666667,-0.333333],"present":[-0.666667,-0.333333]}}'
    )
