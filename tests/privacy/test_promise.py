"""A record's contribution depends on that record and θ alone, and is bounded by C: as a property of any model, loss and data.

Hypothesis draws a model of every kind of layer, a loss, hostile records, lots, a place, precision, threads and the range of
C. With and without one record, every other record's norm, every other agent's sum and the own agent's sum less that record are the
same to the bit, and the own sum moves by at most C; `apart.check_apart` says so. A quarter of the models protect units of up to three records in the
place of records.

`make test` tries a fixed set of examples. TACIT_PROMISE_SECONDS=3600 draws new ones for an hour.
"""

import os
import time
from collections import Counter
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from apart import check_apart
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layer_models import MODELS, WHOLE, Bias, Scaled
from torch import nn
from torch.nn import functional

from tacit.models import FlatModel, convnet, cross_entropy
from tacit.privacy.gradients import choose_engine
from tacit.privacy.gradients.clipping import Lot
from tacit.privacy.units import Unit, UnitModel

SECONDS = float(os.environ.get("TACIT_PROMISE_SECONDS", 0))
ODD = (
    0.0,
    -0.0,
    1.0,
    1e-45,
    1e-40,
    1e-30,
    -1e-8,
    1e4,
    1e10,
    -1e10,
    3e38,
    -1e30,
    float("inf"),
    -float("inf"),
    float("nan"),
)
CLASSES = 3
CLIPS, SCALES = (1e-9, 1e-3, 0.3, 1.0, 1e9), (0.0, 0.3, 30.0)
VOCABULARY = 7


class Tied(nn.Module):
    """One layer used twice, another one whose weights are used transposed."""

    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return self.inner(torch.tanh(self.inner(x)))


class Spare(nn.Module):
    """Half of the parameters are not used."""

    def __init__(self, width):
        super().__init__()
        self.used, self.unused = nn.Linear(width, width, bias=False), nn.Linear(width, width)

    def forward(self, x):
        self.unused(x)
        return self.used(x)


