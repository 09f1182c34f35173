"""What the settings of every run have in common, whether a file, a command line or a Python program gave them."""

import hashlib

import tomli_w
from pydantic import BaseModel, ConfigDict, Field


class AbsenceSettings(BaseModel):
    """One agent that is away, as a file gives it; see `tacit.Absence`. Rounds are counted from 0."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    agent: int = Field(ge=0)
    first: int = Field(ge=0)
    until: int | None = Field(None, ge=0)
    rekey: int | None = Field(None, ge=0)


class KeptSettings(BaseModel):
    """Settings of a run that its `config.toml` keeps."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def to_toml(self) -> str:
        """Return all settings, including defaults, as a file that gives the same configuration."""
        empty = {key for key in ("code", "absences") if not getattr(self, key)}  # as a file without them
        return tomli_w.dumps(self.model_dump(exclude_none=True, exclude=empty))

    @property
    def fingerprint(self) -> str:
        """A hash that identifies this configuration."""
        return hashlib.sha256(self.to_toml().encode()).hexdigest()
