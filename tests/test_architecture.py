"""The pictures of the architecture are those of the code as it is, and every module, file and test that a page names exists."""

import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tacit"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
PACKAGES = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
FOLDERS = ("src", "tests", "docs", "examples", "benchmarks")


def load_script():
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "docs" / "architecture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()


@pytest.mark.parametrize("name", SCRIPT.PICTURES)
def test_committed_picture_is_what_the_script_draws(name):
    committed = (ROOT / "docs" / "images" / f"{name}.svg").read_text()
    assert committed == SCRIPT.PICTURES[name](), "run `python docs/architecture.py` and commit what it draws"


def test_station_that_does_not_exist_is_refused():
    with pytest.raises(SystemExit, match=r"no_such_name in src/tacit/privacy/lots\.py"):
        SCRIPT._check(SCRIPT.Station("lot", ("", ""), "privacy/lots.py", "no_such_name"))
    with pytest.raises(SystemExit, match=r"draw_lot in src/tacit/privacy/no_such_module\.py"):
        SCRIPT._check(SCRIPT.Station("lot", ("", ""), "privacy/no_such_module.py", "draw_lot"))


def spans(page):
    """Return what a page has in single backticks, outside of blocks of code."""
    return CODE.findall(FENCED.sub("", page.read_text()))


def is_there(text):
    """Say whether a path of the repository or of the package exists; None where a text is not such a path."""
    if "NAME" in text or not re.fullmatch(r"[\w.-]+(?:/[\w.-]+)*/?", text):
        return None
    first = text.partition("/")[0]
    if re.fullmatch(r"test_\w+\.py", text):
        return any(ROOT.glob(f"tests/**/{text}"))
    if "/" not in text or not (text.endswith((".py", "/")) or first in FOLDERS):
        return None
    if first in FOLDERS:
        return (ROOT / text).exists()
    if first == "tacit":
        return (ROOT / "src" / text).exists()
    return (SOURCE / text).exists() if first in PACKAGES else None


@cache
def names_of_tests():
    """Return the names of all test functions."""
    defined = re.compile(r"^ *def (test_\w+)", re.M)
    return {name for path in (ROOT / "tests").rglob("*.py") for name in defined.findall(path.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page):
    assert [text for text in spans(page) if is_there(text) is False] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page):
    assert [text for text in spans(page) if re.fullmatch(r"test_\w+", text) and text not in names_of_tests()] == []


def test_every_module_of_runs_has_its_place_in_the_table():
    named = set(spans(ROOT / "docs" / "architecture.md"))
    assert {f"runs/{path.name}" for path in (SOURCE / "runs").glob("[!_]*.py")} <= named


def test_paths_are_distinguished_from_other_code():
    assert is_there("privacy/lots.py")
    assert is_there("tests/reference.py")
    assert is_there("privacy/gone.py") is False
    assert is_there("test_gone.py") is False
    for other in ("nets.py", "file.py:NAME", "runs/first", "results/NAME-laptop/", "site/"):
        assert is_there(other) is None
