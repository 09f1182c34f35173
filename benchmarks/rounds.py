"""Whole rounds of the paper's MNIST run, end to end: what share of the time is not spent on gradients."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import tacit
from benchmarks.report import Report, Row
from benchmarks.timing import default_threads, threads
from tacit.data import DataSet
from tacit.models import convnet
from tacit.privacy import DurableLedger, Sources
from tacit.privacy.clipping import Lot
from tacit.session import Session
from tacit.settings import Training

AGENTS, RECORDS, LOT = 10, 6_000, 256


def play(sources: Sources, rounds: int, ledger: Path) -> tuple[float, Counter[str]]:
    """Return seconds of so many rounds, and how much of them each part took."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (AGENTS * RECORDS, 1, 32, 32), generator=generator).to(torch.uint8)
    targets = torch.randint(0, 10, (AGENTS * RECORDS,), generator=generator)
    data = DataSet.from_records(
        name="mnist-shaped", train=(inputs, targets), prepare=lambda images: images.float() / 255
    ).split(AGENTS, tacit.data.IID())
    session = Session(
        Training(
            algorithm=tacit.DSGT(),
            model=lambda: convnet((1, 32, 32), 10),
            data=data,
            privacy=tacit.Privacy(noise_multiplier=7.19, delta=1e-5, clip=10.0, lot_size=LOT),
            rounds=rounds + 2,
            lr=0.06,
            graph=tacit.graphs.complete(AGENTS),
            sources=sources,
            ledger=DurableLedger(ledger),
            evaluate_every=rounds + 2,
            compile=True,
        )
    )
    session.advance()
    taken: Counter[str] = Counter()
    session.chosen.engine.clipped_sums = _timed(session.chosen.engine.clipped_sums, taken, "gradient")  # type: ignore[method-assign]
    session.network.exchange = _timed(session.network.exchange, taken, "exchange")  # type: ignore[method-assign]
    gather, Lot.take = Lot.take, _timed(Lot.take, taken, "gather")  # type: ignore[method-assign]
    drawer: Any = session.real_oracle._drawer
    drawer.draw = _noise_timed(drawer.draw, taken)
    for account in session.accounts:
        account.spend = _timed(account.spend, taken, "record")  # type: ignore[method-assign]
    before = session.seconds
    for _ in range(rounds):
        session.advance()
    Lot.take = gather  # type: ignore[method-assign]
    taken["gradient"] -= taken["gather"]  # records are gathered block by block, within
    return session.seconds - before, taken


def run(turns: int) -> Report:
    """Play rounds with secret and with fast noise."""
    report = Report("rounds", "DP-DSGT, 10 agents, 6,000 MNIST-shaped records each, lots of 256; milliseconds a round")
    rounds = 3 * turns
    for count in dict.fromkeys((1, default_threads())):
        with threads(count), TemporaryDirectory() as folder:
            rows, shares = [], {}
            for name, sources in (("secret", tacit.Secret()), ("fast", tacit.Fast(0))):
                seconds, taken = play(sources, rounds, Path(folder) / f"{name}.sqlite")
                rows.append(Row(f"round_{name}", seconds / rounds * 1e3, "ms"))
                rows += [Row(f"{part}_{name}", each / rounds * 1e3, "ms") for part, each in taken.items()]
                shares[f"outside_gradient_{name}"] = 1 - taken["gradient"] / seconds
                shares[f"noise_share_{name}"] = taken["noise"] / seconds
            rows += [Row(name, share, "of a round") for name, share in shares.items()]
            report.add(count, rows, {})
    report.note("record: the ledger on disk")
    return report


def _timed(function: Callable[..., Any], taken: Counter[str], part: str) -> Callable[..., Any]:
    def timed(*given: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*given, **options)
        finally:
            taken[part] += time.perf_counter() - started  # type: ignore[assignment]

    return timed


class _TimedStream:
    def __init__(self, stream: Any, taken: Counter[str]) -> None:
        self.words, self.normals = stream.words, _timed(stream.normals, taken, "noise")


def _noise_timed(draw: Callable[..., Any], taken: Counter[str]) -> Callable[..., Any]:
    timed = _timed(draw, taken, "draw")

    def drawn() -> Any:
        streams, lots = timed()
        return [_TimedStream(stream, taken) for stream in streams], lots

    return drawn
