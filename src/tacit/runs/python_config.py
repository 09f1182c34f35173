"""The settings of a run that was started from Python, as its `config.toml` keeps them.

Python takes objects that no file can hold: modules, functions, tensors. Objects that can be
made again from a name are kept by that name. Public facts about all of them (`parts`) are compared with objects that are given again.
Reading them needs no PyTorch, and runs no code.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tacit.errors import InvalidInput, choose
from tacit.io.validation import mistake
from tacit.privacy.accounting import Accountant, Adjacency
from tacit.runs.config import RunConfig
from tacit.runs.kept_settings import AbsenceSettings, KeptSettings

PARTS = ("data", "algorithm", "model", "loss", "graph", "lr", "sources", "mixing")
"""What may be an object: these can be given again when a run is resumed or loaded."""
_Numbers = float | list[float]
_Pair = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=2, max_length=2)]


class Part(BaseModel):
    """What is kept of one object."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    shown: str
    """For a reader."""
    made: dict[str, Any] | None = None
    """How it can be made again, where it need not be given."""
    facts: dict[str, Any]
    """What must be the same when it is given again, by what it is called in messages."""


class PythonConfig(KeptSettings):
    """All settings of a run that was started with `tacit.train(..., run=...)`. Keys that `tacit train` also has mean the same."""

    started_from: Literal["python"] = "python"
    algorithm: str
    dataset: str
    agents: int = Field(ge=1)
    graph: str
    mixing: str
    any_order: bool
    allow_drift: bool
    model: str
    loss: str
    same_start: bool
    step_agents: int | None = Field(None, ge=1)

    private: bool
    epsilon: _Numbers | None = None
    noise_multiplier: _Numbers | None = None
    delta: float | None = None
    clip: _Numbers | None = None
    lot_size: _Numbers
    adjacency: Adjacency | None = None
    accountant: Accountant | None = None
    unit: str | None = None
    bands: int | Literal["auto"] = 1
    source: str
    spare_queries: int = Field(ge=0)
    private_diagnostics: bool
    sizes: list[int] | None = None
    noise: Literal["local", "cancelling", "discrete"]
    rounding_bits: int | None = Field(None, ge=0)
    rounding_room: float | None = Field(None, ge=1)
    curious: int | None = Field(None, ge=0)
    keys: Literal["complete", "graph"] | list[_Pair] | None = None
    """Which pairs share masks: a word, or all pairs of a graph."""
    mask_ratio: float | Literal["auto"] | None = None
    lost: int | None = Field(None, ge=0)

    rounds: int = Field(ge=1)
    gossip_rounds: int = Field(ge=0)
    exchanges_per_query: int = Field(ge=1)
    absences: list[AbsenceSettings] = Field(default_factory=list)
    lr: str
    seed: int = Field(ge=0)
    device: str
    compile: bool | Literal["auto"]
    evaluate_every: int | None = Field(None, ge=1)
    checkpoint_every: int = Field(ge=1)
    tensorboard: bool = False

    code: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Where the user's own code is defined that was given by name, with the hashes of these files."""
    parts: dict[str, Part]

    @staticmethod
    def of(settings: Mapping[str, Any]) -> "PythonConfig":
        """Check what was read from a file."""
        for key in settings:
            choose("setting", key, PythonConfig.model_fields)
        try:
            return PythonConfig(**settings)
        except ValidationError as error:
            found = [(".".join(map(str, each["loc"])), each) for each in error.errors()]
            raise InvalidInput("; ".join(mistake(key, each) for key, each in found)) from None

    @property
    def total_rounds(self) -> int:
        """All rounds, also those in which models are only mixed."""
        return self.rounds + self.gossip_rounds


AnyConfig = RunConfig | PythonConfig


def read_config(settings: Mapping[str, Any]) -> AnyConfig:
    """Return the settings of a run, started from Python or from the command line."""
    return PythonConfig.of(settings) if settings.get("started_from") == "python" else RunConfig.of(settings)
