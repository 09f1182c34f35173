"""Every ε is shown with whom it holds against: with masks, against the promised observer and against everybody else together."""

import json
import math
import re

import networkx as nx
import pytest
from invoking import answer, complaint, document, is_picture, one_line

from tacit.privacy.accounting import ceil_digits, epsilon
from tacit.privacy.cancelling import masks_for
from tacit.privacy.event import Event
from tacit.privacy.keys import Keys
from tacit.privacy.observers import Observer
from tacit.report.wording import explain_cut_off
from tacit.runs import Runner
from tacit.runs.config import RunConfig

SETTING = ["--dataset-size", 6000, "--lot-size", 256, "--queries", 2000]
ROUNDED_UP = 1e-4  # of own noise and masks, which have five digits
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
    assert found["epsilon_against"]["2"] == pytest.approx(found["epsilon"], rel=ROUNDED_UP)
    assert found["epsilon_against"]["2"] <= found["epsilon"]
    masks = masks_for([found["noise_multiplier"]] * 10, Keys(10), 2, ratio=1.0)
    assert found["own_noise_multiplier"] == pytest.approx(masks.own[0], rel=ROUNDED_UP)
    assert found["mask_multiplier"] == pytest.approx(masks.size, rel=ROUNDED_UP)
    own = Event(sample_rate=256 / 6000, noise_multiplier=found["own_noise_multiplier"], count=2000)
    assert found["epsilon_against"]["all"] == pytest.approx(epsilon([own], delta=1e-5))
    assert found["noise_of_average"] == pytest.approx(
        math.sqrt(10) * found["own_noise_multiplier"] / found["noise_multiplier"]
    )
    assert found["noise_of_average"] == pytest.approx(1.18, abs=0.01)


def test_a_budget_from_sigma_and_with_keys_of_a_kind_or_a_file_names_who_is_cut_off(tmp_path):
    ring = document("budget", "--noise-multiplier", 7.19, *MASKED, "--keys", "ring", "--mask-ratio", 5)
    assert ring["noise_multiplier"] == 7.19
    assert ring["mask_multiplier"] == pytest.approx(5 * 7.19, rel=ROUNDED_UP)
    assert ring["epsilon_against"]["2"] == ring["epsilon_against"]["all"] > 3 * ring["epsilon_against"]["1"]
    path = tmp_path / "keys.txt"
    path.write_text("\n".join(f"{i} {j}" for i, j in nx.cycle_graph(10).edges))
    kept = document("budget", "--noise-multiplier", 7.19, *MASKED, "--keys", path, "--mask-ratio", 5)
    assert kept["epsilon_against"] == ring["epsilon_against"]
    said = answer("budget", "--noise-multiplier", 7.19, *MASKED, "--keys", "ring")
    assert (
        "Against any 2 other agents together, only own noise protects every agent: all with whom it shares keys may be curious."
        in one_line(said)
    )
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
        (["--agents", 10], "--agents means nothing without --noise cancelling"),
        (["--curious", 2], "--curious means nothing without --noise cancelling"),
        (["--graph", "ring"], "--graph means nothing without --noise cancelling"),
        (["--curious", 1], "--curious means nothing without --noise cancelling"),
        (
            ["--noise", "cancelling", "--agents", 10, "--curious", 9],
            "fewer than two are then left to share masks with each other",
        ),
        (
            ["--noise", "cancelling", "--agents", 10, "--keys", "graph"],
            "name it with --graph, or name the kind of keys, such as ring",
        ),
        (["--noise", "cancelling", "--agents", 10, "--keys", "rign"], "did you mean 'ring'"),
        (["--noise", "cancelling", "--agents", 10, "--mask-ratio", "much"], 'it must be a number or "auto"'),
    ],
)
def test_a_budget_refuses_masks_that_make_no_sense(words, said):
    assert said in complaint("budget", "--epsilon", 1, *SETTING, *words)


def test_a_budget_has_no_masks_where_a_run_would_drop_them():
    """With keys around a ring, two curious agents can know all masks of the one between them."""
    found = document("budget", "--noise-multiplier", 7.19, *MASKED, "--keys", "ring", "--curious", 2)
    assert found["mask_multiplier"] == 0
    assert found["own_noise_multipliers"] == pytest.approx([7.19] * 10)
    assert found["epsilon_against"] == {"2": found["epsilon"], "all": found["epsilon"]}
    said = answer("budget", "--noise-multiplier", 7.19, *MASKED, "--keys", "ring", "--curious", 2)
    assert "masks would not help" in said
    assert "masks have a size" not in one_line(said)


def test_a_budget_that_knows_the_rule_and_graph_has_the_masks_of_the_run(tmp_path):
    settings = {"noise": "cancelling", "agents": 10, "graph": "ring", "lr": 4.0, "lr_final": 0.4, "delta": 1e-3}
    run = {"dataset": "synthetic:1000", "split": "iid", "epsilon": 4.0, "lot_size": 20.0, "rounds": 40}
    with Runner.start(tmp_path, "one", RunConfig.of(settings | run)) as runner:
        plan, sizes, queries = runner.session.plan, set(runner.session.sizes), runner.session.plan.queries
    (size,) = sizes
    told = [word for key, value in settings.items() for word in (f"--{key.replace('_', '-')}", value)]
    asked = ["budget", "--epsilon", 4, "--dataset-size", size, "--lot-size", 20, "--queries", queries, "--rounds", 40]
    found = document(*asked, *told)
    assert found["masks_chosen_for"] == "dsgt on ring"
    assert found["own_noise_multipliers"] == pytest.approx(plan.noise_multipliers, rel=1e-6)
    assert found["mask_multiplier"] == pytest.approx(plan.masks.size * 20, rel=1e-6)
    unknown = document(*asked[:-2], "--noise", "cancelling", "--agents", 10, "--delta", 1e-3)
    assert unknown["masks_chosen_for"] is None
    assert unknown["mask_multiplier"] != pytest.approx(found["mask_multiplier"], rel=0.1), "else this tests nothing"


