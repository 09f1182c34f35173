"""What `make demo` runs: ten agents learn to read digits together, without showing each other a single one.

Each agent holds one digit only. It talks to a few neighbours, and everything it says is differentially private.
"""

import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import tacit
from tacit.algorithms import Algorithm
from tacit.data import AgentData

EPSILON, DELTA, ROUNDS = 4.0, 1e-3, 100


def main() -> None:
    console = Console()
    digits = tacit.data.load("digits")
    agents = digits.split(10, tacit.data.ByClass(t=1.0))
    graph = tacit.graphs.small_world(10, seed=0)
    measures = tacit.graphs.measure(graph)
    promise = tacit.Privacy(epsilon=EPSILON, delta=DELTA, clip=1.0, lot_size=48)

    rules: dict[str, tuple[Algorithm[Any], float, AgentData]] = {
        "DP-SGD, all data in one place": (tacit.SGD(), 2.0, agents.pooled()),
        "DP-DSGT": (tacit.DSGT(), 2.0, agents),
        "DP-DSGD": (tacit.DSGD(), 1.0, agents),
        "DP-DiNNO": (tacit.DiNNO(rho=0.1, step=tacit.Plain()), 0.5, agents),
        "each agent alone": (tacit.Local(), 1.0, agents),
    }
    console.print(
        f"[bold]{agents.agents} agents[/], one digit each, {min(agents.sizes)} to {max(agents.sizes)} records; "
        f"a graph of {measures.edges} links; {ROUNDS} rounds."
    )
    table = Table(title="Accuracy on held-out digits", caption="σ, q and ε are derived from each run's ledger.")
    for column in ("algorithm", "mean", "worst", "best", "consensus\ndistance", "kB sent\nper agent", "guarantee", "s"):
        table.add_column(column, justify="left" if column in ("algorithm", "guarantee") else "right")

    for name, (algorithm, lr, data) in rules.items():
        began = time.perf_counter()
        result = tacit.train(
            algorithm,
            model=lambda: tacit.models.logistic(digits.input_shape, 10),
            data=data,
            graph=graph if data is agents else None,
            privacy=promise,
            rounds=ROUNDS,
            lr=tacit.LogSpaced(lr, lr / 10),
            evaluate_every=ROUNDS,
            progress=True,
        )
        accuracy = result.evaluate().accuracy
        assert accuracy is not None
        table.add_row(
            name,
            f"{accuracy.mean():.1%}",
            f"{accuracy.min():.1%}",
            f"{accuracy.max():.1%}",
            f"{result.consensus_distance:.2f}",
            f"{np.mean(result.history[-1].bytes_sent) / 1000:.0f}",
            str(max(result.guarantees(), key=lambda guarantee: guarantee.epsilon)),
            f"{time.perf_counter() - began:.1f}",
        )
    console.print(table)
    console.print(
        f"Every record of every agent keeps [bold]ε ≤ {EPSILON:g}, δ = {DELTA:g}[/] against all other agents together, "
        "for each of these runs. They ran on the same data, so a release of all of them would add up."
    )


if __name__ == "__main__":
    main()
