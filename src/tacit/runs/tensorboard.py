"""Snapshots as TensorBoard event files. Needs the extra `tensorboard`; nothing else does."""

from collections.abc import Callable
from pathlib import Path

from tacit.training.results import Snapshot

_CURVES = 32  # more agents than this are shown by their mean, worst and best alone


class Board:
    """Writes one point of every curve for each snapshot. A resumed run hides what came after its checkpoint.

    `stated` says what ε is stated with: per whom, δ, adjacency, accountant, and against whom it holds.
    """

    def __init__(
        self,
        folder: Path,
        epsilon: Callable[[Snapshot], float | None],
        stated: str,
        *,
        resumed_at: int | None,
    ) -> None:
        from torch.utils.tensorboard import SummaryWriter

        hidden = None if resumed_at is None else resumed_at + 1
        self._writer = SummaryWriter(str(folder), purge_step=hidden)
        self._epsilon, self._stated = epsilon, stated

    def write(self, snapshot: Snapshot) -> None:
        """Add a snapshot to all curves, and flush them to disk."""
        points = {
            "consensus distance": snapshot.consensus_distance,
            "bytes sent": float(snapshot.bytes_sent.sum()),
        }
        for measure, values in (("accuracy", snapshot.accuracy), ("loss", snapshot.loss)):
            if values is not None:
                points |= {
                    f"{measure}/mean": values.mean(),
                    f"{measure}/min": values.min(),
                    f"{measure}/max": values.max(),
                }
                if len(values) <= _CURVES:
                    points |= {f"{measure} of agents/{agent}": value for agent, value in enumerate(values)}
        if (epsilon := self._epsilon(snapshot)) is not None:
            points[f"epsilon {self._stated}"] = epsilon
        for name, value in points.items():
            self._writer.add_scalar(name, float(value), snapshot.round)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
