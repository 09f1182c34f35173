"""Which engine is chosen, compiled or not, and that one that is wrong is not."""

import pytest
import torch
from apart import check_apart
from layer_models import (
    WHOLE,
    make_lot,
    setting,
    slow_sums,
    thetas,
)
from torch import nn

from tacit.models import FlatModel, convnet, logistic, mlp, resnet9
from tacit.privacy import VmapEngine
from tacit.privacy.gradients import GhostEngine, Unsupported, choice, choose_engine, ghost
from tacit.privacy.gradients.clipping import Lot


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch):
    """Every test chooses anew."""
    monkeypatch.setattr(choice, "_VERDICTS", {})


def test_a_model_of_torchs_own_layers_is_tried_once_for_each_shape(monkeypatch):
    tried = []
    monkeypatch.setattr(choice, "check_places", lambda steps, *_: tried.append(steps.shape))
    example = make_lot((1, 8, 8), [7])

    def choose(module, lots=(4.0,), **settings):
        model = FlatModel(module, **settings)
        theta = model.flatten(module)
        before = len(tried)
        chosen = choose_engine(model, theta, example, lot_sizes=lots, queries=1, private=True, compile=False)
        assert isinstance(chosen.engine, GhostEngine)
        assert chosen.why == "layer by layer"
        assert chosen.engine._model is model
        return len(tried) - before, chosen.engine.runner.shape

    first, shape = choose(logistic((1, 8, 8), 3))
    assert first == 1
    assert choose(logistic((1, 8, 8), 3)) == (0, shape)
    assert choose(logistic((1, 8, 8), 4))[0] == 1
    assert choose(logistic((1, 8, 8), 3), lots=(40.0,))[0] == 1
    assert choose(logistic((1, 8, 8), 3).double())[0] == 1
    for _ in range(2):  # code of a user's own may have changed
        assert choose(logistic((1, 8, 8), 3), loss=lambda outputs, targets: outputs.square().sum(1))[0] == 1
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        assert choose(logistic((1, 8, 8), 3))[0] == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", WHOLE)
def test_what_cannot_be_taken_layer_by_layer_is_taken_whole(name):
    module, model, theta, lot = setting(name)
    chosen = choose_engine(model, theta[0], lot, lot_sizes=[4], queries=1, private=True, compile=False)
    assert isinstance(chosen.engine, VmapEngine)
    assert chosen.why.startswith("record by record: ")
    expected, _ = slow_sums(module, model, theta, lot)
    with torch.no_grad():
        torch.testing.assert_close(chosen.engine.plain_sums(theta, lot), expected, rtol=1e-9, atol=1e-12)


def test_an_engine_that_is_wrong_is_not_chosen(monkeypatch):
    """The layer rule for linear layers forgets half of its gradient: the check on public records finds it."""
    from tacit.privacy.gradients import layers

    _, model, theta, lot = setting("mlp")
    assert isinstance(
        choose_engine(model, theta[0], lot, lot_sizes=[4], queries=1, private=True, compile=False).engine, GhostEngine
    )
    monkeypatch.setattr(choice, "_VERDICTS", {})
    monkeypatch.setattr(layers, "lengths", lambda values: 0.5 * values.double().square().sum(-1).sqrt())
    chosen = choose_engine(model, theta[0], lot, lot_sizes=[4], queries=1, private=True, compile=False)
    assert chosen.why == "record by record: the layer-by-layer engine gives different norms"


