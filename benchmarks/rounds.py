"""Whole rounds of the paper's MNIST run, end to end: what share of the time is not spent on gradients."""

import statistics
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
from tacit.networks import TableInbox
from tacit.privacy import DurableLedger, Sources
from tacit.privacy.gradients.clipping import Lot
from tacit.training.session import Session
from tacit.training.settings import Training

AGENTS, RECORDS, LOT, COMPILE = 10, 6_000, 256, True


class Played:
    """A run whose rounds are timed one by one, in all and by their parts."""

    def __init__(self, sources: Sources, rounds: int, ledger: Path) -> None:
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randint(0, 256, (AGENTS * RECORDS, 1, 32, 32), generator=generator).to(torch.uint8)
        targets = torch.randint(0, 10, (AGENTS * RECORDS,), generator=generator)
        data = DataSet.from_records(name="mnist-shaped", train=(inputs, targets)).split(AGENTS, tacit.data.IID())
        self._session = Session(
            Training(
                algorithm=tacit.DSGT(),
                model=lambda: convnet((1, 32, 32), 10),
                data=data,
                privacy=tacit.Privacy(noise_multiplier=7.19, delta=1e-5, clip=10.0, lot_size=LOT),
                rounds=rounds + 2,  # one to warm up; the last looks at the models
                lr=0.06,
                graph=tacit.graphs.complete(AGENTS),
                sources=sources,
                ledger=DurableLedger(ledger),
                evaluate_every=rounds + 2,
                compile=COMPILE,
            )
        )
        self._session.advance()
        self._taken: Counter[str] = Counter()
        self.rounds: list[Counter[str]] = []
        session, taken = self._session, self._taken
        session.chosen.engine.clipped_sums = _timed(session.chosen.engine.clipped_sums, taken, "gradient")  # type: ignore[method-assign]
        network: Any = session.network
        network.exchange = _timed(network.exchange, taken, "exchange")
        oracle: Any = session.real_oracle
        oracle._drawer.draw = _timed(oracle._drawer.draw, taken, "draw")
        oracle._noise.release = _timed(oracle._noise.release, taken, "noise")
        for account in session.accounts:
            account.spend = _timed(account.spend, taken, "record")  # type: ignore[method-assign]

    def advance(self) -> None:
        """Play one round."""
        gather, mix = Lot.take, TableInbox.mix
        Lot.take = _timed(gather, self._taken, "gather")  # type: ignore[method-assign]
        TableInbox.mix = _timed(mix, self._taken, "mix")  # type: ignore[method-assign]
        self._taken.clear()
        before = self._session.seconds
        self._session.advance()
        Lot.take, TableInbox.mix = gather, mix  # type: ignore[method-assign]
        self._taken["gradient"] -= self._taken["gather"]  # records are gathered block by block, within
        self.rounds.append(Counter({"round": self._session.seconds - before, **self._taken}))

    def median(self, part: str) -> float:
        """Return the median seconds of a part of a round."""
        return statistics.median(each[part] for each in self.rounds)


def run(turns: int) -> Report:
    """Play rounds with secret and with fast noise, in turns."""
    report = Report("rounds", "DP-DSGT, 10 agents, 6,000 MNIST-shaped records each, lots of 256; milliseconds a round")
    rounds = 5 * turns
    for count in dict.fromkeys((1, default_threads())):
        with threads(count), TemporaryDirectory() as folder:
            sides = {
                name: Played(sources, rounds, Path(folder) / f"{name}.sqlite")
                for name, sources in (("secret", tacit.Secret()), ("fast", tacit.Fast(0)))
            }
            for _ in range(rounds):
                for side in sides.values():
                    side.advance()
            rows, shares = [], []
            for name, side in sides.items():
                rows += [Row(f"{part}_{name}", side.median(part) * 1e3, "ms") for part in side.rounds[0]]
                whole = side.median("round")
                shares.append(Row(f"outside_gradient_{name}", 1 - side.median("gradient") / whole, "of a round"))
                shares.append(Row(f"noise_share_{name}", side.median("noise") / whole, "of a round"))
            ratio = sides["fast"].median("round") / sides["secret"].median("round")
            report.add(count, rows + shares, {"round_fast": ratio})
    report.note(
        "random records; record: the ledger on disk; noise: making it, adding it and rounding to the grid; ours is with secret noise"
    )
    return report


def _timed(function: Callable[..., Any], taken: Counter[str], part: str) -> Callable[..., Any]:
    def timed(*given: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*given, **options)
        finally:
            taken[part] += time.perf_counter() - started  # type: ignore[assignment]

    return timed
