"""`tacit report` and `tacit compare`: which runs are meant, and what is written where."""

import pytest
from invoking import QUICK


def test_report_and_compare_write_pages_and_figures(tacit, tmp_path):
    for name in ("one", "two"):
        assert tacit("train", *QUICK, "--name", name)[0] == 0
    code, out, _ = tacit("report", "runs/one", "runs/two", "--figures")
    assert code == 0
    assert "runs/two/report.html" in out
    page = (tmp_path / "runs" / "one" / "report.html").read_text()
    assert "add-or-remove-one" in page
    assert sorted(path.suffix for path in (tmp_path / "runs" / "one" / "figures").iterdir()).count(".pdf") >= 4
    code, out, _ = tacit("compare", "runs/one", "runs/two", "-o", "pages/both.html", "--figures")
    assert code == 0
    assert out == "pages/both.html and pages/both-figures\n"
    assert "two" in (tmp_path / "pages" / "both.html").read_text()
    assert list((tmp_path / "pages" / "both-figures").glob("*.png"))


def test_runs_are_meant_by_their_names_and_the_ledger_is_not_a_run(tacit, tmp_path):
    for name in ("one", "two"):
        assert tacit("train", *QUICK, "--name", name, "--runs", "kept")[0] == 0
    (tmp_path / "one").mkdir()  # a folder that is no run does not hide one that is
    assert tacit("report", "one", "--runs", "kept")[1] == "kept/one/report.html\n"
    everything = sorted(f"kept/{path.name}" for path in (tmp_path / "kept").iterdir())
    assert any("ledger.sqlite" in path for path in everything)
    assert tacit("compare", *everything)[0] == 0
    assert tacit("report", *everything)[1] == "kept/one/report.html\nkept/two/report.html\n"
    assert tacit("compare", "one", "two", "--runs", "kept")[0] == 0
    code, _, error = tacit("compare", "one", "kept/one", "--runs", "kept")
    assert code == 2
    assert "is named twice" in error
    code, _, error = tacit("report", "tow", "--runs", "kept")
    assert code == 2
    assert "there is no run folder tow, nor kept/tow; did you mean 'two'?" in error


def test_a_run_is_resumed_by_its_name(tacit):
    tacit("train", *QUICK, "--name", "one", "--runs", "kept")
    code, _, error = tacit("resume", "one", "--runs", "kept")
    assert code == 2
    assert "run 'one' is finished" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "nowhere"], "nowhere"),
        (["compare", "."], "at least two runs"),
        (["report", "."], "config.toml"),
    ],
)
def test_pages_of_what_is_not_a_run_are_refused(tacit, words, message):
    code, _, error = tacit(*words)
    assert code == 2
    assert message in " ".join(error.split())
