"""Evidence of runs whose noise cancels: ε is derived for the planned observer and for everybody else, and masks are compared."""

import shutil

import pytest
from auditing import failed, not_held, outcomes, play
from tampering import forge

from tacit.runs import RunFolder

SETTINGS = {
    "agents": 5,
    "noise": "cancelling",
    "mask_ratio": 1.0,
    "gossip_rounds": 2,
    "absences": [{"agent": 3, "first": 2, "until": 4}],
    "evaluate_every": 1,
}


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """A folder with a run under complete keys, and one under keys of a file that is gone."""
    runs = tmp_path_factory.mktemp("masked") / "runs"
    play(runs, **SETTINGS)
    keys = runs / "keys.txt"
    keys.write_text("0 1\n1 2\n2 3\n3 4\n4 0\n0 2\n")
    play(runs, "file", **SETTINGS, keys=str(keys))
    keys.unlink()
    return runs


@pytest.fixture
def runs(masked, tmp_path):
    """A copy of the folder, to change."""
    return shutil.copytree(masked, tmp_path / "runs")


@pytest.mark.parametrize("name", ["one", "file"])
def test_a_run_with_masks_is_made_again_to_the_bit(masked, name):
    found = outcomes(masked, name, replay=True)
    assert set(not_held(found)) == {"earlier head"}
    assert "it gives the same models and the same 9 snapshots to the bit" in found["replay"].words
    against = RunFolder.find(masked / name).summary()["epsilon_against"]
    assert f"ε={against['1']:.4g} per record against any one other agent at" in found["ε"].words
    assert f"ε={against['all']:.4g} against everybody else together" in found["ε"].words
    assert "against everybody else together" in found["ε of all runs"].words


def in_plan(**changes):
    return lambda event: event | changes if event["event"] == "plan" else event


def with_masks(**changes):
    return lambda event: event | {"masks": event["masks"] | changes} if event["event"] == "plan" else event


def in_record(**changes):
    return lambda row: row | {"masks": row["masks"] | changes} if row["kind"] == "open" else row


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"summary": lambda facts: facts | {"observer": "everybody else together"}}, {"summary"}),
        (
            {"summary": lambda facts: facts | {"epsilon_against": facts["epsilon_against"] | {"all": 0.5}}},
            {"ε", "summary"},
        ),
        ({"summary": lambda facts: facts | {"epsilon_against": {"1": facts["epsilon"]}}}, {"ε", "summary"}),
        ({"event": in_plan(observer="2")}, {"settings", "ε", "summary"}),
        ({"settings": {"curious": 2}}, {"settings"}),
        ({"settings": {"lost": 1}}, {"settings"}),
        ({"settings": {"noise": "local", "mask_ratio": "auto"}}, {"settings"}),
        ({"settings": {"keys": "graph"}}, {"settings"}),
        ({"settings": {"gossip_rounds": 1}}, {"settings"}),
        ({"settings": {"absences": []}}, {"settings"}),
        ({"event": with_masks(size=2.0)}, {"record", "plan"}),
        ({"event": with_masks(size=0.001), "row": in_record(size=0.001)}, {"settings", "ε", "summary"}),
    ],
)
def test_what_does_not_agree_is_found(runs, change, found):
    forge(runs, "one", **change)
    assert failed(runs) == found
