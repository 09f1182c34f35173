"""Where a run protects patients, everything that shows its ε says that it is per patient."""

import json
import re

import pytest
from invoking import QUICK, one_line
from rich.console import Console

import tacit as library
from tacit.cli.terminal.progress import _now
from tacit.runs import Runner
from tacit.runs.config import RunConfig

WARD = """
import torch
from tacit.data import AgentData, Records

def ward():
    chance = torch.Generator().manual_seed(0)
    parts = [(torch.randn(80, 5, generator=chance), torch.arange(80) % 2) for _ in range(3)]
    table = [Records(*part).of_units([row // 4 for row in range(80)]) for part in parts]
    return AgentData.from_parts(table, name="ward", owners=["north", "south", "west"], classes=2, validation=parts[0])
"""
PATIENTS = ["--dataset", "ward.py:ward", "--unit", "patient:4", "--lot-size", "8", "--noise-multiplier", "2"]
PATIENTS += ["--delta", "1e-3", "--rounds", "4", "--graph", "complete"]


@pytest.fixture
def ward(tacit, tmp_path):
    (tmp_path / "ward.py").write_text(WARD)
    return tacit


def test_every_line_and_table_of_a_run_says_per_whom_its_epsilon_is(ward):
    code, out, run = ward("train", *PATIENTS, "--name", "one", "--budget", "9")
    assert code == 0, run
    epsilon = json.loads(ward("list", "--json")[1])["runs"][0]["epsilon"]
    assert re.search(r"protects +every patient, with up to 4 records in a query", out)
    assert re.search(r"ε per patient at the end +[\d.]+ at δ=0.001, add-or-remove-one, pld", out)
    assert re.search(rf"round 4/4: .*;\s+ε per patient {epsilon} of [\d.]+$", run, flags=re.MULTILINE)
    assert "ε per patient, highest" in out
    assert f"the only run on this data has spent ε={epsilon} per patient (highest for north)" in out
    assert "per record" not in out + run


def test_lists_and_ledgers_say_per_whom_each_epsilon_is(ward):
    ward("train", *PATIENTS, "--name", "one", "--budget", "9")
    first, second, *_ = ward("list")[1].splitlines()
    assert (first.split(), second.split()[-2]) == (["ε", "per"], "patient"), "one unit stands in the heading"
    ward("train", *QUICK, "--name", "two", "--delta", "1e-3")
    listed = {
        line.split()[0]: line.split()[-2]
        for line in ward("list")[1].splitlines()[2:]
        if line.startswith(("one ", "two "))
    }
    assert listed == {"one": "patient", "two": "record"}
    assert [row["unit"] for row in json.loads(ward("list", "--json")[1])["runs"]] == ["patient", "record"]
    out = ward("ledger")[1]
    per = {line.split()[0]: line.split()[-2] for line in out.splitlines() if line.startswith(("one ", "two "))}
    assert per == {"one": "patient", "two": "record"}
    assert "ε per patient  what it is" in out, "patients have used most of the budget"
    rows = json.loads(ward("ledger", "--json")[1])["spent"]
    assert {row["unit"] for row in rows if row["run"] == "one"} == {"patient"}


def test_the_live_table_says_per_whom(ward, tmp_path):
    settings = {"dataset": "ward.py:ward", "unit": "patient:4", "lot_size": 8.0, "noise_multiplier": 2.0, "rounds": 2}
    with Runner.start(tmp_path / "runs", "one", RunConfig.of(settings)) as runner:
        screen = Console(width=80)
        with screen.capture() as shown:
            screen.print(_now(runner))
    assert "ε per patient" in shown.get()


def test_a_refusal_by_a_budget_says_per_whom(ward):
    code, _, error = ward("train", *PATIENTS, "--name", "one", "--budget", "0.5")
    assert code == 2
    assert re.search(r"would bring 'north' to ε=[\d.]+ per patient, past its budget", error)


def test_a_result_and_pages_say_per_whom(ward, tmp_path):
    ward("train", *PATIENTS, "--name", "one")
    result = library.load("one")
    assert "3 agents with 20 patients each" in repr(result)
    assert "per patient at δ=0.001" in str(result.guarantees()[0])
    assert ward("report", "one")[0] == 0
    page = (tmp_path / "runs" / "one" / "report.html").read_text()
    assert re.search(r"ε = [\d.]+ per patient at δ = 0.001", page)


def test_a_comparison_does_not_add_up_guarantees_for_patients_and_for_records(ward, tmp_path):
    ward("train", *PATIENTS, "--name", "one")
    records = [word for word in PATIENTS if word not in ("--unit", "patient:4")]
    assert ward("train", *records, "--name", "two", "--runs", "others")[0] == 0
    assert ward("compare", "runs/one", "others/two", "-o", "both.html")[0] == 0
    page = one_line((tmp_path / "both.html").read_text())
    assert "what one and two spend cannot be added up: some protect every patient and others every record" in page
    assert "These runs state ε for different units, δ, adjacency or accountant" in page
