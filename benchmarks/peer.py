"""Time of a round between peers beyond computing: five real processes, each linked to the four others, over TLS on loopback.

The protocol, the journal on disk and the wire are those of `tacit peer run`; instead of a model, each site sends the same bytes in every round.
"""

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Collection
from dataclasses import replace
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.report import Report, Row

SITES = 5
SIZES = {"40 KB": 40_000, "1 MB": 1_000_000, "30 MB": 30_000_000}
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["torch", "tacit.runs.runner"])


class SameBytes:
    """A player of rounds whose only work is one exchange of the same message."""

    def __init__(self, core: object, size: int, rounds: int) -> None:
        from tacit.peer.protocol.core import Core

        assert isinstance(core, Core)
        self._core, self._message, self._rounds = core, bytes(size), rounds
        self.round, self.ended = 0, [time.perf_counter()]

    @property
    def finished(self) -> bool:
        """Whether all rounds are played."""
        return self.round >= self._rounds

    def attempt(self) -> None:
        """Exchange one message with all neighbours."""
        from tacit.peer.protocol.driver import Suspended
        from tacit.peer.protocol.interface import Slot
        from tacit.peer.protocol.link import Pending

        pending = Pending(Slot(self.round, 0), self._message, self._core.terms.neighbors, lambda _: None)
        if self._core.outcome(pending) is None:
            raise Suspended(pending)
        self.round += 1
        self.ended.append(time.perf_counter())

    def save(self) -> bytes:
        """There is no state."""
        return b""

    def load(self, state: bytes | None, round: int) -> None:
        """Begin."""
        self.round = round

    def neighbors_of(self, round: int) -> Collection[int]:
        """Return all others."""
        return self._core.terms.neighbors


def _play(folder: str, size: int, rounds: int, results: "SimpleQueue[list[float]]") -> None:
    from tacit.peer.agreement.signed import read_chain
    from tacit.peer.identity import Identity
    from tacit.peer.preparation import peer_terms
    from tacit.peer.protocol.clock import LoopClock
    from tacit.peer.protocol.core import Core
    from tacit.peer.protocol.driver import play
    from tacit.peer.protocol.sqlite import SQLiteJournal
    from tacit.peer.wire.hub import GrpcWire

    async def main() -> list[float]:
        identity, chain = Identity.load(Path(folder)), read_chain(Path(folder))
        terms = peer_terms(chain, chain.current.number_of(identity.name), size, torch.float32)
        terms = replace(terms, rounds=rounds, most_bytes=max(size, terms.most_bytes), linger_seconds=20.0)
        wire = GrpcWire(identity, chain.current, most_bytes=terms.most_bytes)
        core = Core(terms, clock=LoopClock(), wire=wire, journal=SQLiteJournal(Path(folder) / f"journal-{size}"))
        wire.core = core
        await wire.start()
        await core.start()
        player = SameBytes(core, size, rounds)
        await play(core, player)
        await core.linger()
        await wire.stop()
        core.close()
        return [after - before for before, after in zip(player.ended[1:], player.ended[2:], strict=False)]

    results.put(asyncio.run(main()))


def time_rounds(folder: Path, size: int, rounds: int) -> float:
    """Return the median seconds of a round at the site where it is longest."""
    results: SimpleQueue[list[float]] = _FORKS.SimpleQueue()
    sites = sorted(path for path in folder.iterdir() if path.is_dir())
    processes = [_FORKS.Process(target=_play, args=(str(site), size, rounds, results)) for site in sites]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return max(statistics.median(each) for each in found)


def run(turns: int) -> Report:
    """Time rounds with messages of three sizes."""
    from tacit.peer.demo import Demo
    from tacit.runs.config import RunConfig

    report = Report(
        "peer", f"a round beyond computing, {SITES} sites, each with {SITES - 1} neighbours, TLS on loopback"
    )
    settings = {"dataset": "digits", "split": "iid", "agents": SITES, "graph": "complete", "noise_multiplier": 2.0}
    with TemporaryDirectory(prefix="tacit-peer-") as folder:
        Demo.prepare(Path(folder) / "sites", RunConfig.of({}, settings))
        rows = []
        for name, size in SIZES.items():
            rounds = 2 + max(turns, min(30 * turns, 40_000_000 * turns // size // 10))
            rows.append(Row(name, 1000 * time_rounds(Path(folder) / "sites", size, rounds), "ms"))
        report.add(1, rows, {})
    report.note("every message is hashed, checked and written to the journal with a full sync before it is sent")
    return report
