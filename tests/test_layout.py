"""Dependencies point one way, so that an algorithm cannot reach the data but through the oracle."""

import ast
from pathlib import Path

import pytest

import tacit

ROOT = Path(tacit.__file__).parent
MAY_IMPORT = {
    "errors": set(),
    "lazy": set(),
    "files": {"errors"},
    "inputs": {"errors"},
    "lock": {"errors"},
    "chains": set(),
    "graphs": {"errors", "files", "graphs"},
    "data": {"errors", "inputs", "data"},
    "models": {"errors", "inputs", "models"},
    "algorithms": {"errors", "algorithms", "networks"},
    "networks": {"errors", "networks", "graphs"},
    "privacy": {"errors", "inputs", "lazy", "lock", "chains", "privacy", "data", "models"},
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_imports_nothing_above_it(part):
    files = [ROOT / f"{part}.py"] if (ROOT / f"{part}.py").exists() else sorted((ROOT / part).glob("*.py"))
    assert files
    for path in files:
        used = {name.split(".")[1] for name in imports(path) if name.startswith("tacit.")}
        assert used <= MAY_IMPORT[part], f"{path.name} imports {used - MAY_IMPORT[part]}"


def test_no_algorithm_mentions_privacy():
    """The private and the non-private version are the same file."""
    for path in (ROOT / "algorithms").glob("*.py"):
        code = ast.unparse(ast.parse(path.read_text()))
        for word in ("epsilon", "ledger", "oracle(", "noise_multiplier"):
            assert word not in code.lower() or path.name == "interface.py", f"{path.name} says {word}"
