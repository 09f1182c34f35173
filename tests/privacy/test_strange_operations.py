"""Models and preparations whose operations may not keep records apart are computed one record at a time.

Each test here failed: the numbers in the docstrings are how far one record moved a sum.
"""

import random
from functools import cache

import numpy as np
import pytest
import torch
from apart import check_apart
from torch import nn
from torch.nn import functional

from tacit.data.guards import chance_state
from tacit.data.prepare import isolate
from tacit.models import FlatModel
from tacit.privacy import Lot, choose_engine
from tacit.privacy.gradients.choice import _VERDICTS
from tacit.privacy.gradients.queries import Queries


def chosen_for(module, example, dtype=torch.float32, lots=(6.0, 6.0)):
    model = FlatModel(module.to(dtype))
    theta = torch.randn(len(lots), model.size, dtype=dtype)
    engine = choose_engine(model, theta[0], example, lot_sizes=lots, queries=1, private=True, compile=False).engine
    return engine, theta


def lot_of(inputs, targets, prepare=None):
    half = len(inputs) // 2
    return Lot(inputs, targets, torch.tensor([0, half, len(inputs)]), torch.arange(len(inputs)), prepare)


def shown(inputs, prepare=None):
    count = len(inputs)
    return Lot(inputs, torch.arange(count) % 3, torch.tensor([0, count]), torch.arange(count), prepare)


def clip(value=0.1, agents=2):
    return torch.full((agents,), value, dtype=torch.float64)


def test_a_record_does_not_count_for_its_neighbours_type():
    """A preparation in a loop leaves some records bytes; one float among them turned all to float: 13.4 C."""

    def to_unit(x):
        values = x.numpy()
        return torch.from_numpy(values / np.float32(255) if values.max() > 1 else values)

    torch.manual_seed(0)
    public = torch.randint(2, 256, (7, 4), dtype=torch.uint8)
    prepare = isolate(to_unit, public)
    engine, theta = chosen_for(nn.Linear(4, 3), shown(public, prepare))
    inputs = torch.randint(0, 2, (12, 4), dtype=torch.uint8)
    inputs[5] = torch.tensor([9, 200, 3, 77])
    lot = lot_of(inputs, torch.zeros(12, dtype=torch.int64), prepare)
    check_apart(engine, theta, lot, clip(), leave_out=(0, 5, 9))
    assert engine.clipped_sums(theta, lot, clip()).norms.isfinite().nonzero().flatten().tolist() == [5]


def test_a_preparation_in_a_loop_sees_every_record_at_the_same_place_of_memory():
    """Products of odd widths are rounded by their address: 15.1 C behind a threshold."""
    torch.manual_seed(0)
    matrix, seen = torch.randn(6, 9), []

    def planes(x):
        seen.append(x.data_ptr() % 64)
        return torch.from_numpy((matrix @ x[0]).numpy())[None]

    isolate(planes, torch.randn(2, 9))(torch.randn(24, 9))
    assert len(set(seen[-24:])) == 1


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.randn(1, 4),
        lambda: torch.full((1, 4), np.random.randn()),  # noqa: NPY002
        lambda: torch.full((1, 4), random.random()),
    ],
    ids=["torch", "numpy", "python"],
)
def test_a_preparation_that_draws_for_one_record_counts_it_as_zero_and_leaves_no_trace(draw):
    def noisy(x):
        return draw() if bool((x == 0).all()) else x * 1.0

    torch.manual_seed(0)
    public = torch.randn(7, 4)
    prepare = isolate(noisy, public)
    assert prepare.in_loop
    engine, theta = chosen_for(nn.Linear(4, 3), shown(public, prepare))
    inputs = torch.randn(12, 4)
    inputs[3] = 0
    before = chance_state()
    norms = engine.clipped_sums(theta, lot_of(inputs, torch.arange(12) % 3, prepare), clip()).norms
    assert chance_state() == before
    assert norms.isnan().nonzero().flatten().tolist() == [3]


PLANES = torch.randn(6, 11, generator=torch.Generator().manual_seed(0))


@torch.library.custom_op("tacit_tests::planes", mutates_args=())
def planes(x: torch.Tensor) -> torch.Tensor:
    """Products that no mode of torch sees: 16.6 C."""
    return (PLANES @ x[0] > 0).float()[None] * 2 - 1


@planes.register_fake
def _(x):
    return x.new_empty(1, 6)


def root(matrix):
    try:
        return torch.linalg.cholesky(matrix)
    except RuntimeError:
        return torch.linalg.cholesky(matrix + 10 * torch.eye(3))