class Apply(nn.Module):
    """Code without parameters, some of which would mix a batch."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


MATRIX = torch.randn(17, 17, generator=torch.Generator().manual_seed(0))


def matrix(x):
    """Return a public matrix that fits."""
    return MATRIX[: x.shape[-1], : x.shape[-1]].to(x.dtype)


FUNCTIONS = {
    "product": lambda x: x @ matrix(x),
    "product from the left": lambda x: (matrix(x) @ x.mT).mT,
    "attention": lambda x: functional.scaled_dot_product_attention(*[x.flatten(1)[:, None]] * 3)[:, 0].view_as(x),
    "relu": torch.relu,
    "tanh": torch.tanh,
    "gelu": functional.gelu,
    "mish": functional.mish,
    "square": torch.square,
    "exp": torch.exp,
    "largest of the batch": lambda x: x / x.abs().amax().clamp(min=1e-3),
    "mean of the batch": lambda x: x - x.mean(0, keepdim=True),
    "ties": lambda x: x * (x == x.amax(-1, keepdim=True)),
}


def batch_weighted(outputs, targets):
    """Class weights balanced over the batch."""
    counts = (targets[:, None] == torch.arange(CLASSES)).sum(0)
    return functional.cross_entropy(outputs, targets, reduction="none") / counts[targets]


def batch_scaled(outputs, targets):
    losses = outputs.square().sum(1) * (1 + targets)
    return losses / losses.detach().abs().max().clamp(min=1e-3)


LOSSES = {
    "cross-entropy": cross_entropy,
    "squares": lambda outputs, targets: (outputs - targets[:, None]).square().sum(1),
    "huge": lambda outputs, targets: 1e20 * outputs.sum(1),
    "nothing but for large outputs": lambda outputs, targets: (outputs.abs().sum(1) - 10).clamp(min=0),
    "largest output": lambda outputs, targets: outputs.amax(1) - outputs.argmax(1),
    "weighted over the batch": batch_weighted,
    "scaled over the batch": batch_scaled,
}


@st.composite
def vector_models(draw):
    width = first = draw(st.integers(1, 13))
    layers = []
    for kind in draw(
        st.lists(
            st.sampled_from(["linear", "norm", "groups", "own", "bias", "tied", "spare", "frozen", *FUNCTIONS]),
            max_size=4,
        )
    ):
        if kind == "linear":
            wide = draw(st.integers(1, 17))
            layers.append(nn.Linear(width, wide, bias=draw(st.booleans())))
            width = wide
        elif kind == "own" and width == 5:
            layers.append(Scaled())
        elif kind == "groups" and width % 2 == 0 and width > 2:  # torch refuses a single number in a group
            layers.append(nn.GroupNorm(2, width))
        elif kind in FUNCTIONS:
            layers.append(Apply(FUNCTIONS[kind]))
        else:
            made = {"norm": nn.LayerNorm, "bias": Bias, "tied": Tied, "spare": Spare}.get(kind)
            layers.append(made(width) if made else nn.Linear(width, width).requires_grad_(False))
    nested = nn.Sequential(*layers) if draw(st.booleans()) else nn.Sequential(nn.Sequential(*layers))
    return nn.Sequential(nested, nn.Linear(width, CLASSES)), (first,)


@st.composite
def image_models(draw):
    channels, side = draw(st.integers(1, 3)), draw(st.integers(4, 7))
    out, kernel = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    groups = channels if draw(st.booleans()) and out % channels == 0 else 1
    first = nn.Conv2d(
        channels, out, kernel, stride=draw(st.integers(1, 2)), padding=draw(st.integers(0, 1)), groups=groups
    )
    several = first(torch.zeros(1, channels, side, side)).numel() > 1  # torch refuses a single number in a group
    rest = [nn.GroupNorm(1, out)] if several and draw(st.booleans()) else []
    rest += [Apply(FUNCTIONS[draw(st.sampled_from(sorted(FUNCTIONS)))])] if draw(st.booleans()) else []
    body = nn.Sequential(first, *rest, nn.Flatten())
    width = body(torch.zeros(1, channels, side, side)).shape[1]
    return nn.Sequential(body, nn.Linear(width, CLASSES)), (channels, side, side)


class Tokens(nn.Module):
    def __init__(self, width, padding, tied):
        super().__init__()
        self.embed, self.mix = nn.Embedding(VOCABULARY, width, padding_idx=padding), nn.Linear(width, width)
        self.out = nn.Linear(width, VOCABULARY if tied else CLASSES)
        if tied:
            self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(torch.tanh(self.mix(self.embed(x))).mean(1))[:, :CLASSES]


@st.composite
def token_models(draw):
    module = Tokens(draw(st.integers(1, 9)), draw(st.sampled_from([None, 2])), draw(st.booleans()))
    return module, draw(st.integers(1, 6))


class TwoInputs(nn.Module):
    """Reads numbers, and tokens or more numbers; code between them would mix a batch."""

    def __init__(self, width, tokens, function):
        super().__init__()
        self.look = nn.Linear(width, 4)
        self.read = nn.Embedding(VOCABULARY, 4) if tokens else nn.Linear(3, 4)
        self.out, self.function = nn.Linear(4, CLASSES), function

    def forward(self, left, right):
        read = self.read(right)
        return self.out(self.function(self.look(left)) * (read if read.ndim == 2 else read.sum(1)))


@st.composite
def two_input_models(draw):
    """By their names in a dictionary, or by their places in a tuple."""
    width, tokens = draw(st.integers(1, 9)), draw(st.booleans())
    module = TwoInputs(width, tokens, FUNCTIONS[draw(st.sampled_from(sorted(FUNCTIONS)))])
    left, right = (width,), draw(st.integers(1, 5)) if tokens else (3,)
    return module, {"right": right, "left": left} if draw(st.booleans()) else [left, right]


@st.composite
def known_models(draw):
    make, shape = draw(st.sampled_from(sorted({**MODELS, **WHOLE}.items())))[1]
    return make(), 4 if shape is None else shape


def hostile_records(draw, shape, counts):
    """Return records for agents with so many each: ordinary ones, some odd, perhaps all the same."""
    inputs = of_each(shape, lambda one: hostile_inputs(draw, one, sum(counts)))
    return Lot(inputs, torch.randint(0, CLASSES, (sum(counts),)), torch.tensor([0, *counts]).cumsum(0))


def of_each(shape, make):
    """Return what is made of one shape, or of each of several."""
    if isinstance(shape, dict):
        return {name: make(one) for name, one in shape.items()}
    return tuple(map(make, shape)) if isinstance(shape, list) else make(shape)


def hostile_inputs(draw, shape, total):
    if isinstance(shape, int):
        inputs, values = torch.randint(0, VOCABULARY, (total, shape)), [-1, 0, 2, VOCABULARY, 10**6]
    else:
        inputs, values = torch.randn(total, *shape) * draw(st.sampled_from([1.0, 1e-3, 1e10])), ODD
    for place, value in draw(st.lists(st.tuples(st.integers(0, total - 1), st.sampled_from(values)), max_size=4)):
        flat = inputs[place].view(-1)
        flat[: 1 + draw(st.integers(0, len(flat) - 1))] = value
    if draw(st.booleans()):
        inputs[:] = inputs[:1].clone()
    return inputs


def public_inputs(shape):
    return torch.randint(0, VOCABULARY, (7, shape)) if isinstance(shape, int) else torch.randn(7, *shape)


def public_records(shape):
    inputs = of_each(shape, public_inputs)
    return Lot(inputs, torch.arange(7) % CLASSES, torch.tensor([0, 7]))


def in_units(draw, lot, most):
    """Return as many units as there are records, each of up to `most` of them; one may be in several."""
    members = torch.randint(0, lot.size, (lot.size, most))
    members[:, 0] = torch.arange(lot.size)
    taken = torch.randint(1, most + 1, (lot.size, 1))
    if draw(st.booleans()):
        members[:] = members[:, :1]
    return lot._replace(rows=torch.where(torch.arange(most) < taken, members, -1))


@st.composite
def cases(draw):
    torch.manual_seed(draw(st.integers(0, 2**16)))
    module, shape = draw(st.one_of(vector_models(), image_models(), token_models(), two_input_models(), known_models()))
    lot = hostile_records(draw, shape, draw(st.lists(st.integers(0, 18), min_size=1, max_size=3).filter(any)))
    most, example = draw(st.sampled_from([*[None] * 6, 1, 3])), public_records(shape)
    return {
        "most": most,
        "module": module.to(draw(st.sampled_from([torch.float32, torch.float64]))),
        "lot": lot if most is None else in_units(draw, lot, most),
        "example": example if most is None else in_units(draw, example, most),
        "loss": LOSSES[draw(st.sampled_from(sorted(LOSSES)))],
        "clip": draw(st.sampled_from(CLIPS)),
        "scale": draw(st.sampled_from(SCALES)),
        "place": draw(st.integers(0, lot.size - 1)),
        "threads": draw(st.sampled_from([1, 2])),
        "expected_lot": draw(st.sampled_from([1.0, 6.0, 20.0])),
    }


COMPILED = {
    "images": (lambda: convnet((1, 8, 8), CLASSES), (1, 8, 8)),
    "channels": (
        lambda: nn.Sequential(nn.Conv2d(3, 5, 3), nn.GroupNorm(1, 5), nn.ReLU(), nn.Flatten(), nn.Linear(45, CLASSES)),
        (3, 5, 5),
    ),
    "vectors": (
        lambda: nn.Sequential(nn.Linear(13, 9), nn.LayerNorm(9), nn.Tanh(), nn.Linear(9, 7), nn.Linear(7, CLASSES)),
        (13,),
    ),
    "tokens": (lambda: Tokens(5, 2, False), 6),
    "two inputs": (lambda: TwoInputs(5, False, torch.relu), {"left": (5,), "right": (3,)}),
}


@st.composite
def compiled_cases(draw):
    """One of a few models, in steps of one shape: compiling takes long."""
    torch.manual_seed(draw(st.integers(0, 2**16)))
    name = draw(st.sampled_from(sorted(COMPILED)))
    lot = hostile_records(draw, COMPILED[name][1], draw(st.tuples(*[st.integers(0, 18)] * 3).filter(any)))
    return {
        "name": name,
        "lot": lot,
        "clip": draw(st.sampled_from(CLIPS)),
        "scale": draw(st.sampled_from(SCALES)),
        "place": draw(st.integers(0, lot.size - 1)),
        "threads": draw(st.sampled_from([1, 2])),
    }


@contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def parameters(model, case):
    agents = len(case["lot"].offsets) - 1
    generator = torch.Generator().manual_seed(0)
    theta = case["scale"] * torch.randn(agents, model.size, generator=generator, dtype=model.dtype)
    return theta, torch.full((agents,), case["clip"], dtype=torch.float64)


def check(case):
    model = FlatModel(case["module"], case["loss"])
    if case["most"] is not None:
        model = UnitModel(model, Unit("patient", case["most"]), ())
    theta, clip = parameters(model, case)
    lots = [case["expected_lot"]] * len(theta)
    with threads(case["threads"]):
        chosen = choose_engine(model, theta[0], case["example"], lot_sizes=lots, queries=1, private=True, compile=False)
        check_apart(chosen.engine, theta, case["lot"], clip, leave_out=(case["place"],))


@cache
def compiled_engine(name, count):
    make, shape = COMPILED[name]
    torch.manual_seed(0)
    module = make()
    model = FlatModel(module)
    given = {"lot_sizes": [6.0] * 3, "queries": 1, "private": True, "compile": True}
    with threads(count):
        chosen = choose_engine(model, model.flatten(module), public_records(shape), **given)
    assert chosen.compiled, chosen.why
    return model, chosen.engine


def check_compiled(case):
    model, engine = compiled_engine(case["name"], case["threads"])
    theta, clip = parameters(model, case)
    with threads(case["threads"]):
        check_apart(engine, theta, case["lot"], clip, leave_out=(case["place"],))


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(cases())
def test_no_record_changes_another_and_none_counts_for_more_than_the_bound(case):
    check(case)


@pytest.mark.skipif(not SECONDS, reason="TACIT_PROMISE_SECONDS says how long to draw new examples")
def test_for_as_long_as_one_likes():
    """Four examples of any model to one of a compiled one."""
    end, tried = time.monotonic() + SECONDS, Counter()

    def draws(strategy, check, count):
        @settings(max_examples=count, derandomize=False, database=None, suppress_health_check=list(HealthCheck))
        @given(strategy)
        def some(case):
            if time.monotonic() < end:
                tried[check.__name__] += 1
                check(case)

        return some

    any_model, compiled = draws(cases(), check, 40), draws(compiled_cases(), check_compiled, 10)
    while time.monotonic() < end:
        any_model()
        compiled()
        print(f"{dict(tried)} examples so far, {end - time.monotonic():.0f} seconds left", flush=True)
    print(f"{dict(tried)} examples in {SECONDS:g} seconds")
