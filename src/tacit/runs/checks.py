"""Checks of settings (`tacit audit FILE.toml`), kept beside the runs in `checks.jsonl` and in the folders of runs.

A check counts for every run whose settings are the same in all that it looks at, with the same versions of the library and torch.
"""

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from tacit.config import RunConfig
from tacit.errors import StorageError
from tacit.runs.folder import RunFolder, read_lines

CHECKS = "checks.jsonl"
# What a check does not depend on.
_ASIDE = ("seed", "data_dir", "evaluate_every", "checkpoint_every", "tensorboard", "private_diagnostics")

Check = dict[str, Any]


def check_facts(config: RunConfig, report: dict[str, Any]) -> Check:
    """Return what is kept of a check: of which settings, when, and how it came out."""
    return {
        "settings": _settings(config),
        "checked": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdict": report["verdict"],
        "failed": report["failed"],
        "false_alarm": report["false_alarm"],
    }


def keep_check(runs: Path, facts: Check) -> None:
    """Append a check to those of a folder of runs."""
    path = runs / CHECKS
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(json.dumps(facts, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error


def last_check(runs: Path, config: RunConfig) -> Check | None:
    """Return the latest check of such settings, if there is one."""
    settings = _settings(config)
    found = [facts for facts in read_lines(runs / CHECKS) if facts.get("settings") == settings]
    return found[-1] if found else None


def check_of(folder: RunFolder) -> Check | None:
    """Return the check that a run's own folder knows of."""
    found = [event for event in folder.events() if event.get("event") == "check"]
    return found[-1] if found else None


def _settings(config: RunConfig) -> str:
    from tacit import __version__

    looked_at = {key: value for key, value in config.model_dump().items() if key not in _ASIDE}
    told = json.dumps([looked_at, __version__, torch.__version__], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()
