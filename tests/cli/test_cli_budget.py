import json
import math
import os

import pytest
from invoking import answer, complaint, document, is_picture, process

from tacit.cli.terminal.output import bar, digits, round_up
from tacit.cli.terminal.pictures import draw_spending
from tacit.privacy import accounting, calibration
from tacit.privacy.event import Event

SETTING = ("--dataset-size", 6000, "--lot-size", 256, "--queries", 2000)
SMALL = ("--dataset-size", 600, "--lot-size", 60, "--queries", 12)
TINY = ("--dataset-size", 600, "--lot-size", 60, "--queries", 2)
KEYS = {"noise_multiplier", "epsilon", "delta", "sample_rate", "queries", "adjacency", "accountant"}


def rows(result):
    return {(row["adjacency"], row["accountant"]): row for row in result["table"]}


@pytest.mark.parametrize(
    ("target", "options", "sigma"),
    [
        (1, (), 7.189),
        (10, (), 1.182),
        (1, ("--accountant", "rdp"), 7.794),
        (10, ("--accountant", "rdp"), 1.239),
        (1, ("--adjacency", "replace_one"), 14.24),
    ],
)
def test_noise_for_an_epsilon_is_the_published_one(target, options, sigma):
    result = document("budget", "--epsilon", target, *SETTING, *options)
    assert set(result) >= KEYS
    assert result["noise_multiplier"] == pytest.approx(sigma, rel=2e-3)
    assert result["epsilon"] == pytest.approx(target, rel=1e-3)
    assert result["epsilon"] <= target
    assert (result["delta"], result["queries"]) == (1e-5, 2000)
    assert result["sample_rate"] == pytest.approx(256 / 6000)


def test_epsilon_is_derived_from_the_reported_noise():
    result = document("budget", "--epsilon", 2, *TINY, "--delta", 1e-4, "--adjacency", "replace_one")
    event = Event(sample_rate=0.1, noise_multiplier=result["noise_multiplier"], count=2)
    assert result["epsilon"] == accounting.epsilon([event], delta=1e-4, adjacency="replace_one")


def test_epsilon_of_a_noise():
    result = document("budget", "--noise-multiplier", 7.189, *SETTING)
    assert result["noise_multiplier"] == 7.189
    assert result["epsilon"] == pytest.approx(1, rel=1e-3)


def test_discrete_noise_is_counted_by_whole_orders_and_says_in_which_units_it_is():
    asked = ("budget", "--epsilon", 3, *SMALL, "--delta", 1e-4, "--noise", "discrete")
    result = document(*asked)
    (sigma,) = calibration.noise_multipliers(
        epsilons=[3.0], delta=1e-4, sample_rates=[0.1], queries=12, accountant="rdp", discrete=True
    )
    assert result["noise_multiplier"] == sigma
    event = Event(sample_rate=0.1, noise_multiplier=sigma, count=12, discrete=True)
    assert result["epsilon"] == accounting.epsilon([event], delta=1e-4) <= 3
    assert [key for key, row in rows(result).items() if row["supported"]] == [("add_remove", "rdp")]
    assert "in units of the length that a rounded vector has at most" in answer(*asked)


def test_all_combinations_are_listed_and_the_impossible_one_has_no_number():
    table = rows(document("budget", "--epsilon", 1, *SETTING))
    assert len(table) == 4
    assert table["add_remove", "pld"]["asked"]
    assert sum(row["asked"] for row in table.values()) == 1
    assert table["add_remove", "rdp"]["noise_multiplier"] == pytest.approx(7.794, rel=2e-3)
    assert table["replace_one", "pld"]["noise_multiplier"] == pytest.approx(14.24, rel=2e-3)
    assert table["replace_one", "pld"]["epsilon_at_asked_noise"] > 2
    impossible = table["replace_one", "rdp"]
    assert (impossible["supported"], impossible["note"]) == (False, "not supported")
    assert impossible["noise_multiplier"] is impossible["epsilon"] is impossible["epsilon_at_asked_noise"] is None


def test_curve_rises_to_the_epsilon_of_all_queries():
    result = document("budget", "--noise-multiplier", 2, *SMALL)
    counts = [point["queries"] for point in result["curve"]]
    values = [point["epsilon"] for point in result["curve"]]
    assert counts == sorted(set(counts))
    assert counts[-1] == 12
    assert values == sorted(values)
    assert values[-1] == result["epsilon"]


