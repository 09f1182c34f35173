"""A run is a folder: its settings, its events, its checkpoints, and how it is resumed after any failure."""

from typing import TYPE_CHECKING

from tacit.lazy import lazily

if TYPE_CHECKING:
    from tacit.runs.folder import RunFolder
    from tacit.runs.run_names import find_run, find_runs, fresh_name, list_runs
    from tacit.runs.runner import Runner
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "tacit.runs.folder": ("RunFolder",),
            "tacit.runs.run_names": ("find_run", "find_runs", "fresh_name", "list_runs"),
            "tacit.runs.runner": ("Runner",),
        },
    )

__all__ = ["RunFolder", "Runner", "find_run", "find_runs", "fresh_name", "list_runs"]
