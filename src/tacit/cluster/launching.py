"""Starts all ranks of a run on this machine, starts them again when one is killed, and ends them when the run ends.

Ranks get the variables that torchrun sets, so the same worker runs under both. They meet in a store that lives here.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from torch.distributed import TCPStore

from tacit.cluster.group import LOST
from tacit.io.stopping import heard

RESTARTS = 3
PIPE = "TACIT_LAUNCHER_PIPE"
"""Names the pipe by which a rank sees that whoever started it is gone."""
_POLL, _GRACE = 0.05, 20.0


def launch(
    arguments: Sequence[str],
    ranks: int,
    *,
    finished: Callable[[], bool],
    restarts: int = RESTARTS,
    say: Callable[[str], None] = lambda _: None,
) -> int:
    """Run `python -m tacit.cluster` with these arguments on `ranks` ranks, and return rank 0's exit code.

    When a rank is killed or silent, all of them start again, at most `restarts` times, and resume the run, unless it is `finished`: then
    the rank died as it left, and nothing is lost. An error that a rank reports ends all, and so does a signal to this process, also if ranks
    are still importing and die of it. `say` is called with what happened.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for attempt in range(restarts + 1):
        playing = _Attempt(arguments, ranks, store.port)
        code, why = playing.wait(finished, say)
        if code != LOST:
            return code
        if playing.stopped_by is not None:
            say(f"{why} while the run was being stopped")
            return 128 + playing.stopped_by
        if attempt < restarts:
            say(f"{why}; all {ranks} ranks start again and resume the run (restart {attempt + 1} of {restarts})")
        else:
            say(f"{why}, after {restarts} restarts")
    return LOST


class _Attempt:
    """All ranks, started once. `stopped_by` is the signal that this process was told to stop by."""

    stopped_by: int | None = None

    def __init__(self, arguments: Sequence[str], ranks: int, port: int) -> None:
        self._reader, self._writer = os.pipe()
        shared = {
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            PIPE: str(self._reader),
        }
        defaults = {"OMP_NUM_THREADS": "1"} | ({"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {})
        self._ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "tacit.cluster", *arguments],
                env=defaults | os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                pass_fds=[self._reader],
                process_group=0,  # Ctrl-C reaches this process alone, which passes it on once
            )
            for rank in range(ranks)
        ]

    def wait(self, finished: Callable[[], bool], say: Callable[[str], None]) -> tuple[int, str]:
        """Wait until rank 0 ends or another rank fails, end all, and return the exit code and what happened."""
        try:
            with self._signals_passed_on():
                code, why = self._watch()
                if code == 0 or (code == LOST and finished()):
                    return self._let_leave(say), ""
                return code, why
        finally:
            for rank in self._ranks:
                if rank.poll() is None:
                    rank.kill()
                rank.wait()
            os.close(self._reader)
            os.close(self._writer)

    def _watch(self) -> tuple[int, str]:
        until = None
        while True:
            codes = [rank.poll() for rank in self._ranks]
            failed = [rank for rank, code in enumerate(codes) if code]
            gone = [rank for rank in failed if codes[rank] == LOST or (codes[rank] or 0) < 0]
            if codes[0] is not None and codes[0] != LOST and codes[0] >= 0:
                return codes[0], ""
            if gone and len(gone) == len(failed):
                # Those that say they lost another may see it before this process does.
                killed = self._killed(codes)
                return LOST, killed or "a rank ended or did not answer within the deadline"
            elif failed and until is None:
                until = time.monotonic() + _GRACE  # rank 0 reports what another has failed with
            elif failed and time.monotonic() > (until or 0):
                return LOST, f"rank {failed[0]} failed, and rank 0 did not end"
            time.sleep(_POLL)

    def _let_leave(self, say: Callable[[str], None]) -> int:
        """Let the ranks of a finished run leave, say which of them did not end well, and return rank 0's code, or 0 if it was killed."""
        until = time.monotonic() + _GRACE
        while None in (codes := [rank.poll() for rank in self._ranks]) and time.monotonic() < until:
            time.sleep(_POLL)
        for rank, code in enumerate(codes):
            if code != 0:
                how = "did not end" if code is None else _killed_by(code) or f"ended with code {code}"
                say(f"rank {rank} {how} after the end of the run, which is on record: nothing is lost")
        return codes[0] if codes[0] is not None and codes[0] > 0 and codes[0] != LOST else 0

    def _killed(self, codes: list[int | None]) -> str | None:
        time.sleep(_POLL)
        for rank, process in enumerate(self._ranks):
            code = process.poll() if codes[rank] is None else codes[rank]
            if code is not None and (how := _killed_by(code)) is not None:
                return f"rank {rank} {how}"
        return None

    @contextmanager
    def _signals_passed_on(self) -> Iterator[None]:
        """Pass Ctrl-C and SIGTERM on to rank 0, which stops the run."""

        def pass_on(number: int, frame: FrameType | None) -> None:
            self.stopped_by = number
            with suppress(ProcessLookupError):
                self._ranks[0].send_signal(number)

        before = {number: signal.signal(number, pass_on) for number in heard()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _killed_by(code: int) -> str | None:
    """Say which signal an exit code stands for."""
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else None
    return None
