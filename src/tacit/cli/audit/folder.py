"""The folder of an audit: `scores.jsonl`, which grows batch by batch, and at the end `audit.json` and `audit.html`."""

import json
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from tacit.cli.terminal.output import check_output
from tacit.errors import InvalidInput
from tacit.io.files import finite, write_atomically

SCORES, RESULT, PAGE, LOCK = "scores.jsonl", "audit.json", "audit.html", "lock"
AUDITS = Path("audits")

Document = dict[str, Any]
"""What `audit.json` holds, or a part of it."""


def make_folder(given: Path | None, name: str) -> Path:
    """Return the folder that was given, or a new one with a number that no other has."""
    check_output((given or AUDITS / name) / RESULT)
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        return given
    AUDITS.mkdir(exist_ok=True)
    for number in count(1):
        with suppress(FileExistsError):
            folder = AUDITS / f"{name}-{number}"
            folder.mkdir()
            break
    return folder


def refuse_used(folder: Path | None, *names: str) -> None:
    """Refuse a folder that cannot be written, or in which another audit has files of these names, before anything is computed."""
    check_output((folder or AUDITS) / RESULT)
    if folder is not None and any((folder / name).exists() for name in names):
        raise InvalidInput(f"{folder} holds another audit; choose another folder")


def write_result(folder: Path, found: Document) -> Document:
    """Write what was found and its page into a folder, and return it as it was written."""
    from tacit.audit.pages.page import write_page

    document = finite(found)
    write_atomically(folder / RESULT, json.dumps(document, indent=1, allow_nan=False).encode() + b"\n")
    write_page(document, folder / PAGE)
    return document