def test_a_few_queries_make_a_short_curve():
    result = document("budget", "--noise-multiplier", 2, "--dataset-size", 600, "--lot-size", 60, "--queries", 3)
    assert [point["queries"] for point in result["curve"]] == [1, 2, 3]


def test_text_marks_what_was_asked_and_shows_everything():
    text = answer("budget", "--epsilon", 1, *SETTING, "--accountant", "rdp")
    lines = text.splitlines()
    assert lines[0] == "σ = 7.794 keeps 2,000 queries within ε = 1, at δ = 1e-05"
    marked = [line for line in lines if line.startswith("▸")]
    assert len(marked) == 1
    assert "rdp" in marked[0]
    for piece in ("0.04267", "7.1893", "14.236", "1e-05", "not supported", "█"):
        assert piece in text
    assert "…" not in text


def test_text_of_a_noise_never_shows_less_than_is_spent():
    text = answer("budget", "--noise-multiplier", 1.1, *TINY)
    spent = document("budget", "--noise-multiplier", 1.1, *TINY)["epsilon"]
    shown = float(text.split("spends ε = ")[1].split()[0])
    assert spent <= shown <= spent * 1.002


def test_a_delta_that_protects_nobody_is_noted():
    assert "is not below 1/|D|" in answer("budget", "--noise-multiplier", 2, *TINY, "--delta", 0.01)
    assert "1/|D|" not in answer("budget", "--noise-multiplier", 2, *TINY)


@pytest.mark.parametrize("name", ["curve.png", "curve.pdf", "curve.SVG", "new/folder/curve.png"])
def test_plot_makes_the_picture_that_its_name_says(tmp_path, name):
    (tmp_path / "curve.png").write_bytes(b"an old one")
    text = answer("budget", "--epsilon", 2, *TINY, "--plot", tmp_path / name)
    assert f"Picture: {tmp_path / name}\n" in text
    assert is_picture(tmp_path / name)
    assert not list(tmp_path.rglob(".*"))


def test_plot_without_a_file_has_a_name_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document("budget", "--plot", "--epsilon", 2, *TINY)
    assert is_picture(tmp_path / "budget.png")
    (tmp_path / "budget.png").unlink()
    answer("budget", "--epsilon", 2, *TINY, "--plot")
    assert is_picture(tmp_path / "budget.png")


def setting(*, size=6000, lot=256, queries=2000):
    return "--dataset-size", size, "--lot-size", lot, "--queries", queries


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((*SETTING,), "give either --epsilon or --noise-multiplier; neither is given"),
        ((*SETTING, "--epsilon", 1, "--noise-multiplier", 2), "; both are given"),
        ((*SETTING, "--epsilon", -1), "--epsilon is -1.0; it must be greater than 0"),
        ((*SETTING, "--epsilon", "nan"), "epsilon is nan"),
        ((*SETTING, "--epsilon", "1,2,4"), "--epsilon has 3 values"),
        ((*SETTING, "--epsilon", "one"), "--epsilon is 'one'; it must be a number"),
        ((*SETTING, "--epsilon", 1e-9), "no noise multiplier up to 1e+06 reaches epsilon=1e-09"),
        ((*SETTING, "--noise-multiplier", 0), "--noise-multiplier is 0.0; it must be greater than 0"),
        ((*SETTING, "--noise-multiplier", 0.001), "--noise-multiplier 0.001 over 2000 queries protects nothing"),
        ((*SETTING, "--epsilon", 1, "--delta", 0), "--delta is 0.0; it must be greater than 0"),
        ((*SETTING, "--epsilon", 1, "--delta", 1), "delta is 1.0"),
        (
            (*SETTING, "--epsilon", 1, "--adjacency", "replace"),
            "--adjacency is 'replace'; it must be one of add_remove, replace_one; did you mean 'replace_one'?",
        ),
        (
            (*SETTING, "--epsilon", 1, "--accountant", "moments"),
            "--accountant is 'moments'; it must be one of pld, rdp",
        ),
        (
            (*SETTING, "--epsilon", 1, "--accountant", "rdp", "--adjacency", "replace_one"),
            "the rdp accountant has no bound for Poisson lots under replace-one adjacency",
        ),
        ((*setting(size=100), "--epsilon", 1), "--lot-size 256 is larger than the data set's 100 records"),
        ((*setting(size=0), "--epsilon", 1), "--dataset-size is 0; it must be at least 1"),
        ((*setting(lot=0), "--epsilon", 1), "--lot-size is 0.0; it must be greater than 0"),
        ((*setting(lot="nan"), "--epsilon", 1), "--lot-size is nan; it must be greater than 0"),
        ((*setting(queries=0), "--epsilon", 1), "--queries is 0"),
        ((*setting(queries=1.5), "--epsilon", 1), "--queries is '1.5'; it must be a whole number"),
        (("--epsilon", 1, "--lot-size", 2, "--queries", 3), "missing option '--dataset-size'"),
        ((*SETTING, "--epsilom", 1), "unknown option '--epsilom'; did you mean '--epsilon'?"),
        ((*SETTING, "--epsilon", 1, "more"), "unexpected extra argument"),
        ((*SETTING, "--epsilon", 1, "--plot", "x.gif"), "x.gif: a picture is saved as .png, .pdf, .svg"),
        ((*SETTING, "--epsilon", 1, "--plot", "x"), "this name has no ending"),
        (
            (*SETTING, "--epsilon", 1, "--noise", "discrete", "--accountant", "pld"),
            "discrete noise has a bound by Rényi divergences alone",
        ),
        (
            (*SETTING, "--epsilon", 1, "--noise", "discrete", "--bands", 4),
            "noise with bands is not on one grid",
        ),
        (
            (*SETTING, "--epsilon", 1, "--bands", 4, "--adjacency", "replace_one"),
            "use --adjacency add_remove, or leave --bands out",
        ),
        (
            (*SETTING, "--epsilon", 1, "--noise", "discrete", "--adjacency", "replace_one"),
            "under replace-one adjacency it has none; use --adjacency add_remove",
        ),
        (
            (*SETTING, "--noise-multiplier", 1, "--bands", "auto"),
            "--bands auto compares noise at one ε; give --epsilon",
        ),
    ],
)
def test_bad_input_is_refused_with_a_sentence(args, message):
    assert message in complaint("budget", *args)


