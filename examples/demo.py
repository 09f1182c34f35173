"""What `make demo` runs: ten agents learn to read digits together, without showing each other a single image.

Each agent holds only one digit. It talks to a few neighbours, and everything it says is differentially private.
"""

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
    privacy = tacit.Privacy(epsilon=EPSILON, delta=DELTA, clip=1.0, lot_size=48)
    rules: dict[str, tuple[Algorithm[Any], float, AgentData]] = {
        "DP-SGD, data pooled": (tacit.SGD(), 4.0, agents.pooled()),
        "DP-DSGT": (tacit.DSGT(), 4.0, agents),
        "DP-DSGD": (tacit.DSGD(), 1.0, agents),
        "DP-DiNNO": (tacit.DiNNO(rho=0.05, step=tacit.Plain()), 1.5, agents),
        "each agent alone": (tacit.Local(), 1.0, agents),
    }
    console.print(
        f"[bold]{agents.agents} agents[/] with one digit each ({min(agents.sizes)} to {max(agents.sizes)} records) on "
        f"a graph of {graph.number_of_edges()} links, {ROUNDS} rounds."
    )
    table = Table(title="Accuracy on digits that nobody trained on")
    table.add_column("algorithm", no_wrap=True)
    for column in ("mean", "worst", "best", "consensus\ndistance", "MB sent\neach", "ε spent"):
        table.add_column(column, justify="right")

    spent = []
    for name, (algorithm, lr, data) in rules.items():
        result = tacit.train(
            algorithm,
            model=lambda: tacit.models.logistic(digits.input_shape, 10),
            data=data,
            graph=graph if data is agents else None,
            privacy=privacy,
            rounds=ROUNDS,
            lr=tacit.LogSpaced(lr, lr / 10),
            evaluate_every=ROUNDS,
            progress=True,
        )
        accuracy = result.evaluate().accuracy
        assert accuracy is not None
        spent.append(max(result.guarantees(), key=lambda guarantee: guarantee.epsilon))
        table.add_row(
            name,
            f"{accuracy.mean():.1%}",
            f"{accuracy.min():.1%}",
            f"{accuracy.max():.1%}",
            f"{result.consensus_distance:.2f}",
            f"{np.mean(result.history[-1].bytes_sent) / 1e6:.1f}",
            f"{spent[-1].epsilon:.3f}",
        )
    worst = max(spent, key=lambda guarantee: guarantee.epsilon)
    table.caption = f"from each run's ledger: {worst}"
    console.print(table)
    console.print(
        "Below the first row, no agent showed another a single record. Lots and noise are drawn anew each time, so figures "
        "vary by some points. Each row is a run of its own; releasing several of them would add up."
    )


if __name__ == "__main__":
    main()
