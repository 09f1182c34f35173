"""A run is a folder: its settings, its events, its checkpoints, and what it takes to go on after anything."""

from tacit.runs.folder import RunFolder
from tacit.runs.names import find_run, find_runs, fresh_name, list_runs
from tacit.runs.runner import Runner

__all__ = ["RunFolder", "Runner", "find_run", "find_runs", "fresh_name", "list_runs"]
