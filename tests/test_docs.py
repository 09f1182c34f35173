"""The documentation site builds without a warning, its links lead somewhere, and it leaves no public name out."""

import importlib
import inspect
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import typer.main
from sphinx.util.inventory import InventoryFile

from tacit.cli import app

ROOT = Path(__file__).parents[1]
MODULES = (
    "",
    ".algorithms",
    ".data",
    ".graphs",
    ".models",
    ".networks",
    ".privacy",
    ".report",
    ".runs",
    ".audit",
    ".evidence",
)
COMMANDS = typer.main.get_command(app).commands


class Page(HTMLParser):
    """The anchors of a page, and what it refers to."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.targets = set(), set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key)}
        self.targets |= {found[key] for key in ("href", "src") if found.get(key)}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    words = ["--fail-on-warning", "--keep-going", "--quiet", "-d", str(folder / "cache"), "docs", str(folder / "html")]
    done = subprocess.run([sys.executable, "-m", "sphinx", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.mark.slow
def test_links_lead_somewhere(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not there.is_file() or (
                parts.fragment and there in pages and parts.fragment not in pages[there].anchors
            ):
                broken.append(f"{path.relative_to(site)}: {target}")
    assert len(pages) > 10
    assert broken == []


@pytest.mark.slow
def test_pages_ask_nothing_of_other_sites(site):
    """Links may lead away; what a page loads by itself may not."""
    for path in site.glob("*.html"):
        source = path.read_text()
        for load in ('src="http', "src='http", '<link rel="stylesheet" type="text/css" href="http', "@import"):
            assert load not in source, f"{path.name} loads something from elsewhere"
    for image in (ROOT / "docs" / "images").glob("*.svg"):
        assert "url(http" not in image.read_text().replace('"', "")


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site):
    listed = set()
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    for kind, entries in inventory.data.items():
        if kind.startswith("py:"):
            listed |= set(entries)
    documented = {id(_named(name)) for name in listed}
    for module in (importlib.import_module(f"tacit{name}") for name in MODULES):
        for name in module.__all__:
            value = getattr(module, name)
            full = f"{module.__name__}.{name}"
            assert inspect.ismodule(value) or full in listed or id(value) in documented, f"{full} is not in api.md"


def _named(name):
    """Return what a dotted name stands for; a method's is of no interest."""
    module, _, last = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), last)
    except (ImportError, AttributeError, ValueError):
        return None


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_in_the_reference(name, site):
    source = (site / "commands.html").read_text()
    assert f'id="tacit-{name}"' in source
    for param in COMMANDS[name].params:
        for option in () if param.hidden else (*param.opts, *param.secondary_opts):
            assert f">{option}<" in source


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_in_the_help_are_commands_that_exist(name):
    """They are read and checked as if they were typed, and not run."""
    words = shlex.split(COMMANDS[name].help.partition("Example")[2].partition("tacit ")[2])
    assert words[0] == name
    COMMANDS[name].make_context(name, words[1:])
