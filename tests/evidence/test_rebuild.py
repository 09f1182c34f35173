"""Scores and replays of runs with parts of the library, from the command line and from Python; the owner's own code is left alone."""

from functools import partial

import pytest
import torch
from auditing import failed, head_of, not_held, outcomes, play
from python_runs import DIGITS, changed_part, named_model, train
from tampering import forge, read_events, write_events

import tacit
from tacit.runs import RunFolder

SHIPPED = {
    "a lambda, as the documentation has it": {},
    "a model by the name of its function": {"model": partial(tacit.models.mlp, (1, 8, 8), 10, hidden=(12, 9))},
    "a model by a text": {"model": "tacit.models:logistic"},
    "an MLP of other widths": {"model": lambda: tacit.models.mlp((1, 8, 8), 10, hidden=(12,))},
    "rules and steps with settings": {
        "algorithm": tacit.algorithms.Averaged(
            tacit.DiNNO(rho=0.2, inner_steps=2, step=tacit.algorithms.Momentum(0.5)), 0.9
        ),
        "lr": tacit.LogSpaced(0.5, 0.1),
    },
    "one agent": {
        "algorithm": tacit.SGD(),
        "data": DIGITS.split(4, tacit.data.IID()).pooled(),
        "graph": None,
        "sources": tacit.privacy.Fast(3),
    },
    "agents that start apart": {"same_start": False, "data": DIGITS.split(4, tacit.data.ByClass(t=0.5))},
    "a noise that was calibrated": {
        "privacy": tacit.Privacy(epsilon=[1.0, 2.0, 3.0, 4.0], delta=1e-3, clip=1.0, lot_size=24)
    },
    "no privacy": {"privacy": tacit.NoPrivacy(lot_size=24), "sources": None},
    "made-up records": {
        "data": tacit.data.synthetic(400, features=6, classes=3).split(4, tacit.data.Dirichlet(alpha=2.0)),
        "model": lambda: tacit.models.logistic((6,), 3),
    },
    "declared numbers of records": {"sizes": [400, 400, 400, 400]},
    "a rule, a loss and a graph by name": {"algorithm": "dsgt", "loss": "cross_entropy", "graph": "ring"},
    "a graph by name with options": {"graph": "random:density=0.7,tolerance=0.2"},
    "a schedule by name": {"algorithm": "dsgd", "graph": "base"},
    "Base-(k+1) graphs": {"graph": tacit.networks.base_graphs(4, peers=2)},
    "one peer at a time": {"graph": tacit.networks.one_peer_exponential(4)},
    "matchings with several exchanges": {
        "graph": tacit.networks.Several(tacit.networks.RandomMatchings(4, seed=9), 2),
    },
    "agents that move": {"graph": tacit.networks.Moving(4, reach=0.7, leg=7, window=40, seed=2)},
    "everything by name": {
        "algorithm": "dsgt",
        "model": "logistic",
        "data": "digits",
        "agents": 4,
        "split": "iid",
        "graph": "ring",
    },
}


@pytest.mark.parametrize("which", SHIPPED)
def test_a_run_from_python_of_shipped_parts_is_scored_and_played_again_to_the_bit(tmp_path, which):
    train(tmp_path, **SHIPPED[which])
    found = outcomes(tmp_path, head=head_of(tmp_path), replay=True)
    assert not_held(found) == {}
    assert "it gives the same models and the same 3 snapshots to the bit" in found["replay"].words
    assert "validation records" in found["scores on validation"].words


def test_a_release_from_python_is_planned_and_scored_again(tmp_path):
    train(tmp_path, sources=None)
    found = outcomes(tmp_path, head=head_of(tmp_path), replay=True)
    assert set(not_held(found)) == {"replay"}
    assert "nobody can replay the run" in found["replay"].words


def test_accuracies_of_a_run_from_python_are_held_against_public_records_and_seeds(tmp_path):
    train(tmp_path)
    last = {"accuracy": [0.99] * 4}

    def summary(facts):
        return (
            facts | {f"accuracy_{name}": 0.99 for name in ("mean", "min", "max")} | {"accuracy_per_agent": [0.99] * 4}
        )

    forge(
        tmp_path,
        "one",
        event=lambda event: event | last if event.get("round") == 4 and "loss" in event else event,
        summary=summary,
    )
    assert failed(tmp_path, replay=True) == {"scores on validation", "replay"}


