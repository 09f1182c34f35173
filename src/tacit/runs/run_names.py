"""Runs by their names: all in a folder, one that a user means, and a name for a new one."""

import os
import re
from collections.abc import Sequence
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path

from tacit.errors import InvalidInput
from tacit.privacy import DurableLedger
from tacit.runs.config import RunConfig
from tacit.runs.folder import LEDGER, RunFolder
from tacit.runs.user_code import last_part


def as_path(name: str, value: str | os.PathLike[str]) -> Path:
    """Return a path that was given under a name, or refuse what is not a path."""
    if not isinstance(value, str | os.PathLike):
        raise InvalidInput(f"{name} is {value!r}; give the name of a folder")
    return Path(value)


def list_runs(runs: Path) -> list[RunFolder]:
    """Return all runs in a folder, the oldest first."""
    if not runs.is_dir():
        return []
    folders = [RunFolder(path) for path in runs.iterdir() if (path / "config.toml").is_file()]
    return sorted(folders, key=lambda folder: folder.config_file.stat().st_mtime)


def find_run(path: Path, runs: Path) -> Path:
    """Return the folder of the run that is meant by a path, or by the bare name of one in `runs`."""
    within = runs / path
    if not (path / "config.toml").is_file() and len(path.parts) == 1 and within.is_dir():
        return within
    if not path.exists():
        near = get_close_matches(path.name, [run.name for run in list_runs(runs)], n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidInput(f"there is no run folder {path}, nor {within}{hint}")
    return path


def find_runs(paths: Sequence[Path], runs: Path) -> list[Path]:
    """Return the folders that are meant by paths and names; `runs/*` also matches the ledger's files, which are skipped."""
    return [find_run(path, runs) for path in paths if not (path.name.startswith(LEDGER) and path.is_file())]


def fresh_name(runs: Path, config: RunConfig) -> str:
    """Return a name that no run has yet, made of the algorithm and the data set.

    A run whose folder was deleted is still in the ledger, and keeps its name.
    """
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{last_part(config.algorithm)}-{last_part(config.dataset)}")
    taken = _names_on_record(runs / LEDGER)
    number = 1
    while (runs / f"{stem}-{number}").exists() or f"{stem}-{number}" in taken:
        number += 1
    return f"{stem}-{number}"


def _names_on_record(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    with closing(DurableLedger(path, read_only=True)) as ledger:
        return {account.run for account in ledger.accounts}
