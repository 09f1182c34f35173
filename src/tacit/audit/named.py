"""Audits by name, with their options, as on the command line."""

from dataclasses import fields
from typing import Any

from tacit.errors import choose
from tacit.registry import AUDITS


def run_audit(name: str, **options: Any) -> dict[str, Any]:
    """Run a shipped audit as `tacit audit NAME` does, and return what it found, as in `audit.json`.

    options: those of the command, with `_` for `-`: `run_audit("neighbor", algorithm="dsgt", runs=5000, folder=Path("one"))`.
    """
    audit = AUDITS[choose("audit", name, AUDITS)]
    for option in options:
        choose(f"option of {name}", option, [field.name for field in fields(audit)])
    found: dict[str, Any] = audit(**options).find()[0]
    return found
