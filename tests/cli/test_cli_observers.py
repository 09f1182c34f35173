"""Every ε is shown with whom it holds against: with masks, against the promised observer and against everybody else together."""

import json
import math
import re

import networkx as nx
import pytest
from invoking import answer, complaint, document, is_picture, one_line

from tacit.privacy.accounting import Event, ceil_digits, epsilon
from tacit.privacy.cancelling import masks_for
from tacit.privacy.keys import Keys
from tacit.runs import Runner
from tacit.runs.config import RunConfig

SETTING = ["--dataset-size", 6000, "--lot-size", 256, "--queries", 2000]
MASKED = [*SETTING, "--noise", "cancelling", "--agents", 10]
FILE = """
agents = 5
split = "iid"
noise_multiplier = 3.0
delta = 1e-3
lot_size = 24
rounds = 12
gossip_rounds = 3
lr = 1.0
noise = "cancelling"
mask_ratio = 1.0
"""
AWAY = """
lost = 1

[[absences]]
agent = 3
first = 2
until = 5

[[absences]]
agent = 4
first = 6
rekey = 8
"""


def test_a_budget_gives_own_noise_masks_and_epsilon_by_number_of_curious_agents():
    found = document("budget", "--epsilon", 1, *MASKED, "--curious", 2)
    assert list(found["epsilon_against"]) == [*map(str, range(1, 9)), "all"]
    values = list(found["epsilon_against"].values())
    assert values == sorted(values)
    assert found["epsilon_against"]["2"] == pytest.approx(found["epsilon"], rel=1e-6)
    masks = masks_for([found["noise_multiplier"]] * 10, Keys(10), 2, ratio=1.0)
    assert found["own_noise_multiplier"] == pytest.approx(masks.own[0])
    assert found["mask_multiplier"] == pytest.approx(masks.size)
    own = Event(sample_rate=256 / 6000, noise_multiplier=found["own_noise_multiplier"], count=2000)
    assert found["epsilon_against"]["all"] == pytest.approx(epsilon([own], delta=1e-5))
    assert found["noise_of_average"] == pytest.approx(math.sqrt(10) * masks.own[0] / found["noise_multiplier"])
    assert found["noise_of_average"] == pytest.approx(1.18, abs=0.01)


def test_a_budget_from_sigma_and_with_keys_of_a_kind_or_a_file_names_who_is_cut_off(tmp_path):
    ring = document("budget", "--noise-multiplier", 7.19, *MASKED, "--keys", "ring", "--mask-ratio", 5)
    assert ring["noise_multiplier"] == 7.19
    assert ring["mask_multiplier"] == pytest.approx(5 * 7.19)
    assert ring["epsilon_against"]["2"] == ring["epsilon_against"]["all"] > 3 * ring["epsilon_against"]["1"]
    path = tmp_path / "keys.txt"
    path.write_text("\n".join(f"{i} {j}" for i, j in nx.cycle_graph(10).edges))
    kept = document("budget", "--noise-multiplier", 7.19, *MASKED, "--keys", path, "--mask-ratio", 5)
    assert kept["epsilon_against"] == ring["epsilon_against"]
    said = answer("budget", "--noise-multiplier", 7.19, *MASKED, "--keys", "ring")
    assert "Against any 2 other agents together, only own noise protects every agent." in one_line(said)
    assert "ε holds against any one other agent" in said


def test_a_budget_with_masks_is_drawn(tmp_path):
    path = tmp_path / "budget.svg"
    answer("budget", "--epsilon", 1, *MASKED, "--plot", path)
    assert is_picture(path)
    assert "everybody else together" in answer("budget", "--epsilon", 1, *SETTING)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--noise", "cancelling"], "--noise cancelling needs --agents"),
        (["--agents", 10], "--agents has no effect without --noise cancelling"),
        (["--curious", 2], "--curious has no effect without --noise cancelling"),
        (["--noise", "cancelling", "--agents", 10, "--curious", 9], "nobody honest is left to share masks with"),
        (["--noise", "cancelling", "--agents", 10, "--keys", "graph"], "name its kind, such as ring"),
        (["--noise", "cancelling", "--agents", 10, "--keys", "rign"], "did you mean 'ring'"),
        (["--noise", "cancelling", "--agents", 10, "--mask-ratio", "much"], "give a number or auto"),
    ],
)
def test_a_budget_refuses_masks_that_make_no_sense(words, said):
    assert said in complaint("budget", "--epsilon", 1, *SETTING, *words)


