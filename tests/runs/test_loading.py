"""`tacit.load` gives the result that the run ended with, field by field: also of runs with votes, and of sites among peers."""

from dataclasses import fields, is_dataclass, replace

import networkx as nx
import numpy as np
import pytest
import torch

import tacit
from tacit.algorithms import PATE
from tacit.models import FlatModel
from tacit.peer.recording import SiteRun
from tacit.privacy import DurableLedger
from tacit.privacy.noise_kinds import Masked
from tacit.privacy.votes import Votes
from tacit.runs import Runner
from tacit.runs.config import RunConfig
from tacit.training.results import Absent
from tests.peer.sites import Consortium, play_all

BASE = {
    "dataset": "digits",
    "agents": 4,
    "split": "0.5",
    "noise_multiplier": 3.0,
    "lot_size": 24,
    "rounds": 2,
    "source": "seeded",
    "compile": False,
}
VOTES = "pate:teachers=4,records=30,answers=20,threshold=0.3,teacher_steps=3"
KINDS = {
    "without privacy": {"private": False, "noise_multiplier": None},
    "each agent its own": {"noise_multiplier": [1.0, 2.0, 3.0, 4.0], "clip": [1.0, 2.0, 1.0, 0.5]},
    "masked where masks are of no use": {"noise": "cancelling", "algorithm": "dinno"},
    "votes": {"algorithm": VOTES, "lot_size": None},
}


def check_same(loaded, live, what="result"):
    """Compare all that two objects hold, down to the last number."""
    assert type(loaded) is type(live), what
    if isinstance(live, torch.Tensor):
        assert torch.equal(loaded, live), what
    elif isinstance(live, np.ndarray):
        assert loaded.dtype == live.dtype, what
        assert np.array_equal(loaded, live, equal_nan=True), what
    elif isinstance(live, float):
        assert np.array_equal(loaded, live, equal_nan=True), what
    elif isinstance(live, nx.Graph):
        assert nx.utils.graphs_equal(loaded, live), what
    elif isinstance(live, list | tuple):
        assert len(loaded) == len(live), what
        for place, pair in enumerate(zip(loaded, live, strict=True)):
            check_same(*pair, f"{what}[{place}]")
    elif isinstance(live, FlatModel):
        assert (loaded.layout, loaded.dtype, loaded.loss) == (live.layout, live.dtype, live.loss), what
    elif isinstance(live, DurableLedger):
        keys = ("run", "token", "state", "spent", "lines")
        check_same(*([[getattr(each, key) for key in keys] for each in one.accounts] for one in (loaded, live)), what)
    elif is_dataclass(live):
        for field in fields(live):
            check_same(getattr(loaded, field.name), getattr(live, field.name), f"{what}.{field.name}")
    else:
        assert loaded == live, what


def check_loaded(live, **objects):
    """Load a run and compare it with the result that it ended with; return what was loaded."""
    loaded = tacit.load(live.folder, **objects)
    check_same(loaded, live)
    assert loaded.plan.mechanisms == live.plan.mechanisms
    assert repr(loaded) == repr(live)
    assert loaded.guarantees() == live.guarantees()
    assert loaded.epsilons_against() == live.epsilons_against()
    assert np.array_equal(loaded.epsilons_over_time(), live.epsilons_over_time())
    assert loaded.samples_per_second == live.samples_per_second
    check_same(loaded.module(0).state_dict()["1.weight"], live.module(0).state_dict()["1.weight"])
    check_same(loaded.evaluate(), live.evaluate())
    return loaded


