"""A site's own settings, `site.toml`: where its records are, where it listens, where its runs go. Nobody else sees them.

A variable `TACIT_PEER_KEY` in the environment takes the place of the key of that name, as in `TACIT_PEER_LISTEN=0.0.0.0:7400`.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tacit.errors import InvalidInput, choose
from tacit.io.files import write_atomically
from tacit.io.toml import read_toml
from tacit.io.validation import mistake
from tacit.peer.cards import check_address

SITE_FILE = "site.toml"
PREFIX = "TACIT_PEER_"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class SiteSettings(BaseModel):
    """The keys of `site.toml`. Paths are relative to the site's folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: str = "digits"
    """Its records: a name that `tacit train` knows, or its own as file.py:NAME."""
    data_dir: str | None = None
    split: str = "1.0"
    """With `part`: how the data set is divided among the members, as `tacit train --split` takes it."""
    part: int | None = Field(default=None, ge=0)
    """Which part of the divided data set is this site's: for trials on published data. All records are its own unless given."""
    runs: str = "runs"
    listen: str = ""
    """host:port to listen on, where that differs from the address in the agreement, as behind a router."""
    status: str = ""
    """host:port of the status page, on loopback alone; no page if empty."""
    passphrase_file: str | None = None
    evaluate_every: int | None = Field(default=None, ge=1)
    start_seconds: float | None = Field(default=None, gt=0)
    """How long to wait for all neighbours at the start; as long as it takes unless given."""
    stop_seconds: float = Field(default=20.0, gt=0)
    """How long a stop waits for the end of the round; then the round is left to the next start."""

    @staticmethod
    def read(folder: Path, environment: Mapping[str, str] | None = None) -> "SiteSettings":
        """Read the settings of a site; variables of the environment win."""
        path = folder / SITE_FILE
        given = read_toml(path) if path.exists() else {}
        for key in given:
            choose(f"key of {path}", key, SiteSettings.model_fields)
        variables = os.environ if environment is None else environment
        for name, value in variables.items():
            if name.startswith(PREFIX):
                given[
                    choose("setting in the environment", name.removeprefix(PREFIX).lower(), SiteSettings.model_fields)
                ] = value
        try:
            found = SiteSettings(**given)
        except ValidationError as error:
            raise InvalidInput(
                f"{path}: {'; '.join(mistake(str(each['loc'][0]), each) for each in error.errors())}"
            ) from None
        check_address(found.listen)
        place = check_address(found.status)
        if place is not None and place[0] not in _LOOPBACK:
            raise InvalidInput(f"status is {found.status!r}; the page is for this machine alone: use 127.0.0.1:PORT")
        return found

    def save(self, folder: Path) -> None:
        """Write the file of a site, with the keys that were given."""
        given = self.model_dump(exclude_none=True, exclude_unset=True)
        write_atomically(folder / SITE_FILE, tomli_w.dumps(given).encode())
