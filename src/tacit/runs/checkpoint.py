"""The state between two rounds, as safetensors: tensors and a little metadata, never code, never private data."""

import hashlib
import json
import zlib
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from tacit.errors import StorageError
from tacit.io.files import write_atomically

_FORMAT = "tacit-checkpoint-4"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Everything but the settings that a run needs to continue after a round."""

    fingerprint: str
    """Identifies the settings that the run was started with."""
    token: str
    """Identifies the run among others with the same settings."""
    tensors: dict[str, Tensor]
    """What `Session.state_dict` gave."""

    @property
    def answered(self) -> int:
        """How many queries' answers went into the state."""
        return int(self.tensors["queries"])

    def save(self, path: Path) -> str:
        """Replace the previous checkpoint by this one, and return SHA-256 of the file."""
        facts: dict[str, str | int] = {
            "format": _FORMAT,
            "fingerprint": self.fingerprint,
            "token": self.token,
        }
        content = {name: value.detach().cpu().contiguous() for name, value in self.tensors.items()}
        facts["checksum"] = _checksum(content)
        written = save(content, metadata={"tacit": json.dumps(facts)})
        write_atomically(path, written)
        return hashlib.sha256(written).hexdigest()

    def _check(self) -> None:
        """Raise a KeyError for what no run would write."""
        numbers = ("round", "queries", "seconds", "evaluation_seconds")
        for name in (*numbers, "bytes_sent"):
            if name not in self.tensors:
                raise KeyError(name)
        if any(self.tensors[name].numel() != 1 or not self.tensors[name] >= 0 for name in numbers):
            raise KeyError("round, queries or seconds")

    @staticmethod
    def load(path: Path) -> "Checkpoint":
        """Read a checkpoint; a file that is broken, or is not one, is an error and is left as it is."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
        return Checkpoint.of(content, str(path))

    @staticmethod
    def of(content: bytes, where: str) -> "Checkpoint":
        """Read the content of a checkpoint's file; if it is broken, or is not one, that is an error."""
        try:
            tensors = load(content)
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            facts = json.loads(header["__metadata__"]["tacit"])
            if facts.pop("format") != _FORMAT:
                raise KeyError("format")
            if facts.pop("checksum") != _checksum(tensors):
                raise KeyError("checksum")
            saved = Checkpoint(**facts, tensors=tensors)
            saved._check()
            return saved
        except (SafetensorError, LookupError, TypeError, AttributeError, ValueError) as error:
            raise StorageError(
                f"{where} is broken or not a checkpoint of Tacit ({error}); it was left alone"
            ) from error


def _checksum(tensors: dict[str, Tensor]) -> int:
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(tensors[name].numpy().tobytes(), zlib.crc32(name.encode(), total))
    return total
