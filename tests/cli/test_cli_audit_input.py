"""`tacit audit`: which input it refuses, in which words, and what its help says."""

import shlex

import pytest
import typer.main
from audit_commands import BLANK, MEMBERSHIP, NEIGHBOR
from invoking import answer, complaint

from tacit.cli import app
from tacit.cli.audit.options import attacked_rules, linear_rules

pytestmark = pytest.mark.usefixtures("empty_folder")
COMMANDS = typer.main.get_command(app).commands["audit"].commands


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--curious", 1), "--curious means nothing without --noise cancelling"),
        (("--rounding-bits", 3), "--rounding-bits means nothing without --noise discrete"),
        (("--noise", "discrete", "--keys", "graph"), "--keys means nothing without --noise cancelling"),
        ((*BLANK, "--bands", 2), "under independent noise only"),
        (("--algorithm", "dinno", "--adam", "--bands", 2), "nor bands undone"),
        (("--bands", 20), "at most 10 bands"),
    ],
)
def test_noise_that_cannot_be_attacked_is_refused(options, words):
    assert words in complaint("audit", "neighbor", *options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--observer", 0), "agent 0 is the target and cannot be an observer of itself"),
        (("--observer", 7), "observer is 7; it must be an agent, from 0 to 2"),
        (("--target", 3), "target is 3; it must be an agent, from 0 to 2"),
        (("--target", -1), "target is -1"),
        (("--agents", 1), "agent 0 has no neighbours"),
        (("--agents", 0), "agents must be a whole number of at least 1, got 0"),
        (("--runs", 9), "runs is 9; fewer than 10 on a side prove nothing"),
        (("--confidence", 1), "confidence is 1.0; it must lie strictly between 0 and 1"),
        (("--confidence", 0), "confidence is 0.0; it must lie strictly between 0 and 1"),
        (("--delta", 0), "delta is 0.0; it must lie strictly between 0 and 1"),
        (("--epsilon", 0), "epsilon is 0.0"),
        (("--lot-size", 101), "101"),
        (("--lot-size", 0), "lot_size is 0.0"),
        (("--records", 0), "records is 0; it must be at least 1"),
        (("--rounds", 0), "rounds is 0; it must be at least 1"),
        (("--batch", 0), "batch is 0; it must be at least 1"),
        (("--workers", 0), "workers is 0; it must be at least 1"),
        (("--lr", 0), "a step size must be positive and finite, got 0.0"),
        (
            ("--algorithm", "dsgx"),
            f"--algorithm is 'dsgx'; it must be one of {', '.join(linear_rules())}; did you mean 'dsgt'?",
        ),
        (("--graph", "rng"), "unknown graph kind 'rng'; did you mean 'ring'?"),
        (("--graph", "apart.txt"), "the graph is not connected"),
        (("--adam",), "--adam is an option for DiNNO's inner steps; dsgd has none"),
        (("--inner-steps", 2), "--inner-steps is an option for DiNNO's inner steps; dsgd has none"),
        (("--algorithm", "dinno", "--inner-steps", 0), "inner_steps is 0; at least one is needed"),
        (("--algorithm", "dinno", "--adam", "--inner-steps", 2), "is not linear in the gradients"),
        (
            ("--algorithm", "dinno", "--adam", "--graph", "path", "--agents", 4, "--target", 1),
            "must see all of its neighbours",
        ),
        (("--folder", "apart.txt"), "apart.txt is not a folder"),
        (("--dataset", "digits"), "--dataset is an option of --canary blank; the worst record is not from a data set"),
        (("--data-dir", "."), "--data-dir is an option of --canary blank"),
        ((*BLANK, "--target", 1), "--target is 1; a blank image is labelled 0"),
        ((*BLANK, "--graph", "ring", "--agents", 5), "do not see all of agent 0's answers"),
        ((*BLANK, "--agents", 11), "digits has too few classes for 11 agents"),
        ((*BLANK, "--algorithm", "dinno", "--adam"), "is not linear in the gradients"),
        (("--canary", "blank", "--dataset", "digit"), "unknown data set 'digit'; did you mean 'digits'?"),
        (("--runz", 5), "unknown option '--runz'; did you mean '--runs'?"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(options, message, tmp_path):
    (tmp_path / "apart.txt").write_text("0 1\n2 3\n")
    assert message in complaint(*NEIGHBOR, *options)
    assert [path.name for path in tmp_path.iterdir()] == ["apart.txt"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--dataset", "mnits"), "unknown data set 'mnits'; did you mean 'mnist'?"),
        (("--algorithm", "al"), f"{', '.join(attacked_rules())}, all; did you mean 'all'?"),
        (("--lot-size", 1000), "1000"),
        (("--rounds", 0), "rounds is 0; it must be at least 1"),
        (("--compile", "now"), "--compile is 'now'; it must be one of auto, true, false"),
    ],
)
def test_bad_input_to_membership_is_refused_with_a_sentence(options, message, tmp_path):
    assert message in complaint(*MEMBERSHIP, *options)
    assert not list(tmp_path.iterdir())


def test_a_misspelt_attack_is_answered_with_the_nearest():
    assert "no such command 'neighbour'. Did you mean 'neighbor'? (see 'tacit audit --help')" in complaint(
        "audit", "neighbour"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns_and_has_an_example_that_can_be_typed(name):
    said = answer("audit", name, "--help")
    lines = said.splitlines()
    shown = {word for line in lines if line.startswith("│ ") for word in line.split()[1:3]}
    for option in COMMANDS[name].params:
        assert option.opts[0] in shown or option.metavar in shown
    assert "Exit code 1 means" in said or (name in ("distance", "gossip") and "There is no verdict" in said)
    words = shlex.split(COMMANDS[name].help.partition("Example")[2].partition("tacit audit ")[2])
    assert words[0] == name or (name == "check" and words[0].endswith(".toml"))
    COMMANDS[name].make_context(name, words[words[0] == name :])
