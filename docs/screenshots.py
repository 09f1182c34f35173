"""Takes the pictures of the terminal that the pages show, by running the commands in a real one (tmux).

    python docs/screenshots.py

Each picture is what is on the screen, as an SVG in `docs/images`. Needs tmux; nothing else does.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

IMAGES = Path(__file__).parent / "images"
PROMPT = "$ "
WIDTH, HEIGHT = 80, 60
RUN = "--epsilon 4 --delta 1e-3 --lot-size 48 --lr 4 --lr-final 0.4"


class Terminal:
    """A shell in tmux, in an empty folder."""

    def __init__(self, folder: str) -> None:
        environment = {
            "HOME": folder,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PS1": PROMPT,
            "OMP_NUM_THREADS": "1",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
        }
        self._name = f"tacit-{os.getpid()}"
        shell = ["env", "-i", *(f"{key}={value}" for key, value in environment.items()), "TERM=xterm-256color"]
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, "-c", folder, *shell, "bash", "--norc", "--noprofile")
        self._tmux("set-option", "status", "off")
        self._until(lambda lines: lines[-1:] == [PROMPT.strip()])

    def run(self, command: str) -> None:
        """Type a command on a clear screen and wait until it is done."""
        self.start(command)
        self._until(lambda lines: len(lines) > 1 and lines[-1] == PROMPT.strip())

    def start(self, command: str) -> None:
        """Type a command on a clear screen."""
        self._tmux("send-keys", "C-l")
        time.sleep(0.3)
        self._tmux("send-keys", "-l", command)
        self._tmux("send-keys", "Enter")

    def wait_for(self, pattern: str) -> None:
        """Wait until something like this is on the screen."""
        self._until(lambda lines: any(re.search(pattern, line) for line in lines))

    def stop(self) -> None:
        """Press Ctrl-C and wait for the prompt."""
        self._tmux("send-keys", "C-c")
        self._until(lambda lines: lines[-1:] == [PROMPT.strip()])

    def save(self, name: str) -> None:
        """Save what is on the screen, without the last prompt."""
        screen = Text.from_ansi("\n".join(self._lines("-e")))
        plain = screen.plain.rstrip().removesuffix("\n" + PROMPT.strip()).rstrip()
        shown = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
        shown.print(screen[: len(plain)], soft_wrap=True)
        # A font from the net would be asked for by every reader's browser: use what is there.
        before, after = (CONSOLE_SVG_FORMAT.index(text) for text in ("    @font-face", "    .{unique_id}-matrix"))
        code = (CONSOLE_SVG_FORMAT[:before] + CONSOLE_SVG_FORMAT[after:]).replace("Fira Code,", "")
        svg = shown.export_svg(title="tacit", theme=MONOKAI, code_format=code, unique_id=f"terminal-{name}")
        (IMAGES / f"{name}.svg").write_text(svg)
        print(f"{name}.svg")

    def close(self) -> None:
        """End the shell."""
        self._tmux("kill-server")

    def _lines(self, *options: str) -> list[str]:
        return self._tmux("capture-pane", "-p", *options).rstrip("\n").split("\n")

    def _until(self, reached: Callable[[list[str]], bool]) -> None:
        for _ in range(1200):
            if reached([line.rstrip() for line in self._lines() if line.strip()]):
                return
            time.sleep(0.05)
        raise SystemExit("the terminal does not get there:\n" + "\n".join(self._lines()))

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-L", self._name, *words], capture_output=True, text=True, check=True)
        return done.stdout


def main() -> None:
    if shutil.which("tmux") is None:
        raise SystemExit("there is no tmux on the PATH")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        terminal = Terminal(folder)
        try:
            terminal.run(f"tacit train --algorithm dsgt --rounds 100 {RUN}")
            terminal.save("train")
            terminal.run("tacit budget --epsilon 1 --dataset-size 6000 --lot-size 256 --queries 2000")
            terminal.save("budget")
            terminal.start(f"tacit train --runs live --rounds 600 {RUN}")
            terminal.wait_for(r" [34]\d\d/600 ")
            terminal.save("live")
            terminal.stop()
        finally:
            terminal.close()


if __name__ == "__main__":
    main()
