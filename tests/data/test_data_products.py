"""Products and convolutions in even widths are those of torch."""

import itertools

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional

from tacit.data.products import EvenProducts, even_convolution


def exact(close):
    return {"rtol": 1e-12, "atol": 1e-12} if close == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}


WAYS = {
    "mm": lambda a, b, v: a @ b,
    "bmm": lambda a, b, v: torch.stack([a, a + 1]) @ torch.stack([b, 2 * b]),
    "mv": lambda a, b, v: a @ v,
    "dot": lambda a, b, v: v @ v,
    "addmm": lambda a, b, v: torch.addmm(b[0], a, b, beta=0.5, alpha=3),
    "addmm without": lambda a, b, v: torch.addmm(torch.full_like(b[0], torch.nan), a, b, beta=0),
    "baddbmm": lambda a, b, v: torch.baddbmm(b[0], a[None], b[None], alpha=0.1),
    "addmv": lambda a, b, v: torch.addmv(a[:, 0], a, v, beta=2),
    "einsum": lambda a, b, v: torch.einsum("ij,jk,j->ki", a, b, v),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("way", WAYS)
def test_products_are_those_of_torch(way, dtype):
    torch.manual_seed(0)
    for rows, inner, columns in itertools.product((1, 3, 4), (1, 2, 7, 16), (1, 5, 13, 24)):
        given = (
            torch.randn(rows, inner, dtype=dtype),
            torch.randn(inner, columns, dtype=dtype),
            torch.randn(inner).to(dtype),
        )
        expected = WAYS[way](*given)
        pulled = torch.func.grad(lambda *each: WAYS[way](*each).square().sum(), (0, 1, 2))
        with EvenProducts():
            found, gradients = WAYS[way](*given), pulled(*given)
        torch.testing.assert_close(found, expected, **exact(dtype))
        assert found.is_contiguous() == expected.is_contiguous()
        for ours, theirs in zip(gradients, pulled(*given), strict=True):
            torch.testing.assert_close(ours, theirs, **exact(dtype))


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_convolutions_are_those_of_torch(axes, dtype):
    torch.manual_seed(0)
    convolve = (functional.conv1d, functional.conv2d)[axes - 1]
    tried = itertools.product((1, 3), (1, 2), (0, 1, "same", "valid"), (1, 2), (1, 3), (True, False))
    for kernel, stride, padding, dilation, groups, bias in tried:
        if padding == "same" and stride > 1:
            continue
        weight = torch.randn(6, 3 // groups, *[kernel] * axes, dtype=dtype)
        shift = torch.randn(6, dtype=dtype) if bias else None
        options = (shift, stride, padding, dilation, groups)
        for inputs in (torch.randn(2, 3, *[7] * axes, dtype=dtype), torch.randn(3, *[8] * axes, dtype=dtype)):
            torch.testing.assert_close(
                even_convolution(inputs, weight, *options), convolve(inputs, weight, *options), **exact(dtype)
            )


def test_records_in_columns_are_not_rounded_by_place():
    """A matrix times a record is done for all records as one product with a column each: 179 of 300 such shapes were."""
    torch.manual_seed(0)
    for rows, inner in itertools.product((5, 24, 31), (7, 20, 33)):
        matrix, record = torch.randn(rows, inner, dtype=torch.float64), torch.randn(inner, dtype=torch.float64)
        records = record.repeat(64, 1)
        with EvenProducts():
            outputs = vmap(lambda each: matrix @ each)(records)  # noqa: B023
            gradients = vmap(grad(lambda each: (matrix @ each).square().sum()))(records)  # noqa: B023
        assert bool((outputs == outputs[0]).all())
        assert bool((gradients == gradients[0]).all())
