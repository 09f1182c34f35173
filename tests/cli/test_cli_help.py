"""Help that can be read in 80 columns."""

import subprocess
import sys

import pytest
import typer.main
from invoking import answer, one_line, process

from tacit.cli import app
from tacit.cli.terminal.options import PANELS
from tacit.runs.config import RunConfig

COMMANDS = typer.main.get_command(app).commands


def test_every_setting_is_in_one_panel():
    not_an_option = {"code", "absences"}  # which a run finds out by itself, and which only a file can list
    assert sorted(key for keys in PANELS.values() for key in keys) == sorted({*RunConfig.model_fields} - not_an_option)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_cut_off_in_80_columns(name):
    said = answer(name, "--help")
    lines = said.splitlines()
    assert max(map(len, lines)) <= 80
    shown = {word for line in lines if line.startswith("│ ") for word in line.split()[1:3]}
    for option in COMMANDS[name].params:
        if option.opts[0].startswith("--") and not option.hidden:
            assert option.opts[0] in shown
    assert "example" in said.lower()
    assert "[[" not in said


def test_values_keep_their_letters_and_defaults_are_shown():
    said = " ".join(process("train", "--help").stdout.replace("│", " ").split())
    for words in (
        "σ, instead of epsilon",
        "cpu or cuda [cpu]",
        "digits, mnist, fashion-mnist",
        "rounds [200]",
        "δ of",
    ):
        assert words in said
    for panel in PANELS:
        assert f"─ {panel} ─" in said


def test_flags_are_shown_once_and_can_be_reversed():
    said = answer("train", "--help")
    assert "--no-private " in said
    assert "--no-tensorboard" not in said.replace("as in", "").split("─ Data and graph")[1]
    assert "<bool>" not in said.split("─ Data and graph")[1]


def test_pages_are_written_without_matplotlib():
    code = "import sys; from tacit.report import RecordedRun, write_report, write_comparison; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(("name", "usage"), [("audit", "FILE.toml | COMMAND"), ("ledger", "[RUN]... | COMMAND")])
def test_usage_of_commands_with_commands_says_what_they_also_take(name, usage):
    assert f"tacit {name} [OPTIONS] {usage}" in one_line(answer(name, "--help"))
