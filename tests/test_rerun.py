"""`.ci/run` and its plugin, on small projects: what fails once is unstable, and whatever else goes wrong is a failure."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rerun import MOST

ROOT = Path(__file__).parents[1]
FINE = "def test_fine(): pass\n"
BROKEN = "def test_broken(): assert 'left' == 'right'\n"
ONCE = """
from pathlib import Path
def test_once():
    if not Path("seen").exists():
        Path("seen").touch()
        assert False, "only now"
"""


@pytest.fixture
def project(tmp_path):
    """Return a function that writes these tests and plays them, with the plugin, in one process or several."""
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "tests" / "rerun.py", tmp_path / "tests")

    def play(*options, processes=0, **files):
        for name, text in files.items():
            (tmp_path / "tests" / f"test_{name}.py").write_text(text)
        words = [sys.executable, "-m", "pytest", "-p", "tests.rerun", "-n", str(processes), *options]
        return ended(words, tmp_path)

    return play


def ended(words, folder, **more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "MAKE", "MFLAGS"))}
    few = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist", "PYTEST_XDIST_AUTO_NUM_WORKERS": "2"}
    environment = kept | few | {"UNSTABLE": str(folder / "unstable")} | more
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    noted = folder / "unstable"
    return done.returncode, done.stdout, noted.read_text().splitlines() if noted.exists() else []


def test_where_nothing_fails_nothing_is_run_again(project):
    code, said, unstable = project(a=FINE)
    assert (code, unstable) == (0, [])
    assert said.splitlines()[-1].startswith("1 passed in")


def test_what_fails_once_is_named_and_passes(project):
    code, said, unstable = project(a=FINE, b=ONCE, processes=2)
    assert (code, unstable) == (0, ["UNSTABLE: tests/test_b.py::test_once"])
    first, again = said.split("UNSTABLE: tests/test_b.py::test_once")
    assert "1 failed, 1 passed in" in first
    assert "AssertionError: only now" in again.partition("the second time, alone:")[0]
    assert "1 passed in" in again.partition("the second time, alone:")[2]


def test_what_fails_twice_fails_beside_one_that_is_unstable(project):
    code, said, unstable = project(a=BROKEN, b=ONCE)
    assert (code, unstable) == (1, ["UNSTABLE: tests/test_b.py::test_once"])
    assert "left" in said.partition("FAILED TWICE: tests/test_a.py::test_broken")[2].partition("the second time")[2]


def test_a_process_that_dies_is_a_failure_of_its_test(project):
    dies = "import os\ndef test_dies(): os._exit(3)\n"
    code, said, unstable = project(a=FINE, b=dies, processes=2)
    assert (code, unstable) == (1, [])
    assert "crashed while running 'tests/test_b.py::test_dies'" in said.partition("FAILED TWICE")[2]


def test_a_failure_of_what_surrounds_a_test_is_one_of_the_test(project):
    torn_down = "import pytest\n@pytest.fixture\ndef made():\n    yield\n    assert 0\ndef test_made(made): pass\n"
    code, said, unstable = project(a=torn_down)
    assert (code, unstable) == (1, [])
    assert "FAILED TWICE: tests/test_a.py::test_made" in said


def test_a_test_that_is_skipped_the_second_time_has_not_passed(project):
    code, said, unstable = project(b="import pytest\n" + ONCE + '    else: pytest.skip("not now")\n')
    assert (code, unstable) == (1, [])
    assert "1 skipped" in said.partition("FAILED TWICE")[2]


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize(
    ("more", "how", "codes"),
    [
        ({"test_b": "import nothing_of_this_name\n"}, "ModuleNotFoundError", {0: 2, 2: 1}),
        ({"test_b": "def test_stop(): raise KeyboardInterrupt\n"}, "Interrupt", {0: 2, 2: 2}),
        ({"conftest": "def pytest_runtest_logfinish(nodeid): 1 / 0\n"}, "INTERNALERROR", {0: 3, 2: 3}),
        ({"test_a": "import pytest\n"}, "no tests ran", {0: 5, 2: 5}),
    ],
    ids=["collection", "interrupted", "internal", "none"],
)
def test_what_is_no_failure_of_a_test_is_not_run_again(project, tmp_path, more, how, codes, processes):
    for name, text in more.items():
        (tmp_path / "tests" / f"{name}.py").write_text(text)
    code, said, unstable = project(**({} if "test_a" in more else {"a": ONCE}), processes=processes)
    assert (code, unstable) == (codes[processes], [])
    assert how.lower() in said.lower()
    assert "the second time" not in said


def test_after_many_failures_nothing_is_run_again(project):
    many = f"import pytest\n@pytest.mark.parametrize('n', range({MOST + 1}))\ndef test_broken(n): assert 0\n"
    code, said, unstable = project(a=many)
    assert (code, unstable) == (1, [])
    assert "none is run again" in said
    assert "the second time" not in said


@pytest.fixture
def checkout(project, tmp_path):
    """Return a function that plays `.ci/run` with the Makefile of this project, where lint ends as told and no browser is installed."""
    for name in (".ci/run", "Makefile", "constraints.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)

    def play(lint=0, **files):
        lines = {"python": f'exec "{sys.executable}" "$@"', "ruff": f"exit {lint}", "mypy": "exit 0", "chromium": ""}
        for name, line in lines.items():
            (programs / name).write_text(f"#!/bin/sh\n{line}\n")
            (programs / name).chmod(0o755)
        for name, text in files.items():
            (tmp_path / "tests" / f"test_{name}.py").write_text(text)
        (programs.parent / ".ready").touch()
        return ended([".ci/run"], tmp_path, PATH=f"{programs}:{os.environ['PATH']}", TMPDIR=str(tmp_path))

    return play


SLOW = """
import pytest
from pathlib import Path
@pytest.mark.slow
def test_slow(): Path("slow").touch()
"""


def test_ci_goes_on_after_an_unstable_test_and_ends_with_its_name(checkout):
    code, said, _ = checkout(a=ONCE, b=SLOW)
    assert code == 0
    assert said.splitlines()[-2].startswith("1 passed in")  # the slow test
    assert said.splitlines()[-1] == "UNSTABLE: tests/test_a.py::test_once"


def test_ci_ends_at_what_fails_twice_or_is_not_clean(checkout, tmp_path):
    code, said, _ = checkout(a=ONCE, b=BROKEN, c=SLOW)
    assert code != 0
    assert "FAILED TWICE: tests/test_b.py::test_broken" in said
    assert not (tmp_path / "slow").exists()
    assert said.splitlines()[-1] == "UNSTABLE: tests/test_a.py::test_once"
    code, said, _ = checkout(lint=1, a=FINE, b=SLOW)
    assert code != 0
    assert "passed" not in said
