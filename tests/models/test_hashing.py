"""The hash of all agents' models is that of its documented form, and of nothing else."""

import hashlib
import struct

import pytest
import torch

from tacit.models.hashing import models_sha256

VALUES = [[1.0, -2.5, 3.25], [0.0, float("inf"), 1e-3]]


@pytest.mark.parametrize(("dtype", "code"), [(torch.float32, "f"), (torch.float64, "d"), (torch.float16, "e")])
def test_the_hash_is_that_of_agents_in_order_with_type_shape_and_little_endian_bytes(dtype, code):
    name = str(dtype).removeprefix("torch.").encode()
    form = b"".join(name + b" 3\n" + struct.pack(f"<3{code}", *row) for row in VALUES)
    assert models_sha256(torch.tensor(VALUES, dtype=dtype)) == hashlib.sha256(form).hexdigest()


def test_bfloat16_is_hashed_by_its_bits():
    form = b"bfloat16 2\n" + struct.pack("<2H", 0x3F80, 0xC020)
    assert models_sha256(torch.tensor([[1.0, -2.5]], dtype=torch.bfloat16)) == hashlib.sha256(form).hexdigest()


def test_how_a_tensor_lies_in_memory_makes_no_difference_and_every_bit_does():
    theta = torch.tensor(VALUES)
    expected = models_sha256(theta)
    assert models_sha256(theta.T.contiguous().T) == expected
    assert models_sha256(torch.stack([theta, theta], dim=2)[:, :, 0].requires_grad_()) == expected
    for other in (theta.flip(0), theta.reshape(3, 2), theta.double(), torch.where(theta == 0, -0.0, theta)):
        assert models_sha256(other) != expected
    bits = theta.clone()
    bits.view(torch.int32)[1, 2] ^= 1
    assert models_sha256(bits) != expected
