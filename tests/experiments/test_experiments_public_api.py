"""Experiments are written against the public API alone: names of `tacit` and of docs/api.md. That proves the API is enough."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import tacit
from tacit import experiments
from tacit.registry import RULES

API = Path(__file__).parents[2] / "docs" / "api.md"
DOCUMENTED = set(re.findall(r"^\.\. (?:auto\w+|py:data):: (tacit[\w.]*)", API.read_text(), re.MULTILINE))
DOCUMENTED |= {f"tacit.algorithms.{line.class_name}" for line in RULES.lines.values()}  # in place of {{ rules }}
MODULES = sorted(Path(experiments.__file__).parent.glob("*.py"))


def resolve(name):
    """Return what a full name stands for; None if nothing has it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return getattr(resolve(module), last, None) if module else None


def bound(tree):
    """Return the names that a module binds by its imports from Tacit, each with the full name of what it stands for."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tacit":
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            plain = [alias for alias in node.names if alias.name.split(".")[0] == "tacit"]
            found |= {alias.asname: alias.name for alias in plain if alias.asname}
            found |= {"tacit": "tacit"} if any(alias.asname is None for alias in plain) else {}
    return found


def used(source):
    """Yield the full name of everything of Tacit that a module uses, beyond the experiments themselves.

    Of a module that is imported whole, that is whatever is read from it, as in `journal.read` and `tacit.io.journal.read`.
    """
    tree = ast.parse(source)
    names, inner = bound(tree), set()
    for node in ast.walk(tree):
        parts, base = [], node
        while isinstance(base, ast.Attribute):
            parts, base = [base.attr, *parts], base.value
        if parts and isinstance(base, ast.Name) and base.id in names and id(node) not in inner:
            inner |= {id(each) for each in ast.walk(node)}
            full = names[base.id]
            for part in parts:
                if not inspect.ismodule(resolve(full)):
                    break
                full = f"{full}.{part}"
            yield full
    yield from (full for full in names.values() if not inspect.ismodule(resolve(full)))


def undocumented(source):
    """Return the names that a module uses although they are neither in docs/api.md nor in `tacit.__all__`."""
    public = {id(resolve(name)) for name in DOCUMENTED} | {id(getattr(tacit, name)) for name in tacit.__all__}
    return {
        full
        for full in used(source)
        if not full.startswith("tacit.experiments") and full not in DOCUMENTED and id(resolve(full)) not in public
    } - {"tacit.__version__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_experiments_use_documented_names_only(path):
    assert not undocumented(path.read_text()), f"{path.name} uses names that are not in docs/api.md"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from tacit.privacy.accounting import _merge", "tacit.privacy.accounting._merge"),
        ("from tacit.io import files\nfiles.replace_folder", "tacit.io.files.replace_folder"),
        ("import tacit\ntacit.privacy.accounting.ceil_digits(1.0)", "tacit.privacy.accounting.ceil_digits"),
        ("import tacit.io.processes\ntacit.io.processes._context()", "tacit.io.processes._context"),
        ("import tacit.io.processes as p\np._context()", "tacit.io.processes._context"),
    ],
)
def test_internals_are_found_however_they_are_imported(source, name):
    assert undocumented(source) == {name}


def test_what_is_read_from_a_value_is_not_a_name_of_a_module():
    assert not undocumented("import tacit\nfrom tacit.io import journal\ntacit.DSGT().step\njournal.read(1)")
