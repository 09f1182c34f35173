"""Settings of `tacit.train`: what is refused before anything is spent, and parts by name."""

import networkx as nx
import pytest
import torch
from small_training import AGENTS, Greedy, make_model, settings
from torch import nn

import tacit
from tacit.errors import GraphError, InvalidInput, ModelError, PrivacyError


class WrongShape(Greedy):
    def round(self, state, at):
        return state._replace(theta=state.theta[:1])


@pytest.mark.parametrize(
    ("algorithm", "changes", "error", "message"),
    [
        (tacit.DSGT(), {"rounds": 0}, InvalidInput, "rounds is 0"),
        (tacit.DSGT(), {"round": 5}, InvalidInput, "did you mean 'rounds'"),
        (tacit.DSGT(), {"evaluate_every": 0}, InvalidInput, "evaluate_every is 0"),
        (tacit.DSGT(), {"graph": None}, GraphError, "among 5 agents; give a graph"),
        (tacit.DSGT(), {"graph": nx.cycle_graph(4)}, GraphError, "4 nodes, but the data has 5 agents"),
        (tacit.DSGT(), {"graph": nx.Graph([(0, 1), (2, 3), (3, 4)])}, GraphError, "connected"),
        (tacit.DSGT(), {"graph": [nx.cycle_graph(5)] * 3}, GraphError, r"3 graphs for 1 trials.* a Cycle"),
        (tacit.DSGT(), {"mixing": "metropolitan"}, InvalidInput, "did you mean 'metropolis'"),
        (tacit.DSGT(), {"mixing": "uniform", "graph": nx.star_graph(4)}, GraphError, "average"),
        (tacit.DSGT(), {"lr": -0.1}, InvalidInput, "positive"),
        (tacit.DSGT(), {"lr": [0.1, 0.2]}, InvalidInput, "2 values for 5 agents"),
        (tacit.DSGT(), {"sizes": [100]}, InvalidInput, "each of 5 agents"),
        (tacit.DSGT(), {"same_start": False, "model": make_model()}, InvalidInput, "only if model is a function"),
        (tacit.DSGT(), {"model": lambda: 3}, InvalidInput, "it made int"),
        (tacit.DSGT(), {"model": lambda: nn.Linear(3, 10)}, ModelError, "fails on a batch"),
        (tacit.DSGT(), {"model": lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64))}, ModelError, "BatchNorm1d"),
        (tacit.DSGT(), {"loss": nn.functional.cross_entropy}, ModelError, "one value per record"),
        (tacit.DSGT(), {"learning_rate": 0.1}, InvalidInput, "unknown setting 'learning_rate'; did you mean 'lr'?"),
        (
            tacit.DSGT(),
            {"epochs": 3},
            InvalidInput,
            r"did you mean 'rounds' \(in a round, each agent is asked about a lot",
        ),
        (tacit.DSGT(), {"batch_size": 32}, InvalidInput, r"give privacy=Privacy\(lot_size=..., ...\), which has all"),
        (tacit.DSGT(), {"eps": 3.0}, InvalidInput, r"no setting 'eps'; give privacy=Privacy\(epsilon=..., ...\)"),
        (tacit.DSGT(), {"momentum": 0.9}, InvalidInput, r"as in DSGT\(step=Momentum\(0.9\)\)"),
        (tacit.DSGT(), {"rounds": 1.5}, InvalidInput, "rounds is 1.5; it must be a whole number"),
        (tacit.DSGT(), {"lr": None}, InvalidInput, "lr is None; give a number"),
        (tacit.DSGT(), {"lr": []}, InvalidInput, "positive"),
        (tacit.DSGT(), {"seed": -1}, InvalidInput, "seed is -1"),
        (tacit.DSGT(), {"device": "quantum"}, InvalidInput, "device is 'quantum'"),
        (tacit.DSGT(), {"data": tacit.data.load("digits")}, InvalidInput, "divide it among agents"),
        (tacit.DSGT(), {"privacy": None}, InvalidInput, "privacy is None; give Privacy"),
        (
            tacit.DSGT(),
            {"ledger": tacit.Budget(epsilon=1, delta=1e-5)},
            InvalidInput,
            "ledger is a Budget; give a Ledger",
        ),
        (tacit.DSGT(), {"sources": tacit.Secret}, InvalidInput, "sources is .*; give Secret"),
        (tacit.DSGT(), {"model": 5}, InvalidInput, "model is 5; give an nn.Module"),
        (tacit.DSGT(), {"name": 5}, InvalidInput, "name is 5"),
        (tacit.DSGT, {}, InvalidInput, "give an instance"),
        (tacit.DSGT(), {"model": lambda: tacit.models.logistic((1, 8, 8), 5)}, ModelError, "10 classes need as many"),
        (
            tacit.DSGT(),
            {"loss": lambda o, t: nn.functional.cross_entropy(o, t, reduction="none") * len(o)},
            ModelError,
            "changes with the others in its batch",
        ),
        (tacit.SGD(), {}, InvalidInput, r"pass data.pooled\(\), or use Local"),
        (tacit.DSGT(), {"privacy": tacit.NoPrivacy(lot_size=9999)}, PrivacyError, "larger than agent 0's"),
        (
            tacit.DSGT(),
            {"privacy": tacit.NoPrivacy(lot_size=9), "private_diagnostics": True},
            InvalidInput,
            "does not clip",
        ),
        (
            WrongShape(),
            {},
            InvalidInput,
            r"WrongShape.round must return .*, as it was given, .* a theta of shape \(1, ",
        ),
    ],
)
def test_bad_settings_are_refused_before_anything_is_spent(algorithm, changes, error, message, data):
    ledger = tacit.Ledger()
    with pytest.raises(error, match=message):
        tacit.train(algorithm, **settings(data, **{"ledger": ledger} | changes))
    assert ledger.entries() == []


