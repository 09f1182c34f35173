"""A command is a dataclass, or a function, in a module of its own, and a name in a registry."""

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from tacit.cli import COMMANDS, app
from tacit.cli.commands.audit import AUDITS
from tacit.cli.terminal.command import NOT_RECORDED, Options, add_commands, command_of, option
from tacit.cli.terminal.errors import Commands

RAN = []


@dataclass(frozen=True, kw_only=True)
class Base(Options):
    """Options that several commands have."""

    workers: Annotated[int | None, option("N", "Processes."), NOT_RECORDED] = None
    rounds: Annotated[int, option("N", "How many rounds.", min=1)] = 10


@dataclass(frozen=True, kw_only=True)
class Greet(Base):
    """Greet somebody.

    This paragraph is
    wrapped in the source.
    """

    who: Annotated[str, typer.Argument(metavar="WHO", help="Whom.")]
    rate: Annotated[float, option("SHARE", "A rate.")] = 0.5
    friends: Annotated[list[str] | None, option("NAME", "A friend.", "--friend")] = None
    loud: Annotated[bool | None, option("", "How.", "--loud/--soft")] = None

    def run(self):
        RAN.append(self)


@pytest.fixture
def greet(monkeypatch):
    """A program whose one command is in a module `made_up.greet`."""
    module = ModuleType("made_up.greet")
    module.command = command_of(Greet)
    monkeypatch.setitem(sys.modules, "made_up", ModuleType("made_up"))
    monkeypatch.setitem(sys.modules, "made_up.greet", module)
    program = typer.Typer(cls=Commands)
    program.callback()(lambda: None)
    add_commands(program, "made_up", ["greet"])
    return lambda *words: CliRunner().invoke(program, ["greet", *words])


def test_options_defaults_bounds_and_help_come_from_the_fields(greet):
    assert greet("you", "--rate", "0.25", "--friend", "a", "--friend", "b", "--soft").exit_code == 0
    assert RAN.pop() == Greet(who="you", rate=0.25, friends=["a", "b"], loud=False)
    refused = greet("you", "--rounds", "0")
    assert (refused.exit_code, "--rounds is 0; it must be at least 1" in refused.stderr) == (2, True)
    help = greet("--help").stdout
    assert "This paragraph is wrapped in the source." in help
    assert help.index("--rate") < help.index("--workers"), "a command's own options come first"


def test_the_command_line_of_options_gives_the_same_options(greet):
    given = Greet(who="a b", rate=0.9999999, friends=["x", "y"], loud=True, rounds=3)
    for options in (given, replace(given, loud=False), Greet(who="you")):
        words = shlex.split(options.command_line("tacit", "greet"))
        assert words[:2] == ["tacit", "greet"]
        assert greet(*words[2:]).exit_code == 0
        assert RAN.pop() == options


def test_what_decides_the_result_is_recorded_and_nothing_else():
    assert Greet(who="you", workers=3).recorded() == {"who": "you", "rate": 0.5, "rounds": 10}


@pytest.mark.parametrize(("folder", "names"), [("commands", COMMANDS), ("audit", AUDITS)])
def test_every_name_in_a_registry_is_a_module(folder, names):
    root = Path(sys.modules["tacit.cli"].__file__).parent
    for name in names:
        assert (root / folder / f"{name.replace('-', '_')}.py").is_file()
    group = typer.main.get_command(app)
    assert set((group if folder == "commands" else group.commands["audit"]).commands) == set(names)
