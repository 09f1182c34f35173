"""Where agents declare other numbers of records than they hold, nothing that a run gives to others tells the true ones."""

import io
import re
from dataclasses import replace

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

import tacit
from tacit.cli import app
from tacit.cli.terminal.plan import plan_tables
from tacit.errors import PrivacyError
from tacit.report import RecordedRun
from tacit.report.html.page import report
from tacit.runs import Runner
from tacit.runs.config import RunConfig

# So long that none of them stands by chance among all the numbers that differ from run to run.
HELD, OF_FIRST_CLASS = (791_933, 684_127), (421_139, 330_721)
DECLARED = (800_000, 700_000)
SECRETS = {*HELD, sum(HELD), *OF_FIRST_CLASS, *(n - k for n, k in zip(HELD, OF_FIRST_CLASS, strict=True))}


def told(text):
    """Return the secret numbers that stand in a text, however they are written; digits within longer numbers are chance."""
    text = re.sub("[0-9a-f]{16,}", "", text)  # hashes and salts have all digits
    written = {number: f"{number:,}".replace(",", "[,_ \u202f]?") for number in SECRETS}
    return {number for number, digits in written.items() if re.search(rf"(?<![\d.]){digits}(?!\d)", text)}


def make_data():
    generator = torch.Generator().manual_seed(0)
    parts = []
    for size, first in zip(HELD, OF_FIRST_CLASS, strict=True):
        targets = torch.ones(size, dtype=torch.int64)
        targets[:first] = 0
        parts.append((torch.randn(size, 3, generator=generator), targets))
    held_out = (torch.randn(20, 3, generator=generator), torch.arange(20) % 2)
    return tacit.data.AgentData.from_parts(parts, name="stay", validation=held_out, test=held_out, classes=2)


class Declared(RunConfig):
    """The settings of a run whose two agents declare round numbers."""

    def load_data(self):
        return make_data()

    def training(self, **given):
        return replace(super().training(**given), sizes=DECLARED)


SETTINGS = {
    "dataset": "stay",
    "agents": 2,
    "graph": "path",
    "noise_multiplier": 3.0,
    "lot_size": 40,
    "rounds": 4,
    "evaluate_every": 2,
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Return all that a run shows and writes, by where."""
    runs = tmp_path_factory.mktemp("declared")
    screen = Console(file=io.StringIO(), width=200)
    with Runner.start(runs, "one", Declared(**SETTINGS)) as runner:
        ledger = runner.ledger.to_json()
        screen.print(*plan_tables(runner))
        training = runner.session.training
        result = runner.play(stop=lambda: False)
        guarantees = " ".join(map(str, result.guarantees()))
    found = {
        "plan table": screen.file.getvalue(),
        "repr of the result": repr(result),
        "repr of its training": repr(training),
        "guarantees": guarantees,
        "ledger as text": ledger,
        "report": report(RecordedRun.load(runs / "one")),
    }
    for words in (["list"], ["list", "--json"], ["ledger", "--verify"], ["ledger", "--json"]):
        done = CliRunner().invoke(app, [*words, "--runs", str(runs)])
        assert done.exit_code == 0, done.output
        found[" ".join(words)] = done.output
    done = CliRunner().invoke(app, ["report", str(runs / "one"), "--figures"])
    assert done.exit_code == 0, done.output
    for path in sorted(runs.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(runs))] = path.read_bytes().decode("latin-1")
    return found


def test_no_output_of_a_run_reveals_how_many_records_there_are(outputs):
    assert {"one/events.jsonl", "one/summary.json", "one/config.toml", "ledger.sqlite"} <= set(outputs)
    assert {where: numbers for where, text in outputs.items() if (numbers := told(text))} == {}


def test_declared_numbers_are_shown(outputs):
    assert "700000 to 800000 records" in outputs["repr of the result"]
    assert "800000" in outputs["one/events.jsonl"]
    assert "800,000" in outputs["plan table"]
    assert "800,000" in outputs["report"]


def test_the_search_finds_numbers_as_they_would_be_written():
    data = make_data()
    assert told(repr(data)) == set(HELD), "their holder may see them"
    assert told("791,933 records") == told("[791933, 1]") == told("791933.0") == {791933}
    assert told("1,476,060 of 1476060") == {sum(HELD)}
    assert told("0.791933 4791933 7919330") == set()


def test_an_error_speaks_of_declared_numbers():
    with pytest.raises(PrivacyError) as caught:
        tacit.train(
            tacit.DSGD(),
            model=lambda: tacit.models.logistic((3,), 2),
            data=make_data(),
            graph=tacit.graphs.path(2),
            privacy=tacit.Privacy(noise_multiplier=3.0, delta=1e-5, clip=1.0, lot_size=900_000),
            rounds=1,
            lr=0.1,
            sizes=DECLARED,
        )
    assert "agent 0's 800000 records" in str(caught.value)
    assert told(str(caught.value)) == set()
