"""Dependencies point one way, so that an algorithm reaches data only through the oracle, and every package can be read by itself."""

import ast
from pathlib import Path

import pytest

import tacit

ROOT = Path(tacit.__file__).parent
LAYERS = [
    {"errors", "lazy"},
    {"io"},
    {"graphs", "data"},
    {"models"},
    {"networks"},
    {"algorithms", "privacy"},
    {"training"},
    {"runs"},
    {"api"},
    {"evidence", "report"},
    {"audit"},
    {"experiments"},
    {"cli"},
]
BELOW = {part: set().union(*LAYERS[:number]) for number, layer in enumerate(LAYERS) for part in sorted(layer)}
NOT_EVEN = {
    "algorithms": {"data", "models"},  # a rule sees the data only through `at`
    "networks": {"data", "models"},
    "report": {"training", "api"},  # it reads files and never a session
}
MAY_IMPORT = {part: (BELOW[part] | {part}) - NOT_EVEN.get(part, set()) for part in BELOW}


def modules(part):
    path = ROOT / part
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ([f"tacit.{alias.name}" for alias in node.names] if node.module == "tacit" else [node.module])


def test_every_package_and_module_has_a_layer():
    parts = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - {"__init__", "__main__"} == set(BELOW)


@pytest.mark.parametrize("part", BELOW)
def test_imports_nothing_above_it(part):
    for path in modules(part):
        used = {name.split(".")[1] for name in imports(path) if name.startswith("tacit.")} - {"__version__"}
        assert used <= MAY_IMPORT[part], f"{path.relative_to(ROOT)} imports {sorted(used - MAY_IMPORT[part])}"


def test_no_algorithm_mentions_privacy():
    """The private and the non-private version are the same file."""
    for path in (ROOT / "algorithms").glob("*.py"):
        code = ast.unparse(ast.parse(path.read_text()))
        for word in ("epsilon", "ledger", "oracle(", "noise_multiplier"):
            assert word not in code.lower() or path.name == "interface.py", f"{path.name} says {word}"
