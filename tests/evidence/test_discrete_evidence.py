"""A run with rounding and discrete noise, from its settings to the folder, the ledger, loading, and verification by an auditor."""

import shutil
from contextlib import closing

import pytest
from auditing import failed, not_held, outcomes, play
from tampering import forge

import tacit
from tacit.errors import InvalidInput
from tacit.privacy import Discrete, DurableLedger
from tacit.runs import RunFolder
from tacit.runs.config import RunConfig

SETTINGS = {
    "algorithm": "q-dpsgd-2",
    "noise": "discrete",
    "rounding_bits": 6,
    "accountant": "rdp",
    "model": "logistic",
    "rounds": 3,
    "evaluate_every": 1,
}


@pytest.fixture(scope="module")
def rounded(tmp_path_factory):
    """A folder with one finished run."""
    runs = tmp_path_factory.mktemp("rounded") / "runs"
    play(runs, **SETTINGS)
    return runs


@pytest.fixture
def runs(rounded, tmp_path):
    """A copy of the folder, to change."""
    return shutil.copytree(rounded, tmp_path / "runs")


def test_a_run_with_rounding_is_made_again_to_the_bit(rounded):
    found = outcomes(rounded, replay=True)
    assert set(not_held(found)) == {"earlier head"}
    assert "the same 4 snapshots to the bit" in found["replay"].words


def test_plan_ledger_and_loaded_run_agree_on_rounding(rounded):
    folder = RunFolder.find(rounded / "one")
    plan = folder.events().plan
    settled = Discrete(6).settle(plan.params, plan.clips)
    assert plan.discrete == settled
    with closing(DurableLedger(folder.ledger_file, read_only=True)) as ledger:
        assert tuple(line.mechanism for line in ledger.account("one").lines) == plan.mechanisms
    again = tacit.load(rounded / "one")
    assert again.plan.rounding == settled
    assert again.plan.mechanisms == plan.mechanisms
    assert ", rdp, against everybody else together; not a release" in str(again.guarantees()[0])


def in_plan(**changes):
    return lambda event: event | changes if event["event"] == "plan" else event


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"settings": {"rounding_bits": 7}}, {"settings"}),
        ({"event": in_plan(rounding={"bits": 6.0, "room": 1.0})}, {"record", "plan"}),
        ({"event": in_plan(rounding=None)}, {"settings", "record", "plan", "ε", "summary"}),
    ],
    ids=["bits", "room", "no rounding"],
)
def test_rounding_that_does_not_agree_is_found(runs, change, found):
    forge(runs, "one", **change)
    assert failed(runs) <= found
    assert failed(runs) & {"settings", "record"}


def test_a_run_from_python_keeps_its_rounding(tmp_path):
    digits = tacit.data.load("digits")
    tacit.train(
        "q-dpsgd-2",
        model="logistic",
        data=digits.split(3, tacit.data.IID()),
        graph=tacit.graphs.ring(3),
        privacy=tacit.Privacy(
            noise_multiplier=2.0, delta=1e-3, clip=1.0, lot_size=20, accountant="rdp", noise=Discrete(5, room=3.0)
        ),
        rounds=2,
        lr=0.5,
        sources=tacit.Seeded(0),
        run="kept",
        runs=tmp_path,
    )
    again = tacit.load(tmp_path / "kept")
    assert again.plan.rounding == again.plan.privacy.noise == Discrete(5, room=3.0)
    assert {what for what, each in outcomes(tmp_path, "kept").items() if each.outcome == "fails"} == set()


def test_settings_of_rounding_without_discrete_noise_are_refused():
    with pytest.raises(InvalidInput, match='rounding_bits means nothing without noise = "discrete"'):
        RunConfig.of({"epsilon": 1.0, "rounding_bits": 4})
    with pytest.raises(InvalidInput, match='noise = "discrete" needs privacy'):
        RunConfig.of({"private": False, "noise": "discrete"})
