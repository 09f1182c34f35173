"""The agents' final models on disk, as safetensors: one table of all agents' parameters, with their names and shapes beside it."""

import json
from pathlib import Path

from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tacit.errors import StorageError
from tacit.io.files import write_atomically
from tacit.models.hashing import models_file, models_sha256
from tacit.training.results import Result

_FORMAT = "tacit-models-1"


def save_models(path: Path, result: Result) -> None:
    """Write all agents' models: `theta`, [agents, params], and which parameter is where in a row."""
    facts = {"format": _FORMAT, "parameters": result.model.layout}
    write_atomically(path, models_file(result.theta, {"tacit": json.dumps(facts)}))


def load_models(path: Path, sha256: str) -> Float[Tensor, "agents params"]:
    """Read all agents' models; those whose hash is not the one that the run's summary states are refused."""
    try:
        with safe_open(str(path), framework="pt") as file:
            facts = json.loads((file.metadata() or {})["tacit"])
            if facts["format"] != _FORMAT:
                raise KeyError("format")
            theta: Tensor = file.get_tensor("theta")
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise StorageError(f"{path} is broken, or does not hold models of a run ({error})") from error
    if theta.ndim != 2 or models_sha256(theta) != sha256:
        raise StorageError(f"{path} does not hold the models that the run ended with, by the hash in its summary")
    return theta
