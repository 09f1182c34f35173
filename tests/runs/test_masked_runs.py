"""Run folders of runs whose noise cancels: settings, plan, summary, budgets, and resumes under masks that were never used before."""

import json
import os
import tomllib
from contextlib import closing
from dataclasses import replace

import forked
import networkx as nx
import pytest
import torch

import tacit
from tacit.errors import BudgetExceeded, InvalidInput
from tacit.privacy import Budget, DurableLedger, Observer, PrivateOracle, randomness
from tacit.privacy.noise_kinds import Masks
from tacit.privacy.observers import EVERYBODY
from tacit.runs import RunFolder, Runner
from tacit.runs.answers import AnswerLog
from tacit.runs.config import RunConfig

BASE = {
    "dataset": "digits",
    "agents": 5,
    "split": "iid",
    "noise_multiplier": 3.0,
    "lot_size": 24,
    "rounds": 12,
    "source": "seeded",
    "checkpoint_every": 5,
    "evaluate_every": 3,
    "noise": "cancelling",
    "mask_ratio": 1.0,
}


def config(**changes):
    return RunConfig.of(BASE | changes)


def play(runner):
    with runner:
        return runner.play(stop=lambda: False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupted."""
    runs = tmp_path_factory.mktemp("whole")
    result = play(Runner.start(runs, "one", config()))
    return replace(result, ledger=DurableLedger(runs / "ledger.sqlite", read_only=True))


def test_plan_ledger_and_summary_keep_own_noise_masks_and_keys(whole):
    folder = RunFolder.find(whole.folder)
    plan, summary = folder.events().plan, folder.summary()
    assert (plan.masks["keys"], plan.masks["lost"], plan.observer) == (None, 0, "1")
    assert Masks.of_json(plan.masks) == whole.plan.masks
    with closing(DurableLedger(folder.ledger_file)) as ledger:
        account = ledger.account("one")
        assert tuple(line.mechanism for line in account.lines) == plan.mechanisms == whole.plan.mechanisms
    assert summary["observer"] == "any one other agent"
    assert list(summary["epsilon_against"]) == ["1", "2", "3", "all"]
    values = list(summary["epsilon_against"].values())
    assert values == sorted(values)
    assert summary["epsilon"] == summary["epsilon_against"]["1"] < values[-1]
    assert values[-1] == pytest.approx(max(each.epsilon for each in whole.guarantees(EVERYBODY)), rel=1e-3)


def test_without_masks_everybody_else_is_the_only_observer(tmp_path):
    play(Runner.start(tmp_path, "one", config(noise="local", mask_ratio="auto", rounds=3)))
    folder = RunFolder.find(tmp_path / "one")
    assert folder.events().plan.masks is None
    assert folder.summary()["epsilon_against"] == {"all": folder.summary()["epsilon"]}
    play(Runner.start(tmp_path, "two", RunConfig.of({"private": False, "agents": 5, "split": "iid", "rounds": 3})))
    assert RunFolder.find(tmp_path / "two").summary()["epsilon_against"] is None


def test_a_run_is_loaded_with_its_masks(whole):
    again = tacit.load(whole.folder)
    assert again.plan.masks == whole.plan.masks
    assert again.plan.observer == Observer(1)
    assert again.plan.privacy.noise == tacit.Cancelling(curious=1, ratio=1.0)
    assert again.epsilons_against() == whole.epsilons_against()
    assert [each.epsilon for each in again.guarantees()] == [each.epsilon for each in whole.guarantees()]


def test_a_running_run_states_both_epsilons(tmp_path):
    with Runner.start(tmp_path, "one", config(rounds=3)) as runner:
        runner.play(stop=lambda: False)
        last = runner.session.monitor.histories[0][-1]
        words = runner.state_epsilon_at(last)
        one, everybody = (runner.epsilon_at(last, each) for each in (Observer(1), EVERYBODY))
    assert runner.epsilon_at(last) == one < everybody
    assert " per record against any one other agent, and ε=" in words
    assert " against everybody else together at δ=1e-05, add-or-remove-one, pld" in words


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise": "local", "mask_ratio": "auto", "curious": 2}, 'curious means nothing without noise = "cancelling"'),
        ({"noise": "local"}, "mask_ratio means nothing without"),
        ({"noise": "local", "mask_ratio": "auto", "keys": "graph"}, "keys means nothing without"),
        ({"noise": "masks"}, "it must be one of local, cancelling"),
        ({"curious": 4}, "of 5 agents, fewer than two are then left"),
        ({"curious": 2, "lost": 2}, "lost is 2: of 5 agents"),
        ({"curious": -1}, "curious is -1; it must be at least 0"),
        ({"mask_ratio": 0}, "mask_ratio is 0; it must lie between 0 and 1000"),
        ({"mask_ratio": "large"}, "mask_ratio is 'large'; it must be a number or \"auto\""),
        ({"private": False, "noise_multiplier": None}, 'noise = "cancelling" needs privacy'),
        ({"algorithm": "local"}, "means nothing to local"),
        ({"algorithm": "dinno", "exchanges_per_query": 2}, "exchanges_per_query means nothing to dinno"),
        ({"absences": [{"agent": 5, "first": 0}]}, "agent 5 is to be away, but agents are numbered from 0 to 4"),
        ({"absences": [{"agent": 1, "first": 12}]}, "away from round 12 on, but the run ends after 12 rounds"),
        ({"absences": [{"agent": 1, "first": 2, "rekey": 3}]}, "without 1 agents, but lost is 0; set it to 1"),
        ({"absences": [{"agent": 1, "when": 2}]}, "absences.0.first is missing"),
        ({"gossip_rounds": -1}, "gossip_rounds is -1; it must be at least 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    settings = {key: value for key, value in (BASE | changes).items() if value is not None}
    with pytest.raises(InvalidInput) as caught:
        RunConfig.of(settings)
    assert message in str(caught.value)


def test_options_displace_what_they_contradict():
    masked = BASE | {"curious": 2, "keys": "graph"}
    assert RunConfig.of(masked, {"noise": "local"}).curious == 1
    assert RunConfig.of(masked, {"private": False}).noise == "local"
    with pytest.raises(InvalidInput, match="--curious means nothing without --noise cancelling"):
        RunConfig.of({"epsilon": 1.0}, {"curious": 2})


def test_keys_are_a_word_a_kind_of_graph_or_a_file(tmp_path):
    nx.write_edgelist(nx.cycle_graph(5), tmp_path / "keys.txt", data=False)
    pairs = {}
    for name, keys in {"kind": "ring", "file": str(tmp_path / "keys.txt"), "graph": "graph"}.items():
        with Runner.start(tmp_path, name, config(keys=keys, rounds=2)):
            plan = RunFolder.find(tmp_path / name).events().plan
            pairs[name] = sorted(map(tuple, plan.masks["keys"]))
    assert pairs["kind"] == pairs["file"] == pairs["graph"] == sorted((min(e), max(e)) for e in nx.cycle_graph(5).edges)
    for keys, message in {"matchings": "whose links change", "circle": "keys is 'circle'; give complete"}.items():
        with pytest.raises(InvalidInput, match=message):
            Runner.start(tmp_path, "none", config(keys=keys))
    (tmp_path / "keys.txt").write_text("0 1\n1 2\n2 3\n3 4\n")
    with pytest.raises(InvalidInput, match=r"the key graph .*keys.txt' was changed since the run began; put it back"):
        Runner.resume(tmp_path / "file")


def test_all_settings_come_back_from_toml():
    made = config(
        curious=2,
        keys="ring",
        lost=1,
        gossip_rounds=3,
        exchanges_per_query=2,
        absences=[{"agent": 1, "first": 2, "rekey": 4}],
    )
    assert RunConfig.of(tomllib.loads(made.to_toml())) == made
    training = made.prepare(lambda step: None)
    assert training.cancelling.curious == 2
    assert training.absences == (tacit.Absence(1, 2, rekey=4),)
    assert (training.gossip_rounds, training.exchanges_per_query) == (3, 2)


def python_settings(**changes):
    noise = tacit.Cancelling(curious=1, keys=nx.path_graph(5), ratio=2.0, lost=1)
    return {
        "model": tacit.models.logistic((1, 8, 8), 10),
        "data": tacit.data.load("digits").split(5, tacit.data.IID()),
        "graph": tacit.graphs.ring(5),
        "privacy": tacit.Privacy(noise_multiplier=3.0, delta=1e-5, clip=1.0, lot_size=24, noise=noise),
        "rounds": 8,
        "gossip_rounds": 3,
        "exchanges_per_query": 2,
        "absences": [tacit.Absence(4, 2, 4), tacit.Absence(1, 5, rekey=6)],
        "lr": 0.5,
        "sources": tacit.Seeded(0),
        **changes,
    }


def stop_after(monkeypatch, answers):
    """Let training end with Ctrl-C before the query after so many."""
    gradient, made = PrivateOracle.gradient, []

    def limited(self, theta):
        if len(made) == answers:
            raise KeyboardInterrupt
        made.append(1)
        return gradient(self, theta)

    monkeypatch.setattr(PrivateOracle, "gradient", limited)


def test_a_run_from_python_keeps_masks_gossip_and_absences(tmp_path, monkeypatch):
    settings = python_settings()
    uninterrupted = tacit.train(tacit.DSGT(), **settings, spare_queries=2)
    with monkeypatch.context() as patch:
        stop_after(patch, 6)
        with pytest.raises(KeyboardInterrupt):
            tacit.train(tacit.DSGT(), **settings, run="one", runs=tmp_path, checkpoint_every=4)
    kept = tomllib.loads((tmp_path / "one" / "config.toml").read_text())
    assert (kept["noise"], kept["curious"], kept["mask_ratio"], kept["lost"]) == ("cancelling", 1, 2.0, 1)
    assert kept["keys"] == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert kept["absences"] == [{"agent": 4, "first": 2, "until": 4}, {"agent": 1, "first": 5, "rekey": 6}]
    resumed = tacit.resume(tmp_path / "one", model=settings["model"])
    assert torch.equal(resumed.theta, uninterrupted.theta)
    assert resumed.plan.masks == uninterrupted.plan.masks
    assert resumed.history[-1].round == 11
    assert resumed.history[-1].queries == 8


def play_until_killed(tell, folder, moment):
    """Resume a run and die by SIGKILL: in its fourth answer, before it is charged, or after that and before it is on disk."""
    made = []

    def die_in_fourth(method):
        def counted(self, *given):
            made.append(1)
            if len(made) == 4:
                os.kill(os.getpid(), 9)
            return method(self, *given)

        return counted

    if moment == "between compute and release":
        PrivateOracle._spend = die_in_fourth(PrivateOracle._spend)
    else:
        AnswerLog.append = die_in_fourth(AnswerLog.append)
    with Runner.resume(folder) as runner:
        runner.play(stop=lambda: False)


@pytest.mark.parametrize(("moment", "lost"), [("between compute and release", 0), ("between charge and record", 1)])
def test_a_killed_seeded_run_goes_on_at_the_same_place_of_its_masks(tmp_path, whole, moment, lost):
    """Nothing left the oracle, so the query is made again with the lots, noise and masks that it would have had."""
    with Runner.start(tmp_path, "one", config()):
        pass
    child, said = forked.start(play_until_killed, tmp_path / "one", moment)
    with said:
        child.join()
    assert child.exitcode == -9
    resumed = play(Runner.resume(tmp_path / "one"))
    assert torch.equal(resumed.theta, whole.theta)
    events = RunFolder.find(tmp_path / "one").events()
    assert events.lost_queries == lost
    with closing(DurableLedger(tmp_path / "ledger.sqlite")) as ledger:
        assert ledger.account("one").spent == 12 + lost


@pytest.mark.parametrize("moment", ["between compute and release", "between charge and record"])
def test_a_killed_secret_run_has_new_masks_and_replays_what_it_released(tmp_path, monkeypatch, moment):
    """No mask key is ever used again: answers on disk are replayed, and every query after them has keys of the new process."""
    used = []
    make = randomness.mask_key

    def noted(shared, run, query):
        used.append((shared, query))
        return make(shared, run, query)

    with Runner.start(tmp_path, "one", config(source="secret")):
        pass
    child, said = forked.start(play_until_killed, tmp_path / "one", moment)
    with said:
        child.join()
    assert child.exitcode == -9
    answers = AnswerLog(tmp_path / "one" / "answers-00000000.bin", RunFolder.find(tmp_path / "one").events().plan.token)
    released = answers.read(torch.device("cpu"))
    assert len(released) == 3
    monkeypatch.setattr(randomness, "mask_key", noted)
    asked = []
    with Runner.resume(tmp_path / "one") as runner:
        oracle, gradient = runner._oracle, runner._oracle.gradient

        def heard(theta):
            asked.append(gradient(theta))
            return asked[-1]

        oracle.gradient = heard
        assert runner.play(stop=lambda: False) is not None
    assert all(torch.equal(one, other) for one, other in zip(asked, released, strict=False))
    assert sorted({query for _, query in used}) == list(range(3, 12)), "replayed queries take no masks"
    assert len({shared for shared, _ in used}) == 10, "one secret for each pair, of this process"
    assert len(used) == len(set(used))
    assert json.loads((tmp_path / "one" / "summary.json").read_text())["release"] is True


def test_a_budget_counts_everybody_else_unless_it_names_an_observer(tmp_path):
    """ε=1 against any one is more against everybody else, and that is what a plain budget bounds."""
    settings = {"noise_multiplier": None, "epsilon": 1.0, "rounds": 3, "spare_queries": 0}
    settings = {key: value for key, value in (BASE | settings).items() if value is not None}
    masked = RunConfig.of(settings)
    with pytest.raises(BudgetExceeded, match=r"past its budget of ε=1\.2 at"):
        Runner.start(tmp_path / "plain", "one", masked, budget=Budget(epsilon=1.2, delta=1e-5))
    assert not (tmp_path / "plain" / "one").exists()
    stated = Budget(epsilon=1.2, delta=1e-5, observer=Observer(1))
    play(Runner.start(tmp_path / "stated", "one", masked, budget=stated))
    with pytest.raises(BudgetExceeded, match=r"past its budget of ε=1\.2 against any one other agent"):
        Runner.start(tmp_path / "stated", "two", masked)
    with closing(DurableLedger(tmp_path / "stated" / "ledger.sqlite")) as ledger:
        assert ledger.budget == stated
    larger = Budget(epsilon=20.0, delta=1e-5)
    play(Runner.start(tmp_path / "larger", "one", masked, budget=larger))
    against = RunFolder.find(tmp_path / "larger" / "one").summary()["epsilon_against"]
    assert against["1"] <= 1.0 < 1.2 < against["all"] <= 20.0


def test_the_ledger_verifies_a_run_with_masks(whole):
    """`tacit ledger --verify` derives ε for the observer that the run was planned against."""
    from typer.testing import CliRunner

    from tacit.cli import app

    said = CliRunner().invoke(app, ["ledger", "--runs", str(whole.folder.parent), "--delta", "1e-5", "--verify"])
    assert said.exit_code == 0, said.output
    assert "the record is complete" in " ".join(said.output.split())
