"""What users run, many times over: `python -m tests.journeys` plays each of these journeys twenty times and counts what does not end well.

Each is played in an empty folder, by processes of its own, as from a user's terminal; with `--beside 2`, two busy loops run beside it. The
last lines of what failed are printed, and all that it wrote is kept in the folder that is named at the end. Audits are played with more
confidence than they have by default, so that chance accuses no sound system.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))
from test_readme import SURE, blocks, commands
from waits import LIMIT, wait_until

ROOT = Path(__file__).parents[1]
PROGRAMS = Path(sys.executable).parent
LINES = 12
RUN = "--dataset digits --algorithm dsgt --epsilon 4 --delta 1e-3 --lot-size 24 --lr 1"
RANKS = f"{RUN} --graph torus --agents 12 --rounds 40"


class Failed(Exception):
    """A command did not end as it should."""


class Terminal:
    """Runs commands in one folder and keeps what they print."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, folder / "output.txt"
        path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "COLUMNS": "80", "TERM": "dumb"}

    def start(self, command: str) -> subprocess.Popen:
        """Start a command in a process group of its own."""
        with self.said.open("a") as said:
            said.write(f"\n$ {command}\n")
            said.flush()
            streams = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": subprocess.STDOUT}
            place = {"cwd": self.folder, "env": self._environment, "start_new_session": True}
            return subprocess.Popen(shlex.split(command, comments=True), **place, **streams)

    def run(self, command: str, code: int = 0) -> None:
        """Run a command to its end."""
        self.end(self.start(command), code)

    def end(self, started: subprocess.Popen, code: int) -> None:
        """Wait for a command, which must return this code and leave no process behind."""
        try:
            returned = started.wait(LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            raise Failed(f"has not ended within {LIMIT:g} s") from None
        left = _lives(started)
        if left:
            os.killpg(started.pid, signal.SIGKILL)
        if returned != code:
            raise Failed(f"ended with {returned} instead of {code}")
        if left:
            raise Failed("left a process behind")


def readme(terminal: Terminal) -> None:
    """All `tacit` commands of the README, in their order."""
    texts = [text for language, text, *_ in blocks(ROOT / "README.md") if language == "sh"]
    for line in [line for text in texts for line in commands(text) if line.startswith("tacit ")]:
        words = shlex.split(line, comments=True)
        terminal.run(shlex.join(words + (SURE[words[2]] if words[1] == "audit" else [])))


def demo(terminal: Terminal) -> None:
    """What `make demo` runs."""
    terminal.run(f"{sys.executable} {ROOT}/examples/demo.py")


def workers(terminal: Terminal) -> None:
    """A run on two ranks."""
    terminal.run(f"tacit train {RANKS} --workers 2")


def torchrun(terminal: Terminal) -> None:
    """The same, started by torchrun from the settings of another."""
    terminal.run(f"tacit train {RANKS} --name alone")
    terminal.run("torchrun --standalone --nproc-per-node 2 -m tacit.cluster runs/alone/config.toml --name ranks")


def ray(terminal: Terminal) -> None:
    """The same, started by Ray."""
    terminal.run(f"tacit train {RANKS} --workers 2 --on ray")


def peers(terminal: Terminal) -> None:
    """Four sites on this machine."""
    terminal.run("tacit peer demo --sites 4 --rounds 20")


def kill(terminal: Terminal) -> None:
    """A run that is killed after a checkpoint, and resumed."""
    _interrupt(terminal, signal.SIGKILL, -signal.SIGKILL)


def stop(terminal: Terminal) -> None:
    """A run that is stopped by Ctrl-C, and resumed."""
    _interrupt(terminal, signal.SIGINT, 130)


def workers_stop(terminal: Terminal) -> None:
    """The same on two ranks."""
    _interrupt(terminal, signal.SIGINT, 130, "--workers 2")


def tune(terminal: Terminal) -> None:
    """A search among four step sizes, and a run with the best."""
    (terminal.folder / "run.toml").write_text('algorithm = "dsgt"\ndataset = "digits"\nrounds = 30\nepsilon = 4.0\n')
    terminal.run("tacit tune run.toml --parameter lr=log:0.1..10 --population 4 --output best.toml")
    terminal.run("tacit train best.toml")


def audit(terminal: Terminal) -> None:
    """An attack by a neighbour, and one by a coalition on masks."""
    few = "--rounds 10 --records 20 --lot-size 2 --runs 200 --confidence 0.999999"
    terminal.run(f"tacit audit neighbor --algorithm dsgt {few}")
    terminal.run(f"tacit audit coalition --algorithm dsgt --agents 5 {few}")


def _interrupt(terminal: Terminal, number: signal.Signals, code: int, more: str = "") -> None:
    """Interrupt a run when it has a checkpoint, long before its end, and resume it."""
    long = "--name one --rounds 3000 --checkpoint-every 100 --evaluate-every 1000"
    started = terminal.start(f"tacit train {RUN} {long} {more}")
    checkpoint = terminal.folder / "runs" / "one" / "checkpoint.safetensors"
    wait_until(lambda: checkpoint.exists() or started.poll() is not None, "a checkpoint")
    if started.poll() is None:
        os.killpg(started.pid, number)
    terminal.end(started, code)
    terminal.run("tacit resume one")
    terminal.run("tacit ledger --verify")


JOURNEYS: dict[str, Callable[[Terminal], None]] = {
    each.__name__.replace("_", "-"): each
    for each in (readme, demo, workers, torchrun, ray, peers, kill, stop, workers_stop, tune, audit)
}


def _lives(started: subprocess.Popen) -> bool:
    """Say whether a process of this group is still there some time after the first has ended."""
    until = time.monotonic() + 10.0
    while time.monotonic() < until:
        try:
            os.killpg(started.pid, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many processes busy."""
    with ExitStack() as stack:
        for _ in range(count):
            loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        yield


def play(name: str, times: int, kept: Path) -> int:
    """Play one journey and return how often it failed."""
    failed, seconds = 0, []
    for number in range(times):
        folder = kept / f"{name}-{number + 1}"
        folder.mkdir()
        terminal, began = Terminal(folder), time.monotonic()
        try:
            JOURNEYS[name](terminal)
        except (Failed, AssertionError) as error:
            failed += 1
            print(f"  {name}, time {number + 1}: {error}", *_last_lines(terminal.said), sep="\n", flush=True)
        else:
            shutil.rmtree(folder)
        seconds.append(time.monotonic() - began)
    print(f"{name:12} {times:5} {failed:6} {median(seconds):7.1f}", flush=True)
    return failed


def _last_lines(file: Path) -> list[str]:
    return [f"    {line}" for line in file.read_text(errors="replace").rstrip().splitlines()[-LINES:]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.journeys", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all of {', '.join(JOURNEYS)}, unless some are named")
    parser.add_argument("--times", type=int, default=20, help="how often each is played (20)")
    parser.add_argument("--beside", type=int, default=0, help="how many busy loops run beside (none)")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in JOURNEYS]:
        parser.error(f"there is no journey {unknown[0]!r}; there are {', '.join(JOURNEYS)}")
    kept = Path(tempfile.mkdtemp(prefix="tacit-journeys-"))
    print(f"{'journey':12} {'times':>5} {'failed':>6} {'seconds':>7}", flush=True)
    with busy(given.beside):
        failed = sum(play(name, given.times, kept) for name in given.names or JOURNEYS)
    if failed:
        sys.exit(f"{failed} failed; everything they wrote is in {kept}")
    kept.rmdir()


if __name__ == "__main__":
    main()
