"""Every Python snippet in the README and the docs runs, top to bottom, as a reader would run it."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SNIPPETS = {page: re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S) for page in PAGES}


@pytest.mark.parametrize("page", [p for p in PAGES if SNIPPETS[p]], ids=lambda page: page.name)
def test_snippets_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    for number, snippet in enumerate(SNIPPETS[page], 1):
        exec(compile(snippet, f"{page.name}, snippet {number}", "exec"), names)


def test_the_readme_has_snippets():
    assert len(SNIPPETS[ROOT / "README.md"]) >= 2


def test_the_commands_of_the_readme_run(tmp_path, monkeypatch):
    """All lines that begin with `tacit`, in order, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.startswith("tacit ")]
    assert len(lines) >= 8
    for line in lines:
        result = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
        assert result.exit_code == 0, f"{line}\n{result.output}"
    for made in ("graph.png", "runs/dsgt-digits-1/report.html", "comparison.html"):
        assert (tmp_path / made).is_file()