def words_of(path):
    body = re.sub(r"<(style|script)\b.*?</\1>", "", path.read_text(), flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_both_epsilons_of_a_masked_run_are_the_same_everywhere(tacit, tmp_path):
    (tmp_path / "run.toml").write_text(FILE)
    code, out, err = tacit("train", "run.toml", "--name", "one", "--curious", 2)
    assert code == 0
    summary = json.loads((tmp_path / "runs" / "one" / "summary.json").read_text())
    two, most = summary["epsilon_against"]["2"], summary["epsilon_against"]["all"]
    assert summary["epsilon"] == two < most
    together = "against any 2 other agents together"
    assert re.search(
        r"round 15/15: .*; ε per record \S+ of \S+ against any 2 other .*, \S+ of \S+ against everybody", err
    )
    assert f"ε={two:.4g} per record {together}, and ε={most:.4g} against everybody else together" in one_line(out)
    assert "own noise σ" in out
    (row,) = json.loads(tacit("list", "--json")[1])["runs"]
    assert (row["epsilon"], row["observer"], row["of"]) == (two, "any 2 other agents together", 15)
    assert row["epsilon_against"] == {"2": two, "all": most}
    listed = next(line for line in tacit("list")[1].splitlines() if line.startswith("one ")).split()
    assert [float(listed[7]), listed[8:10], float(listed[10])] == [two, ["any", "2"], most]
    rows = json.loads(tacit("ledger", "--json")[1])["spent"]
    for observer, value in (("any 2 other agents together", two), ("everybody else together", most)):
        found = [
            each["epsilon"]["add_remove"] for each in rows if each["run"] == "one" and each["observer"] == observer
        ]
        assert ceil_digits(max(found)) == value
    shown = [line.split() for line in tacit("ledger")[1].splitlines() if line.startswith("one ")]
    assert [float(line[-4]) for line in shown] == [two, most]
    assert tacit("report", "one", "--figures")[0] == 0
    page = words_of(tmp_path / "runs" / "one" / "report.html")
    assert f"ε = {two:.4g} per record {together}, and ε = {most:.4g} against everybody else together, at δ" in page
    assert f"ε per record, against everybody else together {most:.4g}" in page
    assert "ε against curious agents" in page
    assert (tmp_path / "runs" / "one" / "figures" / "observers.png").is_file()
    assert tacit("ledger", "--verify")[0] == 0


def test_a_comparison_of_runs_against_different_observers_says_so(tacit, tmp_path):
    (tmp_path / "run.toml").write_text(FILE)
    assert tacit("train", "run.toml", "--name", "one", "-q")[0] == 0
    assert tacit("train", "run.toml", "--name", "two", "-q", "--curious", 2)[0] == 0
    code, _, err = tacit("compare", "one", "two", "--figures")
    assert code == 0
    assert "promise ε against different observers" in one_line(err)
    page = words_of(tmp_path / "comparison.html")
    assert "promise ε against different observers" in page
    assert "any 1" in page
    assert "any 2" in page


def test_absences_of_a_file_are_in_the_plan_and_the_report_and_a_resume_keeps_them(tacit, tmp_path):
    (tmp_path / "run.toml").write_text(FILE + AWAY)
    with Runner.start(tmp_path / "runs", "one", RunConfig.of(RunConfig.read(tmp_path / "run.toml"))) as runner:
        runner.play(stop=lambda: runner.session.round >= 7)
    code, out, err = tacit("resume", "one")
    assert code == 0
    assert "round 15/15: " in err
    said = one_line(out)
    assert re.search(r"\S+ at δ=0.001, add-or-remove-one, pld, against any one other agent", said)
    assert "agent 3 is away in rounds 2 to 4" in said
    assert tacit("report", "one")[0] == 0
    page = words_of(tmp_path / "runs" / "one" / "report.html")
    assert "agent 4 is away from round 6 on, for good; masks are shared without it from round 8 on" in page
    assert re.search(r"in 5 of 12 rounds masks shared with absent agents do not cancel", page)


def test_a_budget_of_all_runs_may_be_against_some_curious_agents(tacit, tmp_path):
    (tmp_path / "run.toml").write_text(FILE)
    assert tacit("train", "run.toml", "--name", "one", "-q", "--budget", 5, "--budget-against", 1)[0] == 0
    assert json.loads(tacit("ledger", "--json")[1])["budgets"][0]["observer"] == "1"
    code, _, err = tacit("train", "run.toml", "--budget-against", 1)
    assert code == 2
    assert "--budget is missing" in err
