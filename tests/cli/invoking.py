"""Run the command line as a user would, in this process or in one of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner
from waits import LIMIT

from tacit.cli import app
from tacit.privacy import noise
from tacit.privacy.noise import GridNoise

TACIT = Path(sys.executable).with_name("tacit")
MAGIC = {".png": b"\x89PNG\r\n", ".pdf": b"%PDF-", ".svg": b"<?xml"}
QUICK = ["--agents", "4", "--split", "0.5", "--noise-multiplier", "3", "--lot-size", "24", "--rounds", "6", "--lr", "1"]
PLAIN = ["--no-private", *QUICK[:4], *QUICK[6:]]
_ENV = {"COLUMNS": "80", "OMP_NUM_THREADS": "1", "TERM": "dumb"}


def answer(*args: object) -> str:
    """Return what a command prints; it must succeed, fit 80 columns (but for paths) and leave stderr alone."""
    result = _invoke(args)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    if "--json" not in args:
        assert max(len(line) for line in result.stdout.splitlines() if "/" not in line) <= 80
    return result.stdout


def noted(*args: object) -> tuple[str, str]:
    """Return what a command prints, and the one note beside it, which it must have."""
    result = _invoke(args)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith("note: ")
    return result.stdout, one_line(result.stderr.removeprefix("note: "))


def document(*args: object) -> dict:
    """Return the one JSON document that a command prints."""
    return json.loads(answer(*args, "--json"))


def complaint(*args: object) -> str:
    """Return the one sentence of a command that must refuse, with exit code 2 and nothing on stdout."""
    result = _invoke(args)
    assert result.exit_code == 2, (result.stdout, result.stderr, result.exception)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    return result.stderr.removeprefix("error: ").rstrip("\n")


def process(*args: object, **options: object) -> subprocess.CompletedProcess:
    """Run the installed program."""
    environment = {**os.environ, **_ENV, **options.pop("env", {})}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run([str(TACIT), *map(str, args)], env=environment, text=True, timeout=LIMIT, **streams)


def stopped_reading(*args: object) -> str:
    """Run the installed program, read a little, hang up, and return what it has to say to that."""
    started = subprocess.Popen([str(TACIT), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    started.stdout.read(10)
    started.stdout.close()
    said = started.stderr.read().decode()
    started.stderr.close()
    started.wait(LIMIT)
    return said


# Runs the program, with Ctrl-C as in a terminal, which reaches its whole process group, at the moment when a first piece of the work is reported done.
_INTERRUPTED = """
import importlib, os, signal, sys
from contextlib import contextmanager

module = importlib.import_module(sys.argv.pop(1))
count_progress = module.count_progress

@contextmanager
def interrupted(*given, **options):
    with count_progress(*given, **options) as update:
        def update_and_interrupt(done, *more):
            update(done, *more)
            if done:
                os.killpg(0, signal.SIGINT)
        yield update_and_interrupt

module.count_progress = interrupted
from tacit.cli import main
main()
"""


def interrupted(module: str, *args: object, **options: object) -> subprocess.CompletedProcess:
    """Run the program, interrupted when `module` reports the first progress: it cannot be through before."""
    words = [sys.executable, "-c", _INTERRUPTED, module, *map(str, args)]
    alone = {"start_new_session": True, "capture_output": True, "text": True, "timeout": LIMIT}
    return subprocess.run(words, env={**os.environ, **_ENV}, **alone, **options)


def one_line(text: str) -> str:
    """Return a text as it was before it was wrapped."""
    return " ".join(text.split())


def is_picture(path: Path) -> bool:
    """Say whether a file is what its name says."""
    return path.read_bytes().startswith(MAGIC[path.suffix.lower()])


def _invoke(args):
    return CliRunner(env=_ENV).invoke(app, [str(arg) for arg in args], prog_name="tacit")


def plant_noise(factor, monkeypatch):
    """Let every oracle add so many times the noise that is stated."""

    def less(*, noise_multipliers, **others):
        return GridNoise(noise_multipliers=[factor * sigma for sigma in noise_multipliers], **others)

    monkeypatch.setattr(noise, "GridNoise", less)