def with_ledger(result):
    """Return a result of a run that is closed, with its ledger open for reading."""
    return replace(result, ledger=DurableLedger(result.folder.parent / "ledger.sqlite", read_only=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_the_command_line_is_loaded_as_it_ended(tmp_path, kind):
    given = {key: value for key, value in (BASE | KINDS[kind]).items() if value is not None}
    with Runner.start(tmp_path, "one", RunConfig.of(given)) as runner:
        live = runner.play(stop=lambda: False)
    check_loaded(with_ledger(live))


def test_a_masked_run_is_loaded_after_the_file_of_its_keys_is_gone(tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text("0 1\n1 2\n2 3\n3 0\n")
    with Runner.start(tmp_path, "one", RunConfig.of(BASE | {"noise": "cancelling", "keys": str(keys)})) as runner:
        live = runner.play(stop=lambda: False)
    keys.unlink()
    check_loaded(with_ledger(live))


@pytest.mark.parametrize(
    ("rule", "privacy"),
    [
        (tacit.DSGT(), {"noise_multiplier": 3.0, "noise": tacit.Cancelling(keys=nx.cycle_graph(4), ratio=2.0)}),
        (PATE(teachers=4, records=30, answers=20, threshold=0.3, teacher_steps=3), {"noise_multiplier": 3.0}),
    ],
    ids=["masked", "votes"],
)
def test_a_run_from_python_is_loaded_as_it_ended(tmp_path, rule, privacy):
    settings = {
        "model": tacit.models.logistic((1, 8, 8), 10),
        "data": tacit.data.load("digits").split(4, tacit.data.IID()),
        "graph": tacit.graphs.ring(4),
        "privacy": tacit.Privacy(delta=1e-5, clip=1.0, lot_size=24.0, **privacy),
        "rounds": 2,
        "lr": 0.5,
        "sources": tacit.Seeded(0),
        "compile": False,
    }
    live = tacit.train(rule, **settings, run="one", runs=tmp_path)
    check_loaded(live, model=settings["model"])


# Own noise differs, so a mechanism of another member would be seen, or refused.
SITES = {
    "plain": {"noise_multiplier": [2.0, 3.0, 4.0]},
    "masked": {"noise_multiplier": [2.0, 3.0, 4.0], "noise": "cancelling"},
    "votes": {"algorithm": VOTES, "epsilon": 20.0, "delta": 1e-3, "noise_multiplier": None, "lot_size": None},
    "records of its own": {"whole": True},
}


@pytest.mark.parametrize("kind", SITES)
def test_a_sites_run_is_loaded_as_it_ended(tmp_path, monkeypatch, kind):
    consortium, finish, ended = Consortium(tmp_path, 3, rounds=2, **SITES[kind]), SiteRun.finish, {}

    def finished(run):
        ended[run.agent] = finish(run)
        return ended[run.agent]

    monkeypatch.setattr(SiteRun, "finish", finished)
    assert play_all(consortium) == ["finished"] * 3
    assert sorted(ended) == [0, 1, 2]
    for agent, live in ended.items():
        loaded = check_loaded(with_ledger(live))
        assert loaded.plan.numbers == (agent,)
        (mechanism,) = loaded.plan.mechanisms
        assert isinstance(mechanism.noise, Votes) == (kind == "votes")
        assert not isinstance(mechanism.noise, Masked) or mechanism.noise.agent == agent
        assert loaded.data.sizes == loaded.sizes == (consortium.agreement.members[agent].records,)


def test_a_site_whose_data_set_is_divided_otherwise_now_is_loaded_without_its_records(tmp_path, monkeypatch):
    consortium = Consortium(tmp_path, 2, pairs=[(0, 1)], rounds=2)
    assert play_all(consortium) == ["finished"] * 2
    path, load_data = consortium.run_folder(1).path, RunConfig.load_data
    monkeypatch.setattr(
        RunConfig, "load_data", lambda config: replace(load_data(config), owners=("a", "b"), partition="")
    )
    loaded = tacit.load(path)
    assert isinstance(loaded.data, Absent)
    with pytest.raises(tacit.errors.InvalidInput, match="not divided as when 'south' had its part of them"):
        loaded.evaluate()
    assert loaded.guarantees()[0].epsilon > 0
