"""Trials in different stacks or processes draw noise of their own, and private records are searched on for the price of all trials only."""

import threading

import pytest
import torch

from tacit.errors import InvalidInput
from tacit.privacy import Ledger
from tacit.runs.config import RunConfig
from tacit.tuning import Search, parse_parameter, tune
from tacit.tuning.on_ray import tune_on_ray
from tacit.tuning.stack import make_stack

SETTINGS = {
    "algorithm": "dsgd",
    "dataset": "digits",
    "agents": 3,
    "graph": "ring",
    "noise_multiplier": 1.5,
    "delta": 1e-3,
    "lot_size": 24,
    "rounds": 2,
    "source": "seeded",
    "compile": False,
}
OWN = """
import torch
from tacit.data import DataSet

def records():
    inputs = torch.randn(120, 4, generator=torch.Generator().manual_seed(0))
    targets = (inputs[:, 0] > 0).long()
    return DataSet.from_records(name="own", train=(inputs[:90], targets[:90]), validation=(inputs[90:], targets[90:]))
"""


@pytest.mark.parametrize("changes", [{}, {"noise": "cancelling", "mask_ratio": 2.0}], ids=["own noise", "masks"])
def test_a_trial_draws_the_noise_of_its_number_wherever_it_is_played(changes):
    """All start from the same model here, so that they differ by lots and noise alone."""
    thetas = {}
    for number in (0, 3):
        stack = make_stack([RunConfig.of(SETTINGS | changes)], [number], name="one", ledger=None, every=2)
        stack.play()
        thetas[number] = stack.session.state.theta
    again = make_stack([RunConfig.of(SETTINGS | changes)], [3], name="other", ledger=None, every=2)
    again.play()
    assert torch.equal(again.session.state.theta, thetas[3])
    assert not torch.isclose(thetas[0], thetas[3]).any(dim=1).all()
    assert float((thetas[0] - thetas[3]).norm()) > 0.1


def test_private_records_are_not_searched_on_without_a_ledger(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    own = {"dataset": f"{tmp_path / 'own.py'}:records", "model": "mlp", "lot_size": 10}
    config, search = RunConfig.of(SETTINGS | own), Search(parameters=(parse_parameter("lr=0.1,1"),), population=2)
    for play in (tune, tune_on_ray):
        with pytest.raises(InvalidInput, match=r"is not published, so every trial of a search is a run that costs"):
            play(config, search)
    ledger = Ledger()
    assert len(tune(config, search, ledger=ledger).accounts) == 2
    assert {account.spent for account in ledger.accounts} == {2}


@pytest.mark.slow
def test_a_population_on_ray_tells_the_values_and_scores_of_every_generation(capfd):
    """A trial that takes over another one's models has that one's values before its own, as in one process."""
    pytest.importorskip("ray.tune")
    search = Search(parameters=(parse_parameter("lr=log:0.1..10"),), population=4, generations=3)
    config = RunConfig.of(SETTINGS | {"rounds": 6})
    said: list[str] = []
    lock = threading.RLock()  # as a console has, which cannot be pickled

    def say(text: str) -> None:
        with lock:
            said.append(text)

    found = tune_on_ray(config, search, say=say)
    assert capfd.readouterr().out == ""  # which is for the result alone, as with --json
    assert len(found.trials) == 4
    assert {f"trial {trial.number}: {trial.score:.4f} after generation 3 of 3" for trial in found.trials} <= set(said)
    for trial in found.trials:
        assert len(trial.course) == 3
        assert trial.course[-1] == trial.values
        assert len(trial.scores) == 3
        assert trial.scores[-1] == trial.score
    settings = found.settings(config)
    assert settings["lr"] == found.best.course[0]["lr"]
    assert settings["lr_final"] == found.best.values["lr"]
