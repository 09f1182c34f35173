"""The hash of all agents' models, by which runs are compared: resumed or not, replayed, on one runtime or another."""

import hashlib
import sys

import torch
from jaxtyping import Float
from torch import Tensor


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