class Root(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(matrix):
        return root(matrix)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def looked_up(indices: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    return functional.embedding(indices, table)


@cache
def scripted():
    return torch.jit.script(looked_up)


class Planes(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(planes(x))


class Caught(nn.Module):
    """An error that is caught inside of a function of one's own: 1.62 C."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 3)

    def forward(self, x):
        square = x.float().unflatten(1, (3, 3))
        return self.out(self.root(square @ square.mT).sum(1))

    def root(self, matrix):
        return Root.apply(matrix)


class CaughtInCallback(Caught):
    """The same inside of a function that torch calls: 1.03 C."""

    def root(self, matrix):
        return functional.triplet_margin_with_distance_loss(
            matrix, matrix, 0 * matrix, distance_function=lambda a, b: root(a).sum(1), margin=50.0, reduction="none"
        )[:, None]


class Scripted(nn.Module):
    """A look-up in compiled script, which no guard sees: 1.37 C."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Parameter(torch.randn(5, 3)), nn.Linear(3, 3)

    def forward(self, x):
        return self.out(scripted()(x, self.table).mean(1))


STRANGE = {
    "operator of one's own": (Planes, torch.randn(12, 11)),
    "caught": (Caught, torch.randint(-9, 10, (12, 9))),
    "caught in a callback": (CaughtInCallback, torch.randint(-9, 10, (12, 9))),
    "script": (Scripted, torch.randint(0, 5, (12, 4))),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", STRANGE)
def test_code_that_cannot_be_seen_runs_one_record_at_a_time(kind):
    make, inputs = STRANGE[kind]
    torch.manual_seed(0)
    engine, theta = chosen_for(make(), shown(inputs[:7].clone()))
    assert engine.runner.shape[:2] == (1, 1)
    inputs = inputs.clone()
    inputs[3] = 0 if kind != "script" else 9
    check_apart(engine, theta, lot_of(inputs, torch.arange(12) % 3), clip(), leave_out=(3, 8))


class Spoken(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(5, 4)

    def forward(self, x):
        return self.out(x).log_softmax(-1)


def ctc(outputs, targets):
    count = len(outputs)
    return functional.ctc_loss(
        outputs.transpose(0, 1), targets, (6,) * count, (2,) * count, reduction="none", zero_infinity=True
    )


@pytest.mark.parametrize("label", [4, 5, 20, 10**6, -1])
def test_a_label_that_is_out_of_range_reaches_nobody_in_ctc(label):
    """torch reads the next record's memory, 1.09 C, or ends the process."""
    torch.manual_seed(0)
    model = FlatModel(Spoken(), ctc)
    inputs, targets = torch.randn(12, 6, 5), torch.randint(1, 4, (12, 2))
    example = Lot(inputs[:7].clone(), targets[:7].clone(), torch.tensor([0, 7]))
    targets[4, 1] = label
    theta = torch.randn(2, model.size)
    engine = choose_engine(model, theta[0], example, lot_sizes=[6.0] * 2, queries=1, private=True, compile=False).engine
    lot = lot_of(inputs, targets)
    check_apart(engine, theta, lot, clip(), leave_out=(4, 8))
    assert engine.clipped_sums(theta, lot, clip()).norms.isnan().nonzero().flatten().tolist() == [4]


class Flat(nn.Module):
    def __init__(self, layer, width):
        super().__init__()
        self.layer, self.out = layer, nn.Linear(width, 3)

    def forward(self, x):
        return self.out(self.layer(x).flatten(1))


class Solved(nn.Module):
    def forward(self, x):
        return torch.linalg.inv(x + 9 * torch.eye(x.shape[-1], dtype=x.dtype))


@pytest.mark.parametrize(
    ("layer", "shape", "width"),
    [
        (lambda: nn.Conv3d(2, 3, 3), (2, 5, 5, 5), 81),
        (lambda: nn.ConvTranspose1d(3, 2, 3), (3, 7), 18),
        (lambda: nn.ConvTranspose2d(3, 2, 3), (3, 5, 5), 98),
        (Solved, (5, 5), 25),
    ],
    ids=["conv3d", "transposed", "transposed 2d", "inverse"],
)
def test_operations_that_round_by_place_in_float64_run_one_record_at_a_time(layer, shape, width):
    """The check of places let them pass: 2.38 C for Conv3d."""
    torch.manual_seed(0)
    inputs = torch.randn(12, *shape, dtype=torch.float64)
    engine, theta = chosen_for(Flat(layer(), width), shown(inputs[:7]), torch.float64)
    assert engine.runner.shape[:2] == (1, 1)
    check_apart(engine, theta, lot_of(inputs, torch.arange(12) % 3), clip(), leave_out=(0, 7))


def test_a_verdict_holds_for_the_records_that_it_was_found_on():
    """After a trial on zeros, which hide all rounding, the same model was trusted with any records."""
    module = nn.Linear(5, 3)
    for inputs in (torch.zeros(7, 5), torch.randn(7, 5)):
        before = len(_VERDICTS)
        chosen_for(module, shown(inputs), lots=(11.0, 13.0))
        assert len(_VERDICTS) == before + 1


def test_a_query_is_tried_anew_for_numbers_of_another_kind():
    model = FlatModel(nn.Linear(5, 3))
    queries = Queries(model, [16.0], shown(torch.randn(7, 5)))

    def norm(record, theta):
        return theta[:1] * record.input.sum()

    ours, theirs = (
        queries.runner(norm, (torch.randn(1, 18, dtype=kind),), 1) for kind in (torch.float32, torch.float64)
    )
    assert ours is not theirs
