"""A new rule, model, data set, graph, schedule, codec, audit or command is one file and one line of a registry, everywhere at once."""

import json
import subprocess
import sys

import pytest
import typer
from invoking import answer, complaint, document, one_line
from typer.testing import CliRunner

import tacit
from tacit import registry
from tacit.cli import COMMANDS, app, commands
from tacit.cli.terminal.command import add_commands
from tacit.cli.terminal.errors import Commands
from tacit.networks import find_codec
from tacit.registry import Shipped, ShippedRule
from tacit.runs.config import RunConfig

# The file: a rule without a step but with settings of its own, one of them also a setting of runs with another default.
MADE_UP = """
from dataclasses import dataclass
from typing import Any, NamedTuple

import networkx as nx
import torch
from torch import nn

from tacit.data import Normalise, Records
from tacit.data.published import Published, with_halves
from tacit.networks import DENSE, Codec, Cycle
from tacit.networks.topology import as_links


class HalfwayState(NamedTuple):
    theta: Any


@dataclass(frozen=True, kw_only=True)
class Halfway:
    share: float = 0.5
    inner_steps: int = 2
    codec: Codec = DENSE

    def init(self, theta):
        return HalfwayState(theta)

    def round(self, state, at):
        theta = state.theta
        for _ in range(self.inner_steps):
            theta = theta - at.lr * at.gradient(theta)
        mixed = at.exchange(theta, codec=self.codec).mix()
        return HalfwayState(theta + self.share * (mixed - theta))


def narrow(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(int(torch.Size(input_shape).numel()), classes))


def _load(folder):
    numbers = torch.arange(400)
    records = Records((numbers % 256).to(torch.uint8)[:, None, None, None].expand(-1, 1, 2, 3).contiguous(), numbers % 4)
    held_out = records.take(torch.arange(80))
    return with_halves("tiny-set", records, held_out, 4, Normalise(mean=(0.0,), std=(1.0,)))


TINY = Published(load=_load, shape=(1, 2, 3), records=400, classes=4)


def hops(agents: int, *, reach: int = 1) -> nx.Graph:
    return nx.circulant_graph(agents, list(range(1, reach + 1)))


def turns(agents: int, *, turn: int) -> Cycle:
    return Cycle(tuple(as_links(nx.circulant_graph(agents, [1 + k % (agents // 2)])) for k in range(turn)))
"""
# An audit whose attack sees the noisy count of one agent's records.
MADE_UP_AUDIT = """
from dataclasses import dataclass
from typing import Annotated, ClassVar

from tacit.cli.audit.base import AttackCase, BatchedAudit
from tacit.cli.audit.options import system


@dataclass(frozen=True)
class Counting:
    sigma: float

    def scores(self, trials, *, present, seed):
        import numpy as np

        return {"likelihood": self.sigma * np.random.default_rng([seed, present]).standard_normal(trials) + present}


@dataclass(frozen=True, kw_only=True)
class CountAudit(BatchedAudit):
    "Does a noisy count of records reveal one of them?"

    kind: ClassVar[str] = "count"
    sigma: Annotated[float, system("NUMBER", "Noise of the count.")] = 2.0

    def cases(self):
        from tacit.audit import Claim
        from tacit.privacy import Event

        claim = Claim.of(Event(sample_rate=1.0, noise_multiplier=2.0, count=1), self.delta)
        about = {"title": "Count", "about": "made up", "algorithm": "dsgd", "saw": "A count.", "record": "Any."}
        return [AttackCase(attack=Counting(self.sigma), claim=claim, settings={}, description=about)]
"""
LINES = {
    "AUDITS": ("count", Shipped("made_up_audit:CountAudit")),
    "RULES": ("half-way", ShippedRule("made_up:Halfway", "made up", queries="inner_steps")),
    "MODELS": ("narrow", Shipped("made_up:narrow")),
    "DATA_SETS": ("tiny-set", Shipped("made_up:TINY")),
    "GRAPHS": ("hops", Shipped("made_up:hops")),
    "SCHEDULES": ("turns", Shipped("made_up:turns", example="turns:turn=2")),
}
TRAIN = (
    "train",
    "--dataset",
    "tiny-set",
    "--model",
    "narrow",
    "--agents",
    5,
    "--split",
    "iid",
    "--lot-size",
    20,
    "--rounds",
    3,
)
PRIVATE = ("--noise-multiplier", 3, "--source", "seeded")


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """A folder to work in, with the file in Python's path and a line of it in each registry."""
    (tmp_path / "made_up.py").write_text(MADE_UP)
    (tmp_path / "made_up_audit.py").write_text(MADE_UP_AUDIT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    for table, (name, line) in LINES.items():
        monkeypatch.setitem(getattr(registry, table).lines, name, line)
    yield tmp_path
    for module in ("made_up", "made_up_audit"):
        sys.modules.pop(module, None)


def test_the_library_and_a_run_know_what_was_added(made_up):
    settings = {"data": "tiny-set", "model": "narrow", "graph": "hops:reach=2", "agents": 5, "rounds": 2, "lr": 0.1}
    private = tacit.Privacy(noise_multiplier=3.0, delta=1e-5, clip=1.0, lot_size=20)
    result = tacit.train("half-way:share=0.25,codec=bfloat16", **settings, privacy=private, sources=tacit.Seeded(0))
    assert result.history[-1].queries == 4
    assert isinstance(result.algorithm, tacit.algorithms.Halfway)
    config = RunConfig.of({"algorithm": "half-way:share=0.25,inner_steps=1", "private": False})
    assert (config.rule().share, config.rule().inner_steps) == (0.25, 1)
    assert RunConfig.of({"algorithm": "half-way", "private": False}).rule().inner_steps == 2, "its own default"


def test_a_run_is_trained_exported_and_verified(made_up):
    words = (*TRAIN, *PRIVATE, "--quiet", "--algorithm")
    answer(*words, "half-way:share=0.3", "--graph", "hops:reach=2", "--name", "one")
    answer(*words, "half-way", "--graph", "turns:turn=2", "--name", "two", "--runs", "other")
    assert "half-way" in answer("list")
    for name, more in (("one", ()), ("two", ("--runs", "other"))):
        done = CliRunner().invoke(app, ["export", name, "--for-audit", "-o", f"{name}.zip", *more])
        assert done.exit_code == 0, done.output
        found = document("verify", f"{name}.zip")
        assert (found["holds"], found["not_checked"]) == (True, ["earlier head"]), "also its scores, plan and replay"


def test_commands_show_what_was_added(made_up):
    assert document("data", "tiny-set", "--agents", 4)["classes"] == 4
    assert document("graph", "hops:reach=2", "--agents", 7)["edges"] == 14
    assert document("graph", "turns:turn=2", "--agents", 7)["rounds"] == 2
    assert complaint("graph", "turns", "--agents", 7) == "turns needs turn; write it as in turns:turn=2"
    assert "did you mean 'turn'" in complaint("graph", "turns:tun=2", "--agents", 7)
    leaks = document("audit", "distance", "--algorithm", "half-way", "--agents", 5, "--rounds", 3, "--runs", 50)
    assert list(leaks["algorithms"]) == ["half-way"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--algorithm", "half-way", "--inner-steps", 3), "--inner-steps means nothing to half-way"),
        (("--algorithm", "half-way", "--step", "adam"), "step does not apply to half-way"),
        (("--algorithm", "half-way:shar=1"), "did you mean 'share'?"),
        (("--algorithm", "half-way:share=x"), "share of half-way is 'x'; it must be a number"),
        (("--algorithm", "half-way:codec=topk"), "codec of half-way: codec is 'topk'; write it as in topk:0.1"),
        (("--algorithm", "half-way:share=1,share=2"), "share of half-way is given twice"),
        (("--algorithm", "dinno:rho=1", "--rho", 2), "rho of dinno is given twice"),
        (("--algorithm", "extra:rho=1"), "extra takes no options, got 'rho'"),
        (("--algorithm", "halfway"), "did you mean 'half-way'?"),
    ],
)
def test_mistakes_with_a_rule_are_named(made_up, words, message):
    assert message in complaint(*TRAIN, *PRIVATE, *words)


