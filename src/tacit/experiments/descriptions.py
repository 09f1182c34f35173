"""What findings say about how their rows were made: what was trained, with which steps, on which graphs."""

from collections.abc import Sequence

from tacit.experiments.experiment import Point, ResultRow, write_budget
from tacit.experiments.hyperparameters import DELTA, NAMES, setting, steps
from tacit.experiments.statistics import select
from tacit.experiments.trials import graph_of
from tacit.graphs import density, eigenvector_centrality, normalized_algebraic_connectivity
from tacit.report.wording import ADJACENCIES, counted

PROMISE = f"ε at δ = {DELTA:g}, {ADJACENCIES['add_remove']} adjacency"
"""What every ε of a figure or finding means."""


def describe_training(rows: Sequence[ResultRow]) -> str:
    """Say what was trained, how often, and what ε means."""
    one = rows[0]
    own = " with classes of their own (t = 1)" if all(row["t"] == 1.0 for row in rows) else ""
    return (
        f"{one['dataset']}, {one['model']}, {one['agents']} agents{own}, lots of {one['lot']}, {one['rounds']:,} rounds, "
        f"{counted(one['trials'], 'trial')}; {PROMISE}"
    )


def describe_steps(rows: Sequence[ResultRow]) -> str:
    """Say with which steps and clipping norms the rows were trained: the published ones."""
    parts = []
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        budgets = dict.fromkeys(row["epsilon"] for row in select(rows, algorithm=algorithm))
        every = {epsilon: steps(algorithm, epsilon, rows[0]["dataset"]) for epsilon in budgets}
        listed = ", ".join(f"{_write_steps(*each)} ({write_budget(epsilon)})" for epsilon, each in every.items())
        clip = setting(algorithm, next(iter(budgets)), rows[0]["dataset"]).clip
        parts.append(f"{NAMES[algorithm]} η {listed}, C = {clip:g}")
    whose = "the published ones" if rows[0]["dataset"] in ("mnist", "cifar100") else "the published ones of MNIST"
    return f"Steps are {whose}, not tuned again: {'; '.join(parts)}."


def _write_steps(start: float, finish: float) -> str:
    return f"{start:g}" if start == finish else f"{start:g} to {finish:g}"


def describe_graphs(rows: Sequence[ResultRow], asked: str) -> str:
    """Say which properties the graphs of the trials really have, for each value of the one that was `asked` for."""
    parts = []
    for value in sorted({row[asked] for row in rows} - {None}):
        own = select(rows, **{asked: value})
        point = Point.of(agents=own[0]["agents"], **{asked: value})
        found = [graph_of(point, trial) for trial in sorted({row["trial"] for row in own})]
        kinds = {
            "a Fiedler value / N of": [normalized_algebraic_connectivity(graph) for graph in found],
            "a density of": [density(graph) for graph in found],
        }
        if asked == "centrality":
            kinds["a centrality of node 0 of"] = [float(eigenvector_centrality(graph)[0]) for graph in found]
        parts.append(f"at {value:g} " + ", ".join(f"{name} {_write_range(values)}" for name, values in kinds.items()))
    return f"The graphs of the trials have {'; '.join(parts)}."


def _write_range(values: Sequence[float]) -> str:
    low, high = (f"{end(values):.2g}" for end in (min, max))
    return low if low == high else f"{low} to {high}"
