"""An experiment that costs nothing, remembers which points it ran and can be made to stop, fail or die."""

import os
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from tacit.experiments import Environment, Experiment, Point


@dataclass
class FakeRuns:
    """Runs points whose only measure is their number, doubled."""

    stops_after: int = 10**9
    fails_at: int | None = None
    dies_at: int | None = None
    points: list[str] = field(default_factory=list)

    def run(self, point: Point, environment: Environment) -> list[dict]:
        if len(self.points) >= self.stops_after:
            raise KeyboardInterrupt
        if point["number"] == self.dies_at:
            os._exit(9)  # as a process that is killed
        if point["number"] == self.fails_at:
            raise RuntimeError(f"number {self.fails_at}")
        self.points.append(point.describe(("algorithm", "number")))
        return [{"trial": trial, "doubled": 2 * point["number"]} for trial in range(2)]


def fake_experiment(runs: FakeRuns, name: str = "made-up", numbers: int = 3) -> Experiment:
    """Return an experiment of two algorithms and so many numbers, and of ε none."""
    return Experiment(
        name=name,
        title="Doubling",
        claim="Twice as much is more.",
        varies=("algorithm", "number"),
        points=lambda profile: [
            Point.of(algorithm=algorithm, number=number, epsilon=None)
            for algorithm in ("dsgd", "dsgt")
            for number in range(numbers)
        ],
        run=runs.run,
        draw=lambda rows: Figure(figsize=(1, 1)),
        finding=lambda rows: f"{len(rows)} rows, {sum(row['doubled'] for row in rows)} in all.",
        seconds=lambda point: 60.0,
    )