def test_help_and_choices_have_what_was_added(made_up):
    """In a process of its own, since options are made when the command line is imported."""
    program = """
import sys
from tacit import registry
from tacit.registry import Shipped, ShippedRule
for table, (name, line) in eval(sys.argv[1]).items():
    getattr(registry, table).lines[name] = line
from typer.testing import CliRunner
from tacit.cli import app
for words in (["train", "--help"], ["data", "--help"], ["graph", "--help"], ["audit", "neighbor", "--help"],
              ["audit", "distance", "--help"], ["audit", "membership", "--help"], ["audit", "--help"],
              ["audit", "count", "--help"]):
    print(CliRunner(env={"COLUMNS": "200"}).invoke(app, words).stdout)
    print("=====")
assert "torch" not in sys.modules
result = CliRunner().invoke(app, ["audit", "count", "--runs", "300", "--workers", "1", "--sigma", "0.1", "-q"])
print(result.stdout, result.exit_code)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, repr(LINES)], capture_output=True, text=True, cwd=made_up, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said = [one_line(part) for part in done.stdout.split("=====")]
    train, data, graph, neighbor, distance, membership, audits, count, played = said
    assert all(name in train for name in ("half-way (made up)", "narrow", "tiny-set"))
    assert "tiny-set" in data
    assert "hops" in graph
    assert "turns:turn=2" in graph
    assert all("half-way" in each for each in (neighbor, distance, membership))
    assert "count Does a noisy count of records reveal one of them?" in audits.replace("│", "")
    assert "Noise of the count." in count
    assert "The claim of ε = " in played
    assert played.endswith("Page: audits/count-dsgd-1/audit.html 1"), "the claim is broken, and the exit code says so"


@pytest.mark.chance(1e-6)
def test_an_audit_that_was_added_runs_by_its_name(made_up):
    found = tacit.audit.run_audit("count", runs=40, workers=1, confidence=0.999999, quiet=True)
    assert (found["verdict"], found["settings"]["sigma"]) == ("no violation found", 2.0)
    assert "No violation found" in (made_up / "audits" / "count-dsgd-1" / "audit.html").read_text()
    with pytest.raises(tacit.errors.InvalidInput, match="did you mean 'count'"):
        tacit.audit.run_audit("cont")
    with pytest.raises(tacit.errors.InvalidInput, match="did you mean 'sigma'"):
        tacit.audit.run_audit("count", sigm=1.0)


def test_facts_about_data_sets_are_those_of_their_records():
    at_hand = [name for name, published in registry.DATA_SETS.items() if not published.files]
    assert "digits" in at_hand  # the others are downloaded; tests/data reads them where they are
    for name in at_hand:
        published, loaded = registry.DATA_SETS[name], tacit.data.load(name)
        assert (published.shape, published.records, published.classes) == (
            loaded.input_shape,
            len(loaded.train),
            loaded.classes,
        )


@pytest.mark.parametrize("table", ["RULES", "DATA_SETS", "MODELS", "LOSSES", "GRAPHS", "SCHEDULES", "CODECS", "AUDITS"])
def test_every_line_leads_to_what_it_names(table):
    parts = getattr(registry, table)
    assert all(parts[name] is not None for name in parts)


def test_an_audit_is_called_as_in_its_line():
    assert all(audit.kind == name for name, audit in registry.AUDITS.items())


def test_a_codec_is_found_by_name():
    assert find_codec("topk:0.1") == tacit.networks.TopK(0.1)
    assert find_codec("dense") == tacit.networks.DENSE
    for text in ("topk", "topk:x", "dense:3"):
        with pytest.raises(tacit.errors.InvalidInput, match="write it as in"):
            find_codec(text)
    assert find_codec("qsgd:4") == tacit.networks.QSGD(4)
    assert find_codec("randomk:0.2") == tacit.networks.RandomK(0.2)
    with pytest.raises(tacit.errors.InvalidInput, match="did you mean 'bfloat16'"):
        find_codec("bfloat")


GREET = """
from typing import Annotated

from tacit.cli.terminal.command import Json, option
from tacit.cli.terminal.output import console, print_json


def command(whom: Annotated[str, option("NAME", "Whom to greet.")] = "world", json: Json = False) -> None:
    \"\"\"Greet somebody.

    Example: tacit greet --whom you
    \"\"\"
    print_json({"whom": whom}) if json else console().print(f"hello {whom}")
"""


def test_a_new_command_is_one_file_and_one_name(tmp_path, monkeypatch):
    (tmp_path / "greet.py").write_text(GREET)
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    program = typer.Typer(cls=Commands)
    add_commands(program, "tacit.cli.commands", [*COMMANDS, "greet"])
    run = CliRunner().invoke
    assert run(program, ["greet", "--whom", "you"]).stdout == "hello you\n"
    assert json.loads(run(program, ["greet", "--json"]).stdout) == {"whom": "world"}
    refused = run(program, ["greet", "--who", "you"])
    assert (refused.exit_code, "did you mean '--whom'" in refused.stderr) == (2, True)
    assert "Greet somebody." in run(program, ["--help"]).stdout
    sys.modules.pop("tacit.cli.commands.greet")