@pytest.fixture
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("threads", "make"), [(1, mlp), pytest.param(2, convnet, marks=pytest.mark.slow)], indirect=["threads"]
)
def test_compiled_steps_give_what_the_others_give(threads, make):
    """Twice, with lots of other sizes: the second time nothing is compiled anew. And no record changes another."""
    torch.manual_seed(0)
    model = FlatModel(make((1, 8, 8), 3))
    theta = thetas(model, 4).float()
    clip = torch.full((4,), 0.5, dtype=torch.float64)
    example = make_lot((1, 8, 8), [7])
    chosen = choose_engine(model, theta[0], example, lot_sizes=[4.0] * 4, queries=1, private=True, compile=True)
    assert chosen.why == "layer by layer, compiled"
    general = VmapEngine(model)
    with torch.no_grad():
        for seed, counts in enumerate(([5, 0, 1, 9], [30, 3, 44, 2])):
            lot = make_lot((1, 8, 8), counts, seed)
            found, expected = (engine.clipped_sums(theta, lot, clip) for engine in (chosen.engine, general))
            torch.testing.assert_close(found.sums, expected.sums, rtol=1e-4, atol=1e-4)
            # Logits are sums of 64 products and as large as 76, so each engine, adding in an order of its own, rounds them by up to about
            # √64·76·2⁻²⁴ = 4e-5. The softmax makes that a relative error of the gradient. A class that is almost certain leaves a residual of
            # a few 2⁻²⁴, which is multiplied by up to about 100.
            torch.testing.assert_close(found.norms, expected.norms, rtol=1e-4, atol=1e-5)
    hostile = make_lot((1, 8, 8), [5, 0, 30, 9], 2)
    for place, value in enumerate((torch.nan, 1e30, 1e10, 1e-40, 0.0)):
        hostile.inputs[7 * place, 0, :4] = value
    check_apart(chosen.engine, 10 * theta, hostile, clip, leave_out=(0, 4, 5, 7, 28, 34, 43))
    assert len(chosen.engine.runner.kernel._compiled) == 1
    single = hostile._replace(inputs=hostile.inputs.float())
    norms = chosen.engine.clipped_sums(theta, single, clip).norms
    assert norms.isnan().all(), (
        "records of another type than public ones count as zero, and are not read as if they were"
    )


def _wrong_norms(sums, norms):
    return sums, 0.99 * norms


def _wrong_second_block(sums, norms):
    return sums * torch.tensor([1.0, 2.0] + [1.0] * (len(sums) - 2))[:, None], norms


@pytest.mark.parametrize("fault", [_wrong_norms, _wrong_second_block])
def test_a_compiled_step_that_is_wrong_is_not_used(monkeypatch, fault):
    monkeypatch.setattr(ghost, "_compile", lambda step, given: lambda *now: fault(*step(*now)))
    _, model, theta, lot = setting("mlp")
    chosen = choose_engine(model, theta[0], lot, lot_sizes=[4], queries=1, private=True, compile=True)
    assert chosen.why.startswith("layer by layer; not compiled: ")
    assert not chosen.engine.compiled


def test_a_compiled_step_that_lets_a_record_harm_others_is_not_used(monkeypatch):
    """Where one norm is not finite, the whole step gives nothing."""
    monkeypatch.setattr(ghost, "_compile", lambda step, given: lambda *now: _spreading(*step(*now)))
    _, model, theta, lot = setting("mlp")
    chosen = choose_engine(model, theta[0], lot, lot_sizes=[4], queries=1, private=True, compile=True)
    assert chosen.why == "layer by layer; not compiled: the rounding of a record's vector depends on its place"


def _spreading(sums, norms):
    return (sums if norms.isfinite().all() else 0 * sums), norms


def test_where_nothing_can_be_compiled_the_run_goes_on(monkeypatch, caplog):
    def no_compiler(*_):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(ghost, "_compile", no_compiler)
    _, model, theta, lot = setting("mlp")
    chosen = choose_engine(model, theta[0], lot, lot_sizes=[4], queries=1, private=True, compile=True)
    assert chosen.why == "layer by layer; compiling failed with RuntimeError: no compiler"
    assert not chosen.engine.compiled
    assert caplog.messages == ["gradients are not compiled, which takes longer: RuntimeError: no compiler"]


@pytest.mark.parametrize(("queries", "compiled"), [(10, False), (10**9, True)])
def test_auto_compiles_long_runs_only(monkeypatch, queries, compiled):
    monkeypatch.setattr(ghost, "_compile", lambda step, given: step)
    _, model, theta, lot = setting("mlp")
    chosen = choose_engine(model, theta[0], lot, lot_sizes=[4], queries=queries, private=True, compile="auto")
    assert chosen.engine.compiled is compiled