def test_a_budget_says_what_the_size_of_masks_was_chosen_for():
    asked = ["budget", "--epsilon", 1, *SETTING[:4], "--queries", 40, "--noise", "cancelling", "--agents", 9]
    assert "the rule and graph are not known here" in one_line(answer(*asked))
    assert "the best for dsgd on torus, as in a run" in answer(*asked, "--algorithm", "dsgd", "--graph", "torus")
    assert "dinno is not linear in its gradients" in one_line(answer(*asked, "--algorithm", "dinno"))
    assert "not known here" not in answer(*asked, "--mask-ratio", 1)
    neighbours = document(*asked, "--graph", "ring", "--keys", "graph", "--mask-ratio", 5)
    assert neighbours["own_noise_multipliers"] == pytest.approx(
        document(*asked, "--keys", "ring", "--mask-ratio", 5)["own_noise_multipliers"]
    )


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
        r"round 15/15: .*; ε per record \S+ of \S+ against any 2 other [^;]*; ε per record \S+ of \S+ against everybody",
        one_line(err),
    )
    assert f"ε={two:.4g} per record {together}, and ε={most:.4g} against everybody else together" in one_line(out)
    assert "own noise σ" in out
    (row,) = json.loads(tacit("list", "--json")[1])["runs"]
    assert (row["epsilon"], row["observer"], row["of"]) == (two, "any 2 other agents together", 15)
    assert row["epsilon_against"] == {"2": two, "all": most}
    *_, listed, below = (line.split() for line in tacit("list")[1].splitlines())
    assert [listed[0], float(listed[7]), listed[8:10]] == ["one", two, ["any", "2"]]
    assert [float(below[0]), below[1]] == [most, "all"]
    rows = json.loads(tacit("ledger", "--json")[1])["spent"]
    for observer, value in (("any 2 other agents together", two), ("everybody else together", most)):
        found = [
            each["epsilon"]["add_remove"] for each in rows if each["run"] == "one" and each["observer"] == observer
        ]
        assert ceil_digits(max(found)) == value
    shown = [line.split() for line in tacit("ledger")[1].splitlines() if line.startswith("one ")]
    assert [float(line[-4]) for line in shown] == [two, most]
    assert "each party as one agent" not in one_line(tacit("ledger")[1])
    assert tacit("report", "one", "--figures")[0] == 0
    page = words_of(tmp_path / "runs" / "one" / "report.html")
    assert f"ε = {two:.4g} per record {together}, and ε = {most:.4g} against everybody else together, at δ" in page
    assert f"ε per record, against everybody else together {most:.4g}" in page
    assert "ε against curious agents" in page
    assert (tmp_path / "runs" / "one" / "figures" / "observers.png").is_file()
    assert tacit("ledger", "--verify")[0] == 0


def test_a_run_names_the_agent_whom_masks_do_not_protect(tacit, tmp_path):
    """Agent 4 shares a key with agent 3 alone, who may be the curious one."""
    pairs = [*nx.complete_graph(4).edges, (3, 4)]
    (tmp_path / "keys.txt").write_text("\n".join(f"{i} {j}" for i, j in pairs))
    (tmp_path / "run.toml").write_text(FILE)
    code, out, _ = tacit("train", "run.toml", "--name", "one", "--keys", "keys.txt", "--rounds", 2)
    assert code == 0
    assert "agent 4: own noise alone against any one other agent" in one_line(out)
    assert tacit("report", "one")[0] == 0
    page = words_of(tmp_path / "runs" / "one" / "report.html")
    assert (
        "Against any one other agent, only own noise protects agent 4: all with whom it shares keys may be curious."
        in page
    )


def test_agents_without_the_protection_of_masks_are_named_however_they_are_numbered():
    said = explain_cut_off({Observer(1): [1], Observer(2): [*range(1, 21, 2)], Observer(3): [*range(0, 200, 2)]}, 201)
    assert [words.split(": ")[0] for words in said] == [
        "Against any one other agent, only own noise protects agent 1",
        "Against any 2 other agents together, only own noise protects agents 3, 5, 7, 9, 11, 13, 15, 17, 19",
        "Against any 3 other agents together, only own noise protects 100 agents",
    ]


def test_a_comparison_of_runs_against_different_observers_says_so(tacit, tmp_path):
    (tmp_path / "run.toml").write_text(FILE)
    assert tacit("train", "run.toml", "--name", "one", "-q")[0] == 0
    assert tacit("train", "run.toml", "--name", "two", "-q", "--curious", 2)[0] == 0
    code, _, err = tacit("compare", "one", "two", "--figures")
    assert code == 0
    assert "state ε against different observers" in one_line(err)
    page = words_of(tmp_path / "comparison.html")
    assert "state ε against different observers" in page
    assert "any 1" in page
    assert "any 2" in page
    assert "ε of all runs against any k agents counts each party as one agent in every run" in one_line(
        tacit("ledger")[1]
    )


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
