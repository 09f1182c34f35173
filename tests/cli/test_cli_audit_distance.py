"""`tacit audit distance`: a table by distance, the same as data, and a picture of it."""

import pytest
from invoking import answer, complaint, document, is_picture

from tacit.cli.audit.systems import make_rule

SMALL = ("audit", "distance", "--agents", 6, "--rounds", 6, "--runs", 200)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_share_falls_with_distance_for_every_algorithm_and_can_be_drawn(tmp_path):
    found = document(*SMALL, "--algorithm", "all", "--plot", "leaks.png")
    assert list(found["algorithms"]) == ["dsgd", "dsgt", "dinno", "local-dsgd", "d2", "extra", "dp-srm", "muffliato"]
    assert found["warning"].startswith("These shares are not a guarantee, and no ε rests on them")
    for shown in ("0.316", "0.965"):  # computed in tests/audit/test_audit_exact_view.py
        assert shown in found["warning"]
    for rows in found["algorithms"].values():
        assert [row["distance"] for row in rows] == [1, 2, 3]
        shares = [row["share"] for row in rows]
        assert shares == sorted(shares, reverse=True)
    assert [path.name for path in tmp_path.iterdir()] == ["leaks.png"]
    assert is_picture(tmp_path / "leaks.png")


def test_a_coalition_and_all_targets(tmp_path):
    said = answer(*SMALL, "--observer", 0, "--observer", 3, "--targets", "all", "--plot", "leaks.pdf")
    for words in (
        "What agents 0, 3 together can learn: ring of 6 agents · 6 rounds",
        "6 of 6",
        "Claimed: ε = 1 at δ = 0.01",
        "These shares are not a guarantee",
        "Picture: leaks.pdf",
    ):
        assert words in said
    rows = [line.split() for line in said.splitlines() if " of 6" in line and "%" in line]
    assert len(rows) == 4
    assert is_picture(tmp_path / "leaks.pdf")


@pytest.mark.parametrize(
    ("options", "whom"),
    [
        (("--graph", "ring"), "nearest"),
        (("--graph", "complete"), "nearest"),
        (("--graph", "torus"), "all"),
        (("--graph", "random:density=0.6,seed=1"), "all"),
        (("--graph", "ring", "--observer", 0, "--observer", 1), "all"),
        (("--graph", "random:density=0.6,seed=1", "--targets", "nearest"), "nearest"),
    ],
)
def test_all_agents_are_observed_unless_those_at_one_distance_are_alike(options, whom):
    found = document(*SMALL, *options)
    rows = found["algorithms"]["dsgd"]
    assert found["settings"]["targets"] == whom
    assert len(rows) == (len({row["distance"] for row in rows}) if whom == "nearest" else 6 - len(found["observers"]))


def test_dinno_is_that_of_the_other_audits_and_says_how_it_steps():
    found = document(*SMALL, "--algorithm", "dinno")
    assert found["settings"]["dinno"] == {"step": "plain", "inner_steps": 1, "rho": make_rule("dinno").rho}
    assert "DiNNO: one plain inner step in a round, ρ = 0.5." in answer(*SMALL, "--algorithm", "dinno")
    assert "dinno" not in document(*SMALL)["settings"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--algorithm", "dsgx"), "unknown algorithm 'dsgx'; did you mean 'dsgt'?"),
        (("--observer", 6), "observer is 6; it must be an agent, from 0 to 5"),
        (("--runs", 9), "runs is 9; it must be at least 10"),
        (("--rounds", 0), "rounds is 0; it must be at least 1"),
        (("--sample-rate", 2), "2.0"),
        (("--confidence", 1), "confidence is 1.0"),
        (("--plot", "leaks.txt"), "a picture is saved as .png, .pdf, .svg"),
        (("--targets", "al"), "--targets is 'al'; it must be one of nearest, all"),
        (("--agents", 1), "none is left to observe"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(options, message, tmp_path):
    assert message in complaint(*SMALL, *options)
    assert not list(tmp_path.iterdir())