def test_a_picture_that_cannot_be_written_is_reported_before_anything_is_computed(tmp_path):
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder.png").mkdir()
    args = ("budget", "--epsilon", 1, *SETTING, "--plot")
    assert f"{tmp_path / 'file'} is not a folder" in complaint(*args, tmp_path / "file" / "x.png")
    assert "this is a folder" in complaint(*args, tmp_path / "folder.png")
    assert (tmp_path / "file").read_text() == "in the way"


def test_square_brackets_are_printed_as_they_are(tmp_path):
    name = tmp_path / "[bold]no[/bold]" / "[/x].gif"
    assert str(name) in complaint("budget", "--epsilon", 1, *SETTING, "--plot", name)


def test_an_unknown_command_names_the_nearest():
    assert "no such command 'budgt'. Did you mean 'budget'" in complaint("budgt")
    assert "unknown option '--jsn'" in complaint("--jsn")


def test_help_has_an_example():
    text = answer("budget", "--help")
    assert "tacit budget --epsilon 1 --dataset-size 6000 --lot-size 256 --queries 2000" in text


def test_the_program_answers_in_a_process_of_its_own():
    done = process("budget", "--epsilon", 1, "--delta", 1e-5, *SETTING, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["noise_multiplier"] == pytest.approx(7.189, rel=2e-3)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_an_error_with_its_own_exit_code_and_no_traceback():
    with open("/dev/full", "w") as full:
        done = process("graph", "ring", "--agents", 10, "--json", stdout=full)
    assert done.returncode == 2  # 1 is a verdict, which a full disk must never look like
    assert done.stderr == "error: output: No space left on device\n"


def test_a_picture_does_not_round_epsilon_down():
    (ax,) = draw_spending({"pld": [0.9, 1.2502]}, [1, 2], "pld", title="", budget=None).axes
    assert ax.get_legend().get_texts()[0].get_text() == "pld: ε = 1.251"


def test_numbers_are_short_and_epsilon_rounds_up():
    assert [digits(value) for value in (0, 0.22222, 12.3456, 123456.7, 3.9e-7)] == [
        "0",
        "0.2222",
        "12.35",
        "123,457",
        "3.9e-07",
    ]
    assert [round_up(value) for value in (0.0, 1.00001, 0.28775, 1.0, math.inf)] == [
        "0",
        "1.001",
        "0.2878",
        "1.000",
        "inf",
    ]
    assert (bar(0, 4), bar(0.5, 4), bar(1, 4), bar(2, 4)) == ("", "██", "████", "████")
