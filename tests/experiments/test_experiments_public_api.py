"""Experiments are written against the public API alone: names of `tacit` and of docs/api.md. That proves the API is enough."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import tacit
from tacit import experiments

API = Path(__file__).parents[2] / "docs" / "api.md"
DOCUMENTED = set(re.findall(r"^\.\. (?:auto\w+|py:data):: (tacit[\w.]*)", API.read_text(), re.MULTILINE))
MODULES = sorted(Path(experiments.__file__).parent.glob("*.py"))


def imported(path):
    """Yield each name that a module imports from Tacit beyond the experiments themselves, with its value."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tacit":
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if not full.startswith("tacit.experiments"):
                    yield full, getattr(importlib.import_module(node.module), alias.name, None)


def resolve(name):
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_experiments_import_documented_names_only(path):
    public = {id(resolve(name)) for name in DOCUMENTED} | {id(getattr(tacit, name)) for name in tacit.__all__}
    for full, value in imported(path):
        whole = inspect.ismodule(value) and any(name.startswith(f"{full}.") for name in DOCUMENTED)
        assert full in DOCUMENTED or whole or id(value) in public, (
            f"{path.name} imports {full}, which is not in docs/api.md"
        )
