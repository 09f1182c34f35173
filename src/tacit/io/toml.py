"""Reading TOML files: whatever a file has in it, the reader gets a table or an error that names the file."""

import tomllib
from pathlib import Path
from typing import Any

from tacit.errors import InvalidInput


def read_toml(path: Path, *, what: str = "", most_bytes: int | None = None) -> dict[str, Any]:
    """Return the table in a file. One of more than `most_bytes` is refused as too large for `what`, such as "a card"."""
    try:
        if most_bytes is not None and path.stat().st_size > most_bytes:
            raise InvalidInput(f"{path} is too large for {what}")
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise InvalidInput(f"{path} is not TOML: it is nested too deeply") from None
    except ValueError as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from error
