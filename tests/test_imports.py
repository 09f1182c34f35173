"""What is imported when: commands that compute nothing load nothing that does, and packages know their names by heart."""

import ast
import importlib
import inspect
import subprocess
import sys

import pytest
from torch import nn

import tacit
from tacit.runs import Runner
from tacit.runs.config import RunConfig

HEAVY = {"torch", "dp_accounting", "plotly", "matplotlib", "scipy", "sklearn", "networkx", "numpy"}
LAZY = ("tacit", "tacit.evidence", "tacit.privacy", "tacit.report", "tacit.runs")
# Runs a command as the installed program does, and then tells what there is.
PROGRAM = """
import sys
from tacit.cli import main
sys.argv = ["tacit", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(end.code, *sorted({name.partition(".")[0] for name in sys.modules}), sep="\\n")
"""


def imported(*words, cwd=None):
    """Return what a command prints and which packages its process has loaded in the end."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True, cwd=cwd, timeout=120
    )
    printed, code, modules = done.stdout.rpartition("\n0\n")
    assert code, done.stdout
    return printed, set(modules.split())


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["train", "--help"], ["audit", "--help"]], ids=" ".join)
def test_what_only_prints_words_loads_nothing_that_computes(words):
    printed, loaded = imported(*words)
    assert "acit" in printed
    assert "typer" in loaded
    assert not loaded & HEAVY


@pytest.fixture
def three_runs(tmp_path):
    """A folder with a finished private run, one without privacy, which has read the same records, and one from Python."""
    small = {"agents": 2, "split": "iid", "lot_size": 24, "rounds": 2}
    for name, noise in (("private", {"noise_multiplier": 3.0}), ("plain", {"private": False})):
        with Runner.start(tmp_path / "runs", name, RunConfig.of({**small, **noise})) as runner:
            runner.play(stop=lambda: False)
    data = tacit.data.synthetic(200, held_out=20).split(2, tacit.data.IID())
    settings = {
        "model": lambda: nn.Linear(20, 10),
        "data": data,
        "graph": tacit.graphs.complete(2),
        "rounds": 2,
        "lr": 0.1,
    }
    privacy = tacit.Privacy(noise_multiplier=3.0, delta=1e-5, clip=1.0, lot_size=20)
    tacit.train(tacit.DSGT(), **settings, privacy=privacy, run="kept", runs=tmp_path / "runs")
    return tmp_path


def test_runs_are_listed_without_anything_that_computes_once_their_epsilon_is_known(three_runs):
    first, loaded = imported("list", cwd=three_runs)
    assert "dp_accounting" in loaded
    assert not loaded & {"torch", "plotly", "matplotlib", "sklearn", "networkx"}
    printed, loaded = imported("list", cwd=three_runs)
    assert printed == first
    lines = {line.split()[0]: line for line in printed.splitlines() if "finished" in line}
    assert set(lines) == {"private", "plain", "kept"}
    assert "there is no guarantee (the records of private)" in " ".join(printed.split())  # which the ledger knows
    assert not loaded & HEAVY


def test_a_broken_settings_file_is_refused_without_anything_that_computes(tmp_path):
    (tmp_path / "run.toml").write_text("round = 3\n")
    program = PROGRAM.replace("except SystemExit as end:\n    print(end.code,", "except SystemExit:\n    print(")
    done = subprocess.run(
        [sys.executable, "-c", program, "train", "run.toml"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "did you mean 'rounds'?" in done.stderr
    assert not set(done.stdout.split()) & HEAVY


@pytest.mark.parametrize("package", LAZY)
def test_a_package_has_the_names_that_type_checkers_see(package):
    module = importlib.import_module(package)
    told = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                told |= {alias.asname or alias.name: line.module for alias in line.names}
    assert set(module.__all__) <= set(told) <= set(dir(module))
    for name, origin in told.items():
        whole = importlib.import_module(origin)
        assert getattr(module, name) is getattr(whole, name)


@pytest.mark.parametrize("package", LAZY)
def test_a_name_that_is_not_there_is_an_attribute_error(package):
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nonsense'"):
        module.nonsense  # noqa: B018
    assert not hasattr(module, "__wrapped__")
    with pytest.raises(ImportError, match="nonsense"):
        exec(f"from {package} import nonsense")


def test_every_name_is_found_in_a_fresh_process():
    """In this one, others may have imported what it comes from."""
    code = """
import sys, tacit
assert "torch" not in sys.modules
print(tacit.train.__name__, tacit.graphs.ring(3).size())
from tacit.privacy import *
print(DurableLedger.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "train 3\nDurableLedger\n"