def test_the_snapshot_of_a_run_from_python_before_its_last_is_held_against_its_seeds(tmp_path):
    train(tmp_path)
    forge(tmp_path, "one", event=lambda event: event | {"loss": [0.1] * 4} if event.get("round") == 2 else event)
    assert failed(tmp_path, replay=True) == {"replay"}


def test_with_the_owners_code_a_lambda_still_counts_as_a_model_of_the_library(tmp_path):
    train(tmp_path)
    found = outcomes(tmp_path, replay=True, run_code=True, head=head_of(tmp_path))
    assert not_held(found) == {}


@pytest.mark.parametrize(
    ("key", "made"),
    [
        ("algorithm", {"value": {"name": "tacit.algorithms.dsgd:DSGD", "with": {}}}),
        ("lr", {"value": 0.6}),
        ("sources", {"value": {"name": "tacit.privacy.randomness:Seeded", "with": {"seed": 6}}}),
        ("data", {"dataset": "digits", "split": "IID", "agents": 4, "seed": 2}),
        ("graph", {"edges": [[0, 1], [1, 2], [2, 3]]}),
    ],
)
def test_settings_whose_parts_are_not_what_they_keep_of_them_are_found(tmp_path, key, made):
    train(tmp_path)
    forge(tmp_path, "one", settings=changed_part(tmp_path, key, made=made))
    found = outcomes(tmp_path, replay=True)
    assert found["plan"].outcome == "fails"
    assert "the facts in the settings do not match what they name" in found["plan"].words


@pytest.mark.parametrize(("key", "shown"), [("lr", "0.1"), ("graph", "4 agents, 6 links"), ("loss", "hinge")])
def test_what_a_reader_is_shown_of_a_part_is_held_against_it(tmp_path, key, shown):
    train(tmp_path)
    forge(tmp_path, "one", settings={key: shown})
    assert failed(tmp_path) == {"settings"}
    forge(tmp_path, "one", settings=changed_part(tmp_path, key, shown=shown))
    assert failed(tmp_path) == {"plan"}


@pytest.mark.parametrize(("key", "name"), [("loss", "views_cross_entropy"), ("graph", "path"), ("graph", "matchings")])
def test_a_false_name_of_a_shipped_part_is_found(tmp_path, key, name):
    train(tmp_path, algorithm="dsgt", loss="cross_entropy", graph="ring")
    forge(tmp_path, "one", settings={key: name} | changed_part(tmp_path, key, shown=name))
    found = outcomes(tmp_path, replay=True)
    assert found["plan"].outcome == "fails"
    assert f"shown ({name} then" in found["plan"].words
    assert found["replay"].outcome == "not checked"
    assert "the run was not replayed: it could not be rebuilt from its settings" in found["replay"].words


def test_a_false_name_that_is_also_rebuilt_by_it_is_found(tmp_path):
    train(tmp_path, graph="ring")
    false = {"shown": "path", "made": {"shipped": "path"}}
    forge(tmp_path, "one", settings={"graph": "path"} | changed_part(tmp_path, "graph", **false))
    assert failed(tmp_path) == {"plan"}


def test_a_release_of_parts_given_by_name_is_planned_again(tmp_path):
    train(tmp_path, algorithm="dsgt", loss="cross_entropy", graph="ring", sources=None)
    found = outcomes(tmp_path, head=head_of(tmp_path), replay=True)
    assert set(not_held(found)) == {"replay"}


def test_the_owners_model_is_replayed_beside_parts_given_by_name(tmp_path):
    train(tmp_path, algorithm="dsgt", loss="cross_entropy", graph="ring", model=named_model)
    found = outcomes(tmp_path, replay=True, run_code=True, head=head_of(tmp_path))
    assert not_held(found) == {}


