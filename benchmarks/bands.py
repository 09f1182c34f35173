"""What bands cost: one query of eight agents with noise over several queries, beside the same query with independent noise.

With b bands, lots are drawn from one group of records in turn, b times as densely, so that they are as large as before. A lot may be b times as large, if
all records are in one group, so batches are shaped for that; and the sums and answers of the last b - 1 queries are remembered.
"""

from collections.abc import Callable

import torch

import tacit
from benchmarks.report import Report, Row
from benchmarks.timing import forget_peak, give_back, held_bytes, peak_bytes, take_turns, threads
from tacit.algorithms import Local
from tacit.data import AgentData
from tacit.models import mlp
from tacit.training.session import Session
from tacit.training.settings import Training

AGENTS, RECORDS, LOT, FEATURES, HIDDEN = 8, 2048, 128, 64, (132,)
BANDS = (1, 4, 16)
QUERIES = 1000


def run(turns: int) -> Report:
    """Time a query with each number of bands, in one process; memory is what a number's first queries add to what is held."""
    report = Report("bands", f"{AGENTS} agents, MLP of 9,910 parameters, lots of {LOT} of {RECORDS:,} records")
    sides: dict[str, Callable[[], object]] = {}
    memory: dict[str, int] = {}
    sessions = []
    with threads(1):
        for bands in BANDS:
            session = make_session(bands)
            sessions.append(session)
            side = "ours" if bands == 1 else f"bands_{bands}"
            sides[side] = query(session)
            give_back()
            before = held_bytes()
            forget_peak()
            for _ in range(bands + 1):
                sides[side]()
            memory[side] = peak_bytes() - before
        times = take_turns(sides, turns=2 * turns)
    for session in sessions:
        session.close()
    rows = [Row(side, times.median(side) * 1e3, "ms") for side in sides]
    rows += [Row(f"memory_{side}", held / 2**20, "MiB") for side, held in memory.items()]
    report.add(1, rows, times.ratios())
    report.note(
        "ours: independent noise; bands_N: noise over N queries; ratios are to independent noise. Memory is the peak above what was held before the first queries"
    )
    return report


def make_session(bands: int) -> Session:
    """Return a session whose agents learn alone, ready to be asked."""
    generator = torch.Generator().manual_seed(0)
    parts = [
        (torch.randn(RECORDS, FEATURES, generator=generator), torch.randint(0, 10, (RECORDS,), generator=generator))
        for _ in range(AGENTS)
    ]
    return Session(
        Training(
            algorithm=Local(),
            model=lambda: mlp((FEATURES,), 10, HIDDEN),
            data=AgentData.from_parts(parts, name="bands", classes=10),
            privacy=tacit.Privacy(noise_multiplier=2.0, delta=1e-5, clip=1.0, lot_size=LOT, bands=bands),
            rounds=QUERIES,
            lr=0.1,
            graph=None,
            evaluate_every=QUERIES,
            compile=False,
        )
    )


def query(session: Session) -> Callable[[], object]:
    """Return one query of all agents, at where they start."""
    theta = session.state.theta
    return lambda: session.real_oracle.gradient(theta)
