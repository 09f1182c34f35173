"""Options that commands of `tacit peer` share, and what they all need: the folder of the site."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from tacit.cli.terminal.command import option
from tacit.errors import InvalidInput

SiteFolder = Annotated[Path, option("FOLDER", "Folder of the site, with its key and agreement.")]
PassphraseFile = Annotated[
    Path | None, option("FILE", "File with the passphrase of the key; default: systemd's credential, if any.")
]
Records = Annotated[int, option("N", "How many records, or units, the site declares to hold. Public.", min=1)]


def need_peer() -> None:
    """Refuse to continue without the packages that peers need."""
    if missing := [name for name in ("grpc", "grpc_health", "google.protobuf", "prometheus_client") if not _has(name)]:
        raise InvalidInput(f"peers need {missing[0]}, which is not installed; run pip install 'tacit[peer]'")


@contextmanager
def at_site(folder: Path) -> Iterator[Path]:
    """Work in a site's folder: files that settings name are relative to it."""
    need_peer()
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder; `tacit peer init {folder} --name NAME` makes a site")
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield Path(".")
    finally:
        os.chdir(before)


def _has(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
