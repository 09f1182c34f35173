"""The state between two rounds, as safetensors: tensors and a little metadata, never code, never private data."""

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, tensor

from tacit.errors import InvalidInput, StorageError
from tacit.files import write_atomically

_FORMAT = "tacit-checkpoint-2"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Everything that a run needs to go on from a round, but the settings."""

    fingerprint: str
    """Tells the settings that the run was started with."""
    token: str
    """Tells the run from any other with the same settings."""
    round: int
    answered: int
    """How many queries' answers went into the state."""
    seconds: float
    tensors: dict[str, Tensor]

    def save(self, path: Path) -> None:
        """Write the checkpoint in the place of the one before."""
        facts = {
            "format": _FORMAT,
            "fingerprint": self.fingerprint,
            "token": self.token,
            "round": self.round,
            "answered": self.answered,
            "seconds": self.seconds,
        }
        content = {name: value.detach().cpu().contiguous() for name, value in self.tensors.items()}
        facts["checksum"] = _checksum(content)
        write_atomically(path, save(content, metadata={"tacit": json.dumps(facts)}))

    def _check(self) -> None:
        """Raise a KeyError for what no run would write."""
        whole = all(type(value) is int and value >= 0 for value in (self.round, self.answered))
        if not whole or not isinstance(self.seconds, int | float) or not self.seconds >= 0:
            raise KeyError("round, answered or seconds")
        for name in ("generator", "bytes_sent"):
            if name not in self.tensors:
                raise KeyError(name)

    @staticmethod
    def load(path: Path) -> "Checkpoint":
        """Read a checkpoint; what is broken or not one is an error and is left as it is."""
        try:
            with safe_open(str(path), framework="pt") as file:
                facts = json.loads((file.metadata() or {})["tacit"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if facts.pop("format") != _FORMAT:
                raise KeyError("format")
            if facts.pop("checksum") != _checksum(tensors):
                raise KeyError("checksum")
            saved = Checkpoint(**facts, tensors=tensors)
            saved._check()
            return saved
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
        except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise StorageError(f"{path} is broken or no checkpoint of Tacit ({error}); it was left alone") from error


def _checksum(tensors: dict[str, Tensor]) -> int:
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(tensors[name].numpy().tobytes(), zlib.crc32(name.encode(), total))
    return total


def flatten(state: Any, name: str = "state") -> dict[str, Tensor]:
    """Return the tensors of a nested tuple by their places; plain numbers become tensors."""
    if isinstance(state, Tensor):
        return {name: state}
    if isinstance(state, tuple):
        return {k: v for i, part in enumerate(state) for k, v in flatten(part, f"{name}.{i}").items()}
    if isinstance(state, bool | int | float):
        return {name: tensor(state)}
    raise InvalidInput(
        f"an algorithm's state holds {type(state).__name__}; only tensors, numbers and tuples can be saved"
    )


def restore(template: Any, tensors: dict[str, Tensor], name: str = "state") -> Any:
    """Put tensors back into a state of the template's make."""
    if isinstance(template, tuple):
        parts = [restore(part, tensors, f"{name}.{i}") for i, part in enumerate(template)]
        return type(template)(*parts) if hasattr(template, "_fields") else tuple(parts)
    if name not in tensors:
        raise StorageError(f"the checkpoint has no {name!r}: it was made by another algorithm or version")
    saved = tensors[name]
    if not isinstance(template, Tensor):
        return type(template)(saved.item())
    if saved.shape != template.shape or saved.dtype != template.dtype:
        raise StorageError(
            f"the checkpoint's {name!r} is {saved.dtype} of shape {tuple(saved.shape)}, the run's is {template.dtype} of "
            f"shape {tuple(template.shape)}"
        )
    return saved.to(template.device)
