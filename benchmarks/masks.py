"""What masks cost: a round of DP-DSGT with masks beside the same round with local noise, on the complete graph and on the ring.

An agent draws one mask for each key that it has, so time depends on who shares keys. What it sends does not depend on masks.
"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import networkx as nx
import torch

import tacit
from benchmarks.report import Report, Row
from benchmarks.timing import default_threads, take_turns, threads
from tacit.data import AgentData
from tacit.models import convnet
from tacit.privacy import DurableLedger
from tacit.training.session import Session
from tacit.training.settings import Training

AGENTS, RECORDS, LOT, SIDE = 10, 6_000, 256, 32
GRAPHS = ("complete", "ring")
KEYS = {"local": None, "masks_complete_keys": "complete", "masks_ring_keys": "ring"}
COMPILE = True
_MASKS = 1.4  # their size beside the noise that they replace; it does not matter for time
ROUNDS = 5  # in each turn


def run(turns: int) -> Report:
    """Play rounds with each kind of noise, in turns, in one process."""
    report = Report("masks", f"DP-DSGT, {AGENTS} agents, lots of {LOT} of {RECORDS:,}; milliseconds a round")
    rounds = ROUNDS * (turns + 1) + 1  # one more than are played: the last looks at the models
    data = make_records()
    for count in dict.fromkeys((1, default_threads())):
        rows, ratios = [], {}
        for graph in GRAPHS:
            with ExitStack() as open_until_then:
                open_until_then.enter_context(threads(count))
                folder = Path(open_until_then.enter_context(TemporaryDirectory()))
                sessions = {name: make_session(data, graph, name, rounds, folder) for name in KEYS}
                for session in sessions.values():
                    open_until_then.callback(session.close)
                times = take_turns({name: partial(_play, session) for name, session in sessions.items()}, turns=turns)
            for name, session in sessions.items():
                rows.append(Row(f"{graph}_{name}", times.median(name) / ROUNDS * 1e3, "ms"))
                sent = float(session.network.bytes_sent.sum()) / session.round / AGENTS
                rows.append(Row(f"{graph}_{name}_sent_by_an_agent", sent / 1e6, "MB"))
                ratios[f"{graph}_{name}"] = times.median(name) / times.median("local")
        report.add(count, rows, {name: ratio for name, ratio in ratios.items() if not name.endswith("_local")})
    report.note(
        "random records, secret noise, the ledger on disk; ratios: a round with masks divided by one with local noise on the same graph; the "
        f"complete graph of keys has {AGENTS * (AGENTS - 1) // 2} pairs, the ring {AGENTS}"
    )
    return report


def make_records() -> AgentData:
    """Return random records for every agent."""
    generator = torch.Generator().manual_seed(0)
    parts = [
        (
            torch.randint(0, 256, (RECORDS, 1, SIDE, SIDE), generator=generator).to(torch.uint8),
            torch.randint(0, 10, (RECORDS,), generator=generator),
        )
        for _ in range(AGENTS)
    ]
    return AgentData.from_parts(parts, name="mnist-shaped", classes=10)


def make_session(data: AgentData, graph: str, noise: str, rounds: int, folder: Path) -> Session:
    """Return a session with this kind of noise, ready to be played."""
    keys = KEYS[noise]
    cancelling = None if keys is None else tacit.Cancelling(keys=_graph(keys), ratio=_MASKS)
    return Session(
        Training(
            algorithm=tacit.DSGT(),
            model=lambda: convnet((1, SIDE, SIDE), 10),
            data=data,
            privacy=tacit.Privacy(noise_multiplier=7.19, delta=1e-5, clip=1.0, lot_size=LOT, noise=cancelling),
            rounds=rounds,
            lr=0.06,
            graph=_graph(graph),
            ledger=DurableLedger(folder / f"{noise}.sqlite"),
            evaluate_every=rounds,
            compile=COMPILE,
        )
    )


def _graph(kind: str) -> nx.Graph:
    return tacit.graphs.complete(AGENTS) if kind == "complete" else tacit.graphs.ring(AGENTS)


def _play(session: Session) -> None:
    for _ in range(ROUNDS):
        session.advance()