@pytest.mark.slow
def test_resnet9_is_taken_layer_by_layer():
    torch.manual_seed(0)
    module = resnet9((3, 8, 8), 5)
    model = FlatModel(module)
    assert model.size > 6_000_000
    theta = model.flatten(module).repeat(2, 1)
    theta[1] *= 0.9
    generator = torch.Generator().manual_seed(0)
    lot = Lot(torch.randn(4, 3, 8, 8, generator=generator), torch.tensor([0, 1, 2, 3]), torch.tensor([0, 3, 4]))
    chosen = choose_engine(model, theta[0], lot, lot_sizes=[2], queries=1, private=True, compile=False)
    assert chosen.why == "layer by layer"
    clip = torch.full((2,), 2.0, dtype=torch.float64)
    with torch.no_grad():
        found = chosen.engine.clipped_sums(theta, lot, clip)
        expected = VmapEngine(model).clipped_sums(theta, lot, clip)
    assert (expected.norms > clip[0]).all()
    assert (expected.sums.double().norm(dim=1) <= clip * lot.offsets.diff() * (1 + 1e-6)).all()
    torch.testing.assert_close(found.norms, expected.norms, rtol=5e-3, atol=0)
    assert (found.norms >= expected.norms * (1 - 1e-5)).all()
    torch.testing.assert_close(found.sums, expected.sums, rtol=1e-2, atol=5e-3)


def test_unsupported_says_why():
    _, model, _, lot = setting("parameters at the root")
    with pytest.raises(Unsupported, match="parameters of its own beside its layers"):
        GhostEngine(model, [4], lot)


class Mixing(nn.Module):
    """Code that mixes records only where one of them is odd, or many of them come together."""

    def __init__(self, how, start=None):
        super().__init__()
        self.how, self.first, self.out = how, nn.Linear(5, 4), nn.Linear(4, 3)
        if start is not None:
            for parameter in self.parameters():
                nn.init.constant_(parameter, start)

    def forward(self, x):
        return self.out(self.how(self.first(x)))


MIXING = {
    "a common largest value": lambda z: torch.exp(z - z.max()) / torch.exp(z - z.max()).sum(1, keepdim=True),
    "a cap for all": lambda z: z * (20 / z.abs().amax().clamp(min=20)),
    "all or none": lambda z: torch.where(z.isfinite().all(), z, 0),
    "large batches": lambda z: z - z.mean(0) if len(z) > 32 else z,
    "centred": lambda z: z - z.detach().mean(0),
}


@pytest.mark.parametrize("start", [None, 0.0])
@pytest.mark.parametrize("name", MIXING)
def test_code_that_would_mix_records_sees_one_at_a_time(name, start):
    torch.manual_seed(0)
    module = Mixing(MIXING[name], start)
    model = FlatModel(module)
    theta, lot = model.flatten(module).repeat(2, 1), make_lot((5,), [40, 5])
    lot = lot._replace(inputs=lot.inputs.float())
    lot.inputs[[3, 42]] = torch.tensor([1e6, torch.nan])[:, None]
    example = make_lot((5,), [7])
    chosen = choose_engine(model, theta[0], example, lot_sizes=[3.0, 40.0], queries=1, private=True, compile=False)
    check_apart(chosen.engine, theta, lot, torch.full((2,), 0.1, dtype=torch.float64), leave_out=(0, 3, 39, 42))


def test_a_loss_that_would_mix_records_sees_one_at_a_time():
    def loss(outputs, targets):
        shifted = (outputs - outputs.max()).exp()
        return -(shifted[torch.arange(len(targets)), targets] / shifted.sum(1)).log() / (1 + targets.max())

    torch.manual_seed(0)
    module = nn.Linear(5, 3)
    model = FlatModel(module, loss)
    theta, lot = model.flatten(module).repeat(2, 1), make_lot((5,), [9, 5])
    chosen = choose_engine(model, theta[0], lot, lot_sizes=[4], queries=1, private=True, compile=False)
    check_apart(chosen.engine, theta, lot, torch.full((2,), 0.1, dtype=torch.float64), leave_out=(0, 8, 10))


def test_a_model_with_frozen_layers_is_not_compiled_and_says_so():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 3))
    model = FlatModel(module)
    lot = make_lot((5,), [7])
    chosen = choose_engine(model, model.flatten(module), lot, lot_sizes=[4], queries=1, private=True, compile=True)
    assert (
        chosen.why == "layer by layer; not compiled: the model has frozen parameters or buffers, which are not compiled"
    )
