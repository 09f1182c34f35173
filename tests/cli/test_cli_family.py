"""Codecs, robust means and the rules of the family on the command line."""

import pytest
from invoking import complaint, document
from typer.testing import CliRunner

from tacit.cli import app

TRAIN = ("train", "--rounds", 3, "--noise-multiplier", 4, "--source", "seeded", "--quiet", "--algorithm")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ("dsgd", "--codec", "qsgd:4", "--mixing", "trimmed:1"),
        pytest.param(("ad-psgd:delay=2", "--graph", "matchings"), marks=pytest.mark.slow),
        pytest.param(("sdm-dsgd",), marks=pytest.mark.slow),
        pytest.param(("d2",), marks=pytest.mark.slow),
        pytest.param(("extra",), marks=pytest.mark.slow),
        pytest.param(("deepsqueeze", "--codec", "topk:0.2"), marks=pytest.mark.slow),
        pytest.param(("q-dpsgd-1", "--codec", "bfloat16"), marks=pytest.mark.slow),
        pytest.param(("choco", "--codec", "randomk:0.2"), marks=pytest.mark.slow),
        pytest.param(("leasgd",), marks=pytest.mark.slow),
        pytest.param(("leasgd:private_ranking=true,rank_every=2",), marks=pytest.mark.slow),
        pytest.param(("muffliato:exchanges=2,gap=0.1",), marks=pytest.mark.slow),
        pytest.param(("q-dpsgd-2",), marks=pytest.mark.slow),
        pytest.param(("dp-srm:a=0.5",), marks=pytest.mark.slow),
        pytest.param(("local-dsgd:local_steps=2",), marks=pytest.mark.slow),
    ],
    ids=lambda words: words[0],
)
def test_a_run_is_trained_exported_and_verified(words):
    for more in ((*TRAIN, *words, "--name", "one"), ("export", "one", "--for-audit", "-o", "one.zip")):
        done = CliRunner().invoke(app, list(map(str, more)))
        assert done.exit_code == 0, done.output
    found = document("verify", "one.zip")
    assert (found["holds"], found["not_checked"]) == (True, ["earlier head"]), "also its plan, bytes and replay"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("extra", "--codec", "qsgd:8"), "codec does not apply to extra, which has no such field"),
        (("dsgd", "--codec", "qsgd:3"), "QSGD takes 2, 4 or 8"),
        (("dsgd", "--codec", "topk"), "write it as in topk:0.1"),
        (("dsgd:codec=qsgd:4", "--codec", "qsgd:8"), "codec of dsgd is given twice"),
        (("dsgd", "--mixing", "medan"), "did you mean 'median'?"),
        (("dsgd", "--mixing", "trimmed:x"), "write it as in trimmed:1 or clipped:0.5"),
        (("dsgd", "--mixing", "median:2"), "--mixing is 'median:2'; it must be one of"),
        (
            ("dsgt", "--mixing", "median"),
            "dsgt cannot mix by a median mean: it needs the average of all agents to stay",
        ),
        (("local", "--mixing", "median"), "--mixing means nothing to local"),
        (("dsgd", "--mixing", "median", "--noise", "cancelling"), "--noise does not go with --mixing median"),
        (("dsgd", "--mixing", "median", "--gossip-rounds", 2), "--gossip-rounds does not go with --mixing median"),
        (("choco", "--graph", "matchings"), "in round 1 the links are not those of round 0"),
        (("d2:lazy=false",), "D2 needs more than -1/3; leave lazy=false out"),
        (("ad-psgd",), "AD-PSGD averages in pairs"),
    ],
)
def test_mistakes_are_named(words, message):
    assert message in complaint(*TRAIN, *words)
