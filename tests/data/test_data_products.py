"""Products and convolutions in even widths are those of torch."""

import itertools

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional

from tacit.data.guards import Guard
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


@pytest.mark.parametrize("axes", [1, 2])
def test_a_convolution_rounds_no_record_by_its_place(axes):
    """In float64, and for kernels of one pixel, with gradients by input and weights of each record."""
    torch.manual_seed(0)
    convolve = (functional.conv1d, functional.conv2d)[axes - 1]
    for dtype, kernel, channels in itertools.product((torch.float32, torch.float64), (1, 3), (1, 3, 7, 13)):
        weight = torch.randn(5, channels, *[kernel] * axes, dtype=dtype)
        record, others = torch.randn(2, channels, *[9] * axes, dtype=dtype)
        pulled = vmap(
            grad(lambda one, weight: convolve(one[None], weight, stride=2).square().sum(), (0, 1)), in_dims=(0, None)
        )
        found = []
        for places, place in ((16, 0), (16, 7), (16, 15)):
            batch = others.expand(places, *others.shape).clone()
            batch[place] = record
            with Guard(), EvenProducts():
                found.append([each[place] for each in pulled(batch, weight)])
        for each in found[1:]:
            assert all(torch.equal(ours, theirs) for ours, theirs in zip(each, found[0], strict=True))


@pytest.mark.parametrize(
    ("shape", "needed"),
    [((4,), False), ((8,), False), ((5,), True), (None, True)],
    ids=["even", "wide", "odd", "rows may be odd in another step"],
)
def test_whether_products_are_odd_is_seen(shape, needed):
    with EvenProducts() as products:
        if shape is None:
            torch.ones(4, 4) @ torch.ones(4, 4)
        else:
            torch.ones(2, 4, *shape) @ torch.ones(2, *shape, 4)
    assert products.needed is needed
