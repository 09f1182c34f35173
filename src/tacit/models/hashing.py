"""All agents' models as a file, and their hash, by which runs are compared: resumed, replayed, or on another runtime."""

import hashlib
import sys

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor


def models_file(theta: Float[Tensor, "agents params"], facts: dict[str, str] | None = None) -> bytes:
    """Return the content of a file of all agents' models: safetensors with one tensor, `theta`, one agent's model per row."""
    return save({"theta": theta.detach().cpu().contiguous()}, metadata=facts)


def read_models(content: bytes) -> Float[Tensor, "agents params"]:
    """Read the content of a file of all agents' models, or raise a ValueError."""
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise ValueError(f"it is not a safetensors file: {error}") from None
    theta = tensors.get("theta")
    if theta is None or len(tensors) > 1 or theta.ndim != 2 or theta.dtype not in (torch.float32, torch.float64):
        raise ValueError("it does not hold one matrix `theta`, with a model in each row")
    return theta


def models_sha256(theta: Float[Tensor, "agents params"]) -> str:
    """Return SHA-256, in hexadecimal, of the agents' models in canonical form.

    The form is, for each agent in the order of agents: a line of ASCII `<dtype> <number of parameters>` that ends in a line
    feed, such as `float32 650`, and then the agent's parameters in the order of the flat vector, as little-endian bytes without
    gaps. Devices, strides and the byte order of the machine make no difference; a single bit of a parameter does.
    """
    digest = hashlib.sha256()
    for row in theta.detach().cpu():
        row = row.contiguous()
        digest.update(f"{str(row.dtype).removeprefix('torch.')} {row.numel()}\n".encode())
        content = row.view(torch.uint8).reshape(-1, row.element_size())
        digest.update((content if sys.byteorder == "little" else content.flip(1)).numpy().tobytes())
    return digest.hexdigest()