@pytest.mark.parametrize("weights", [True, False])
def test_a_graph_of_a_file_given_to_python_is_rebuilt_without_the_file(tmp_path, monkeypatch, weights):
    monkeypatch.chdir(tmp_path)
    lines = ["2 3 0.31", "0 3 0.17", "1 2 0.23", "0 1 0.29", "0 2 0.1"]
    rows = lines if weights else [line.rpartition(" ")[0] for line in lines]
    (tmp_path / "links.txt").write_text("\n".join(["# agents 4", *rows, ""]))
    train(tmp_path / "runs", graph="links.txt")
    (tmp_path / "links.txt").unlink()
    found = outcomes(tmp_path / "runs", head=head_of(tmp_path / "runs"), replay=True)
    assert not_held(found) == {}


def test_links_that_change_by_the_owners_rule_are_not_replayed(tmp_path):
    links = [tacit.networks.as_links(graph) for graph in (tacit.graphs.ring(4), tacit.graphs.star(4))]
    train(tmp_path, graph=tacit.networks.Cycle(tuple(links)))
    found = outcomes(tmp_path, replay=True)
    for what in ("plan", "replay"):
        assert found[what].outcome == "not checked"
        assert "the graph 'Cycle, 4 agents' is not part of the library" in found[what].words


def test_a_cycle_that_calls_itself_a_schedule_of_the_library_is_found(tmp_path):
    links = tuple(tacit.networks.as_links(graph) for graph in (tacit.graphs.ring(4), tacit.graphs.star(4)))
    train(tmp_path, graph=tacit.networks.Cycle(links, kind="base:peers=1"))
    assert failed(tmp_path) == {"plan"}


def test_a_graph_of_a_file_is_that_of_the_plan(tmp_path, monkeypatch):
    """The file is with the owner; its links and their weights are in the plan."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "links.txt").write_text("# agents 4\n2 3 0.31\n0 3 0.17\n1 2 0.23\n0 1 0.29\n0 2 0.1\n")
    play(tmp_path / "runs", graph="links.txt")
    (tmp_path / "links.txt").unlink()
    found = outcomes(tmp_path / "runs", head=head_of(tmp_path / "runs"), replay=True)
    assert not_held(found) == {}


def test_a_module_with_a_start_of_its_own_is_scored_and_not_played(tmp_path):
    """Its layers are known, and where it started from is not."""
    train(tmp_path, model=tacit.models.logistic((1, 8, 8), 10))
    found = outcomes(tmp_path, replay=True)
    assert found["scores on validation"].outcome == "holds"
    assert "by its layers, parameters, starting values hash" in found["replay"].words


def test_a_model_of_a_million_million_parameters_is_not_made(tmp_path):
    train(tmp_path)
    huge = ["1.weight: float32 [999999999, 64]", "3.weight: float32 [10, 999999999]"]
    facts = RunFolder.find(tmp_path / "one").config().parts["model"].facts
    settings = changed_part(tmp_path, "model", facts=facts | {"parameters": huge})
    forge(tmp_path, "one", settings=settings)
    assert outcomes(tmp_path)["scores"].outcome == "not checked"


def test_a_run_from_python_is_verified_but_for_what_only_its_owner_has(tmp_path):
    """Its model and records are objects that no archive holds."""
    generator = torch.Generator().manual_seed(0)
    parts = [(torch.randn(60, 3, generator=generator), torch.randint(2, (60,), generator=generator)) for _ in range(2)]
    tacit.train(
        tacit.DSGD(),
        model=lambda: torch.nn.Linear(3, 2),
        data=tacit.data.AgentData.from_parts(parts, name="visits"),
        privacy=tacit.Privacy(noise_multiplier=3.0, delta=1e-3, clip=[1.0, 2.0], lot_size=6),
        graph=tacit.graphs.path(2),
        rounds=4,
        lr=0.1,
        sources=tacit.Seeded(3),
        run="one",
        runs=tmp_path,
    )
    found = outcomes(tmp_path, head=head_of(tmp_path), replay=True)
    assert {what for what, each in found.items() if each.outcome == "fails"} == set()
    assert {what for what, each in found.items() if each.outcome == "not checked"} == {"scores", "plan", "replay"}
    for what in ("scores", "replay"):
        assert "the data set 'visits' does not come with the library" in found[what].words
    forge_python = read_events(tmp_path / "one")
    forge_python[0]["clips"] = [1.0, 1.0]
    write_events(tmp_path / "one", forge_python)
    assert {"settings", "record", "heads"} <= failed(tmp_path)
