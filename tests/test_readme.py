"""Every snippet in the README and the docs runs, top to bottom, as a reader would run it, in an empty folder.

What a page's blocks mean, by the language after the fence:

- `python`: run, all blocks of a page in one namespace. A `text` block right below is what it must print.
- `sh`: each line is a `tacit` command and must succeed. (The README's may also be `make` or an activation.)
- `console`: `$ tacit ...`, and below it what that must print.
- `bash`: run by bash, for what takes more than one process.
- `toml`: written to the file that its first line names.

In what must be printed, `…` stands for anything. An audit of a sound system, whose noise is secret, is played with more confidence than the
page says, so that it finds no fault but once in a million times.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit.cli import app

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
RUN = ("python", "sh", "console", "bash", "toml")
# What the audits on the pages are played with, instead of what is written there. The last two have no verdict.
SURE = {
    "neighbor": ["--confidence", "0.999999"],
    "check.toml": ["--false-alarm", "1e-6"],
    "distance": [],
    "gossip": [],
}


def blocks(page):
    """Return language, text and where it stands, of every block."""
    source = page.read_text()
    return [(found[1], found[2], found.start(), found.end()) for found in FENCED.finditer(source)]


def follows(source, before, after):
    """Say whether nothing but blank lines is between two places."""
    return not source[before:after].strip()


def matches(wanted, printed):
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    pattern = "\n".join(re.escape(line.rstrip()).replace("…", ".*?") for line in wanted.strip("\n").splitlines())
    return re.fullmatch(pattern, "\n".join(lines), re.S) is not None


def tacit(line):
    """Run one command line in this process and return its exit code and all that it prints."""
    words = shlex.split(line, comments=True)
    assert words[0] == "tacit", f"only tacit commands can be run here, not {line!r}"
    if line.startswith("tacit audit"):
        words += SURE[words[2]]
    environment = {"COLUMNS": "80", "TERM": "dumb"}
    result = CliRunner(env=environment).invoke(app, words[1:], prog_name="tacit")
    return result.exit_code, result.output


def commands(text):
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def run_python(code, where, names, wanted):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, where, "exec"), names)
    assert wanted is None or matches(wanted, printed.getvalue()), f"{where} prints\n{printed.getvalue()}"


def run_console(text, where):
    for part in re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.M)[1:]:
        line, _, wanted = part.partition("\n")
        _, printed = tacit(line)
        assert matches(wanted, printed), f"{where}: {line} prints\n{printed}"


def run_bash(text, where):
    program = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{program}:{os.environ['PATH']}", "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, f"{where}\n{done.stdout}\n{done.stderr}"


def run_page(page, skip=()):
    source, found, names = page.read_text(), blocks(page), {"__name__": page.stem}
    for number, (language, text, _, end) in enumerate(found):
        where = f"{page.name}, block {number + 1}"
        if language in skip:
            continue
        if language == "python":
            below = found[number + 1] if number + 1 < len(found) else ("", "", 0, 0)
            output = below[1] if below[0] == "text" and follows(source, end, below[2]) else None
            run_python(text, where, names, output)
        elif language == "sh":
            for line in commands(text):
                code, printed = tacit(line)
                assert code == 0, f"{where}: {line}\n{printed}"
        elif language == "console":
            run_console(text, where)
        elif language == "bash":
            run_bash(text, where)
        elif language == "toml":
            Path(text.splitlines()[0].removeprefix("#").strip()).write_text(text)


_SLOW = (
    "runs.md",
    "own-rule.md",
    "audit.md",
    "index.md",
    "own-model.md",
    "own-graph.md",
    "reproduce.md",
    "own-data.md",
    "concepts.md",
    "evidence.md",
    "peers.md",
    "masks.md",
    "votes.md",
)


def _marks(name):
    # Two commands on that page, and an audit from Python, attack sound systems.
    return [pytest.mark.slow] * (name in _SLOW) + [pytest.mark.chance(3e-6)] * (name == "audit.md")


RUNNING = [
    pytest.param(page, marks=_marks(page.name), id=page.name)
    for page in PAGES
    if any(block[0] in RUN for block in blocks(page))
]


@pytest.mark.parametrize("page", RUNNING)
def test_snippets_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page, skip=("sh",) if page == README else ())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_block_is_of_a_kind_that_is_not_run(page):
    assert {language for language, *_ in blocks(page)} <= {*RUN, "text", "{eval-rst}"}
    assert page.read_text().count("```") == 2 * len(blocks(page))


def test_the_readme_has_snippets():
    assert len([block for block in blocks(README) if block[0] == "python"]) >= 2


@pytest.mark.slow
@pytest.mark.chance(1e-6)
def test_the_commands_of_the_readme_run(tmp_path, monkeypatch):
    """All lines that begin with `tacit`, in order, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    texts = [text for language, text, *_ in blocks(README) if language == "sh"]
    lines = [line for text in texts for line in commands(text) if line.startswith("tacit ")]
    assert len(lines) >= 8
    for line in lines:
        code, printed = tacit(line)
        assert code == 0, f"{line}\n{printed}"
    assert any(" --budget " in line for line in lines), "the budget is one of the commands that are tried"
    for made in ("graph.png", "runs/dsgt-digits-1/report.html", "comparison.html"):
        assert (tmp_path / made).is_file()


@pytest.mark.parametrize(("printed", "right"), [("a 1\nb 2\n", True), ("a 1\nb 3\n", False), ("a 1\n", False)])
def test_what_is_printed_is_compared(printed, right):
    assert matches("a …\nb 2\n", printed) is right


def test_a_snippet_that_prints_something_else_is_found():
    with pytest.raises(AssertionError, match="prints"):
        run_python("print(1 + 1)", "a page", {}, "3\n")
    with pytest.raises(AssertionError, match="prints"):
        run_console("$ tacit --version\ntacit 99\n", "a page")
