"""Every Python snippet in the README and the docs runs, top to bottom, as a reader would run it."""

import re
from pathlib import Path

import pytest

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
