"""Checks of settings (`tacit audit FILE.toml`), kept beside the runs in `checks.jsonl` and in the folders of runs.

A check holds for every run with the same versions of the library and torch, and the same settings as far as the check depends on them.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from tacit.errors import InvalidInput
from tacit.io.jsonl import append_line, whole_lines
from tacit.runs.config import RunConfig
from tacit.runs.event_types import CheckEvent, now
from tacit.runs.events import parse, to_line
from tacit.runs.python_config import AnyConfig

CHECKS = "checks.jsonl"
# What a check does not depend on.
_ASIDE = ("seed", "data_dir", "evaluate_every", "checkpoint_every", "tensorboard", "private_diagnostics")


def check_event(config: RunConfig, report: dict[str, Any]) -> CheckEvent:
    """Return what is kept of a check: its settings, time and outcome."""
    return CheckEvent(
        time=now(),
        settings=_settings(config),
        checked=now().isoformat(timespec="seconds"),
        verdict=report["verdict"],
        failed=tuple(report["failed"]),
        false_alarm=report["false_alarm"],
    )


def keep_check(runs: Path, check: CheckEvent) -> None:
    """Append a check to those of a folder of runs."""
    append_line(runs / CHECKS, to_line(check), shared=True, new_folder=True)


def last_check(runs: Path, config: AnyConfig) -> CheckEvent | None:
    """Return the latest check of such settings, if there is one; lines that are not checks of this version are skipped."""
    settings, found = _settings(config), None
    for number, line in whole_lines(runs / CHECKS):
        try:
            event = parse(line, f"{runs / CHECKS}, line {number}")
        except InvalidInput:
            continue
        if isinstance(event, CheckEvent) and event.settings == settings:
            found = event
    return found


def _settings(config: AnyConfig) -> str:
    from tacit import __version__

    checked = {key: value for key, value in config.model_dump().items() if key not in _ASIDE}
    text = json.dumps([checked, __version__, torch.__version__], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