def test_uniform_weights_need_an_explicit_flag_on_irregular_graphs(data):
    run = settings(data, graph=nx.star_graph(4), mixing="uniform")
    result = tacit.train(tacit.DSGD(), **run, allow_drift=True)
    assert result.theta.isfinite().all()


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (
            lambda agents: tacit.graphs.ring(agents),
            r"graph is a function; give a networkx graph.*networks\.Changing\(function, agents\)",
        ),
        ([tacit.graphs.ring(AGENTS), "ring"], "graph is a list; give a networkx graph"),
        ([], "graph is a list; give a networkx graph"),
    ],
)
def test_a_graph_of_another_kind_is_refused(data, graph, said):
    with pytest.raises(tacit.TacitError, match=said):
        tacit.train(tacit.DSGD(), **settings(data, graph=graph))


NAMED = {
    "privacy": tacit.Privacy(noise_multiplier=2.0, delta=1e-5, clip=1.0, lot_size=24),
    "rounds": 3,
    "lr": 0.5,
    "sources": tacit.Seeded(0),
}


def test_shipped_parts_are_given_by_the_names_that_the_command_line_takes():
    digits = tacit.data.load("digits")
    given = {"data": digits.split(4, tacit.data.IID(), seed=3), "graph": tacit.graphs.ring(4), "model": make_model}
    objects = tacit.train(tacit.DSGT(), **given, **NAMED, seed=3)
    texts = {"data": "digits", "graph": "ring", "model": "logistic", "loss": "cross_entropy"}
    assert torch.equal(tacit.train("dsgt", **texts, **NAMED, seed=3, agents=4, split="iid").theta, objects.theta)
    whole = texts | {"data": digits}
    assert torch.equal(
        tacit.train("dsgt", **whole, **NAMED, seed=3, agents=4, split=tacit.data.IID()).theta, objects.theta
    )
    assert tacit.train("dsgt", **texts, **NAMED).data.partition == "digits/A(t=1)/seed 0/10 agents", "as `tacit train`"
    assert tacit.train("sgd", model="logistic", data="digits", **NAMED).data.agents == 1
    (trial, _) = tacit.train_trials(2, "local", model="mlp", data="synthetic:300", agents=2, **NAMED)
    assert trial.data.dataset.name.startswith("synthetic 300x20")


@pytest.mark.parametrize(
    ("rule", "changes", "message"),
    [
        ("dsgtt", {}, "unknown algorithm 'dsgtt'; did you mean 'dsgt'?"),
        ("dsgt", {"model": "logistik"}, "unknown model 'logistik'; did you mean 'logistic'?"),
        ("dsgt", {"data": "digit"}, "unknown data set 'digit'; did you mean 'digits'?"),
        ("dsgt", {"graph": "rign"}, "unknown graph kind 'rign'; did you mean 'ring'?"),
        ("dsgt", {"loss": "cross_entropi"}, "unknown loss 'cross_entropi'; did you mean 'cross_entropy'?"),
        ("dsgt", {"split": "idd"}, "unknown split 'idd'; did you mean 'iid'?"),
        ("dsgt", {"agents": "4"}, "agents is '4'; it must be a whole number"),
        ("dsgt", {"data": tacit.data.load("digits")}, "data is a DataSet; divide it among agents"),
        ("dsgt", {"runs": "here"}, 'runs is for a run that is kept; give it a name with run="NAME"'),
        ("dsgt", {"run": "one", "runs": 5}, "runs is 5; give the name of a folder"),
    ],
    ids=str,
)
def test_names_that_are_none_and_folders_without_a_run_are_refused(rule, changes, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput) as caught:
        tacit.train(rule, **{"data": "digits", "graph": "ring", "model": "logistic"} | NAMED | changes)
    assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_how_to_divide_data_that_is_divided_already_is_refused(data):
    with pytest.raises(
        InvalidInput, match=r"agents says how data that is given as a whole is divided, and data is Agent"
    ):
        tacit.train("dsgt", **settings(data), agents=5)


def test_settings_that_are_missing_are_named():
    with pytest.raises(InvalidInput, match=r"give model= and privacy= and lr=; help\(tacit.Training\)"):
        tacit.train("dsgt", data="digits", rounds=3)
