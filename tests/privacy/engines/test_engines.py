"""Every engine against a slow loop over records, for every kind of layer and every odd way to use one."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from tacit.models import FlatModel, convnet, cross_entropy, mlp, resnet9
from tacit.privacy.clipping import Lot, VmapEngine
from tacit.privacy.engines import GhostEngine, Unsupported, choose_engine, ghost
from tacit.privacy.engines.blocks import choose_sizes, cut


class Bias(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return x + self.bias


class Scaled(nn.Module):
    """A layer of one's own with parameters of its own and a child: taken as a whole."""

    def __init__(self):
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.ones(())), nn.Linear(5, 5)

    def forward(self, x):
        return self.scale * torch.sin(self.inner(x))


class Twice(nn.Module):
    """One layer called twice, a frozen one between."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 5)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.out = nn.Linear(5, 3)

    def forward(self, x):
        return self.out(torch.tanh(self.inner(self.frozen(torch.tanh(self.inner(x))))))


class TiedWords(nn.Module):
    """An embedding whose table is also the output layer's weight."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.out = nn.Embedding(7, 6), nn.LayerNorm(6), nn.Linear(6, 7)
        self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(self.norm(self.embed(x)).mean(dim=1))[:, :3]


class Words(nn.Module):
    def __init__(self, padding=None):
        super().__init__()
        self.embed = nn.Embedding(7, 6, padding_idx=padding)
        self.mix, self.norm, self.out = nn.Linear(6, 6), nn.LayerNorm((4, 6)), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.norm(torch.tanh(self.mix(self.embed(x)))).mean(dim=1))


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.out, self.spare = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x):
        self.spare(x)
        return self.out(x)


class Rooted(nn.Module):
    """Parameters beside the layers: no layer can be swapped."""

    def __init__(self):
        super().__init__()
        self.token, self.out = nn.Parameter(torch.zeros(5)), nn.Linear(5, 3)

    def forward(self, x):
        return self.out(x + self.token)


class Overwritten(nn.Module):
    """What a layer gave is overwritten in place."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.out(functional.relu_(self.first(torch.tanh(self.first(x)))))


class Borrowed(nn.Module):
    """One layer's weight is used outside of the layer."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.out(torch.tanh(self.first(x)) @ self.first.weight)


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(6, 2, batch_first=True)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.attend(x, x, x)[0].mean(dim=1))


def bias_only():
    model = mlp((5,), 3, hidden=(4,))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    return model


def weight_only():
    model = mlp((5,), 3, hidden=(4,))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("weight"))
    return model


def hooked():
    model = mlp((5,), 3, hidden=(4,))
    model[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    return model


def convolutions(*layers, shape):
    with torch.no_grad():
        width = nn.Sequential(*copy.deepcopy(layers))(torch.zeros(1, *shape)).numel()
    return lambda: nn.Sequential(*copy.deepcopy(layers), nn.Tanh(), nn.Flatten(), nn.Linear(width, 3))


MODELS = {
    "a single layer": (lambda: nn.Linear(5, 3), (5,)),
    "mlp": (lambda: mlp((5,), 3, hidden=(4,)), (5,)),
    "bias only": (bias_only, (5,)),
    "weight only": (weight_only, (5,)),
    "no bias": (lambda: nn.Sequential(nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Linear(4, 3)), (5,)),
    "in place": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Mish(inplace=True), nn.Linear(4, 3)), (5,)),
    "hooked": (hooked, (5,)),
    "a layer twice": (Twice, (5,)),
    "a bias layer": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), Bias(4), nn.Linear(4, 3)), (5,)),
    "a layer of one's own": (lambda: nn.Sequential(nn.Linear(5, 5), Scaled(), nn.Linear(5, 3)), (5,)),
    "an unused layer": (Unused, (5,)),
    "convnet": (lambda: convnet((1, 8, 8), 3), (1, 8, 8)),
    "linear over positions": (
        lambda: nn.Sequential(nn.Linear(4, 30), nn.Tanh(), nn.Linear(30, 2), nn.Flatten(), nn.Linear(12, 3)),
        (2, 3, 4),
    ),
    "conv1d and group norm": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, 3)),
        (2, 6),
    ),
    "conv2d, stride and padding": (
        convolutions(nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.Conv2d(3, 4, (2, 1), bias=False), shape=(2, 9, 8)),
        (2, 9, 8),
    ),
    "conv2d, same, dilated, circular": (
        convolutions(
            nn.Conv2d(1, 2, 3, padding="same", dilation=2),
            nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
            shape=(1, 7, 6),
        ),
        (1, 7, 6),
    ),
    "conv1d, padded and dilated": (
        convolutions(nn.Conv1d(3, 4, 3, padding=2, dilation=2, stride=2), shape=(3, 9)),
        (3, 9),
    ),
    "conv1d, reflected and repeated": (
        convolutions(
            nn.Conv1d(2, 3, 3, padding=2, padding_mode="reflect"),
            nn.Conv1d(3, 3, 2, padding=1, padding_mode="replicate"),
            nn.Conv1d(3, 2, 3, padding="same", padding_mode="circular"),
            shape=(2, 6),
        ),
        (2, 6),
    ),
    "many channels, few positions": (
        convolutions(nn.Conv2d(2, 32, 3, padding=1), nn.Conv2d(32, 32, 3, stride=2), shape=(2, 5, 5)),
        (2, 5, 5),
    ),
    "many channels, many positions": (
        convolutions(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.MaxPool2d(4), shape=(16, 12, 12)),
        (16, 12, 12),
    ),
    "groups": (convolutions(nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 2, 1), shape=(4, 5, 5)), (4, 5, 5)),
    "words": (Words, None),
    "words with padding": (lambda: Words(padding=2), None),
    "tied words": (TiedWords, None),
    "frozen norm": (
        lambda: nn.Sequential(
            nn.Linear(5, 4), nn.LayerNorm(4).requires_grad_(False), nn.GroupNorm(2, 4, affine=False), nn.Linear(4, 3)
        ),
        (5,),
    ),
}
WHOLE = {
    "parameters at the root": (Rooted, (5,)),
    "overwritten": (Overwritten, (5,)),
    "borrowed": (Borrowed, (5,)),
    "attention": (Attending, (4, 6)),
}


def make_lot(shape, counts, seed=0):
    generator = torch.Generator().manual_seed(seed)
    total = sum(counts)
    if shape is None:
        inputs = torch.randint(0, 7, (total, 4), generator=generator)
    else:
        inputs = torch.randn(total, *shape, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, 3, (total,), generator=generator)
    return Lot(inputs, targets, torch.tensor([0, *counts]).cumsum(0))


def thetas(model, agents):
    generator = torch.Generator().manual_seed(1)
    return 0.5 * torch.randn(agents, model.size, generator=generator, dtype=torch.float64)


def slow_sums(module, model, theta, lot, clip=None):
    """Per record and agent: an ordinary backward pass of an ordinary module."""
    sums, norms = torch.zeros_like(theta), []
    for agent in range(len(theta)):
        own = copy.deepcopy(module).double()
        parameters = dict(own.named_parameters())
        start = 0
        for name, count in zip(model.names, model.counts, strict=True):
            parameters[name].data = theta[agent, start : start + count].reshape(parameters[name].shape)
            start += count
        for record in range(int(lot.offsets[agent]), int(lot.offsets[agent + 1])):
            own.zero_grad()
            cross_entropy(own(lot.inputs[record][None]), lot.targets[record][None]).sum().backward()
            each = [parameters[name].grad for name in model.names]
            shapes = [parameters[name].shape for name in model.names]
            flat = torch.cat(
                [(torch.zeros(s) if g is None else g).flatten() for g, s in zip(each, shapes, strict=True)]
            )
            norms.append(float(flat.norm()))
            sums[agent] += flat if clip is None else flat * min(1.0, clip[agent] * (1 - 1e-5) / norms[-1])
    return sums, torch.tensor(norms, dtype=torch.float64)


def setting(name):
    torch.manual_seed(0)
    make, shape = (MODELS | WHOLE)[name]
    module = make()
    module = module.double()
    model = FlatModel(module)
    lot = make_lot(shape, [5, 0, 1, 9])
    return module, model, thetas(model, 4), lot


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("size", "compiled"), [((2,), False), ((16,), False), ((1, 4), False), ((1, 4), True)])
def test_clipped_and_plain_sums_agree_with_a_slow_loop(name, size, compiled, monkeypatch):
    """Compiled steps use other rules for some layers; here they are run as they are written."""
    monkeypatch.setattr(ghost, "_compile", lambda step, given: step)
    module, model, theta, lot = setting(name)
    engine = GhostEngine(model, [4], lot, compiled=compiled)
    engine.sizes = size
    _, norms = slow_sums(module, model, theta, lot)
    clip = torch.full((4,), float(norms.median()), dtype=torch.float64)
    expected, _ = slow_sums(module, model, theta, lot, clip.tolist())
    with torch.no_grad():
        found = engine.clipped_sums(theta, lot, clip)
        plain = engine.plain_sums(theta, lot)
    assert (norms > clip[0]).any()
    assert (norms < clip[0]).any()
    torch.testing.assert_close(found.norms, norms, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.sums, expected, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(plain, slow_sums(module, model, theta, lot)[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_a_users_module_is_left_as_it_was(name):
    module, model, theta, lot = setting(name)
    kinds = [type(layer) for layer in module.modules()]
    hooks = [len(layer._forward_hooks) for layer in module.modules()]
    GhostEngine(model, [4], lot).clipped_sums(theta, lot, torch.ones(4, dtype=torch.float64))
    for left in (module, model.training_module):
        assert [type(layer) for layer in left.modules()] == kinds
        assert [len(layer._forward_hooks) for layer in left.modules()] == hooks


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
    from tacit.privacy.engines import layers

    _, model, theta, lot = setting("mlp")
    assert isinstance(
        choose_engine(model, theta[0], lot, lot_sizes=[4], queries=1, private=True, compile=False).engine, GhostEngine
    )
    monkeypatch.setattr(layers, "squared", lambda values: 0.5 * values.double().square().sum(2))
    chosen = choose_engine(model, theta[0], lot, lot_sizes=[4], queries=1, private=True, compile=False)
    assert chosen.why == "record by record: layer by layer gives other norms"


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_compiled_steps_give_what_the_others_give(threads):
    """Twice, with lots of other sizes: the second time nothing is compiled anew."""
    torch.manual_seed(0)
    model = FlatModel(convnet((1, 8, 8), 3))
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
            torch.testing.assert_close(found.sums, expected.sums, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(found.norms, expected.norms, rtol=1e-5, atol=1e-7)
    assert len(chosen.engine._steps) == len(chosen.engine.sizes)


def test_steps_of_two_sizes_and_equally_many_records_are_two_steps():
    """Small models have 4,096 records in a step: 128 blocks of 32, or 512 of 8."""
    torch.manual_seed(0)
    model = FlatModel(nn.Linear(5, 3))
    theta, lot = thetas(model, 4).float(), make_lot((5,), [7])
    chosen = choose_engine(model, theta[0], lot, lot_sizes=[32.0] * 4, queries=1, private=True, compile=True)
    assert chosen.why == "layer by layer, compiled"
    assert len({size * chosen.engine.blocks_at_once(size) for size in chosen.engine.sizes}) == 1
    assert len(chosen.engine._steps) == len(chosen.engine.sizes) == 2


def _wrong_norms(sums, norms):
    return sums, 0.99 * norms


def _wrong_second_block(sums, norms):
    return sums * torch.tensor([1.0, 2.0] + [1.0] * (len(sums) - 2))[:, None], norms


@pytest.mark.parametrize("fault", [_wrong_norms, _wrong_second_block])
def test_a_compiled_step_that_is_wrong_is_not_used(monkeypatch, fault):
    monkeypatch.setattr(ghost, "_compile", lambda step, given: lambda *now: fault(*step(*now)))
    _, model, theta, lot = setting("mlp")
    chosen = choose_engine(model, theta[0], lot, lot_sizes=[4], queries=1, private=True, compile=True)
    assert chosen.why.startswith("layer by layer; not compiled: layer by layer gives other ")
    assert not chosen.engine.compiled


def test_a_compiled_step_that_lets_a_record_harm_others_is_not_used(monkeypatch):
    """Where one norm is not finite, all others of the step are not either."""
    monkeypatch.setattr(ghost, "_compile", lambda step, given: lambda *now: _spreading(*step(*now)))
    _, model, theta, lot = setting("mlp")
    chosen = choose_engine(model, theta[0], lot, lot_sizes=[4], queries=1, private=True, compile=True)
    assert chosen.why == "layer by layer; not compiled: layer by layer gives other norms beside an odd record"


def _spreading(sums, norms):
    return sums, norms if norms.isfinite().all() else torch.full_like(norms, torch.inf)


def test_blocks_of_a_large_model_are_small():
    assert max(choose_sizes([256.0])) == 32
    assert max(choose_sizes([256.0], most=17)) <= 16
    assert choose_sizes([256.0], most=0) == (1,)
    engine = GhostEngine(FlatModel(resnet9((3, 32, 32), 10)), [64.0], make_lot((3, 32, 32), [1]))
    assert 4 * engine.numbers_kept * max(engine.sizes) <= 80 * 2**20


def test_parameters_that_are_used_twice_count_as_kept_for_each_record():
    """Their per-sample gradients are made, which the memory of a step must allow for."""
    kept = {}
    for tied in (False, True):
        module = TiedWords()
        if not tied:
            module.out.weight = nn.Parameter(torch.zeros(7, 6))
        kept[tied] = GhostEngine(FlatModel(module), [4], make_lot(None, [3])).numbers_kept
    assert kept[True] == kept[False] + 7 * 6


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


@pytest.mark.parametrize("poison", [float("inf"), float("nan"), 1e38])
@pytest.mark.parametrize(
    "name", ["mlp", "convnet", "linear over positions", "many channels, few positions", "a layer of one's own"]
)
def test_a_record_that_is_not_finite_counts_as_zero_and_harms_no_other(name, poison):
    module, model, theta, lot = setting(name)
    model, theta = FlatModel(copy.deepcopy(module).float()), theta.float()
    engine = GhostEngine(model, [4], lot)
    lot = lot._replace(inputs=lot.inputs.float())
    clip = torch.full((4,), 1.0, dtype=torch.float64)
    with torch.no_grad():
        whole = engine.clipped_sums(theta, lot, clip)
        lot.inputs[2] = poison
        poisoned = engine.clipped_sums(theta, lot, clip)
        without = [0, 1, 3, 4, *range(5, 15)]
        rest = Lot(lot.inputs[without], lot.targets[without], torch.tensor([0, 4, 4, 5, 14]))
        expected = engine.clipped_sums(theta, rest, clip)
    assert poisoned.sums.isfinite().all()
    if not poisoned.norms[2].isfinite():
        torch.testing.assert_close(poisoned.sums, expected.sums, rtol=1e-5, atol=1e-6)
    assert float((poisoned.sums - expected.sums).norm(dim=1).max()) <= 1.0
    torch.testing.assert_close(poisoned.sums[1:], whole.sums[1:], rtol=1e-5, atol=1e-6)


def test_positions_that_cancel_never_pass_the_bound():
    """Ghost norms of float32 numbers that cancel would come out too small, or even negative, without their slack."""
    torch.manual_seed(0)
    layer = nn.Sequential(
        nn.Linear(40, 40, bias=False), nn.Flatten(), nn.Linear(80, 3, bias=False).requires_grad_(False)
    )
    model = FlatModel(layer)
    theta = model.flatten(layer)[None]
    with torch.no_grad():
        first = torch.randn(64, 1, 40) * 1e3
        inputs = torch.cat([first, first * (1 + 1e-6)], dim=1)
        # opposite output gradients at the two positions, which hold nearly the same inputs
        weight = model.training_module[2].weight
        weight[:, 40:] = -weight[:, :40]
        lot = Lot(inputs, torch.zeros(64, dtype=torch.long), torch.tensor([0, 64]))
        engine = GhostEngine(model, [1], lot)
        engine.sizes = (1,)
        clip = torch.full((1,), 1e-3, dtype=torch.float64)
        exact = FlatModel(copy.deepcopy(layer).double())
        exact.training_module[2].weight.data = weight.double()
        true = VmapEngine(exact).clipped_sums(theta.double(), lot._replace(inputs=inputs.double()), clip)
        found = engine.clipped_sums(theta, lot, clip)
    assert (found.norms >= true.norms * (1 - 1e-6)).all()


def test_the_sum_as_computed_keeps_one_records_influence_within_the_bound():
    """5,000 equal records of norm C: in float32 the sum would move by another amount with one record less."""
    torch.manual_seed(0)
    module = nn.Linear(30, 10)
    model = FlatModel(module)
    lot = Lot(torch.randn(1, 30).expand(5000, 30).clone(), torch.zeros(5000, dtype=torch.long), torch.tensor([0, 5000]))
    less = Lot(lot.inputs[:-1], lot.targets[:-1], torch.tensor([0, 4999]))
    clip = torch.full((1,), 0.1, dtype=torch.float64)
    engine, theta = GhostEngine(model, [5000], lot), model.flatten(module)[None]
    with torch.no_grad():
        moved = engine.clipped_sums(theta, lot, clip).sums - engine.clipped_sums(theta, less, clip).sums
    assert float(moved.norm()) <= 0.1
    assert float(moved.norm()) == pytest.approx(0.1, rel=1e-4)


def test_resnet9_is_taken_layer_by_layer():
    torch.manual_seed(0)
    module = resnet9((3, 8, 8), 5)
    model = FlatModel(module)
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
    torch.testing.assert_close(found.norms, expected.norms, rtol=2e-3, atol=0)
    assert (found.norms >= expected.norms * (1 - 1e-5)).all()
    torch.testing.assert_close(found.sums, expected.sums, rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize("sizes", [(1,), (2,), (3, 8), (1, 2, 4)])
def test_blocks_hold_every_record_once_and_zeros_besides(sizes):
    counts = [5, 0, 1, 8, 3]
    lot = Lot(torch.arange(1, 18.0), torch.arange(1, 18), torch.tensor([0, *counts]).cumsum(0))
    held = {agent: [] for agent in range(5)}
    for part in cut(lot, sizes):
        blocks = part.take(0, len(part.agents) + 2, full=True)
        assert len(blocks.agents) == len(part.agents) + 2
        assert not blocks.keep[len(part.agents) :].any()
        inputs = blocks.inputs.reshape(blocks.keep.shape)
        assert (inputs[~blocks.keep] == 0).all()
        assert (blocks.targets.reshape(blocks.keep.shape) == inputs).all()
        for agent, row, keep in zip(blocks.agents.tolist(), inputs, blocks.keep, strict=True):
            held[agent] += row[keep].tolist()
    for agent, count in enumerate(counts):
        assert sorted(held[agent]) == lot.inputs[int(lot.offsets[agent]) :][:count].tolist()


def test_block_sizes_follow_the_lots():
    assert max(choose_sizes([1.0])) <= 6
    assert all(4 <= size <= 24 for size in choose_sizes([10.0] * 300))
    assert max(choose_sizes([256.0])) == 32


def test_unsupported_says_why():
    _, model, _, lot = setting("parameters at the root")
    with pytest.raises(Unsupported, match="parameters of its own beside its layers"):
        GhostEngine(model, [4], lot)


class Pooled(nn.Module):
    """A layer at many positions, then their mean: positions can cancel each other."""

    def __init__(self, bias):
        super().__init__()
        self.first, self.out = nn.Linear(4, 8, bias=bias), nn.Linear(8, 3).requires_grad_(False)

    def forward(self, x):
        return self.out(self.first(x).mean(1))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("positions", [2, 16, 64])
@pytest.mark.parametrize("size", [1.0, 2.0**10, 2.0**33])
def test_a_record_whose_positions_cancel_in_float32_is_clipped_all_the_same(positions, size, bias):
    """What is lost in one order of adding float32 numbers, and not in another, must not pass the norm."""
    torch.manual_seed(0)
    module = Pooled(bias)
    model = FlatModel(module)
    inputs = torch.full((1, positions, 4), size)
    inputs[0, 0], inputs[0, -1] = 2.0**26 * size, -(2.0**26) * size
    lot = Lot(inputs, torch.tensor([1]), torch.tensor([0, 1]))
    example = Lot(torch.randn(4, positions, 4), torch.tensor([0, 1, 2, 0]), torch.tensor([0, 4]))
    theta, clip = model.flatten(module)[None], torch.full((1,), 0.1, dtype=torch.float64)
    chosen = choose_engine(model, theta[0], example, lot_sizes=[1], queries=1, private=True, compile=False)
    assert isinstance(chosen.engine, GhostEngine)
    with torch.no_grad():
        assert float(chosen.engine.clipped_sums(theta, lot, clip).sums.norm()) <= 0.1


@pytest.mark.parametrize("scale", [1e14, 1e16, 1e18])
def test_squares_that_underflow_do_not_shorten_a_norm(scale):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(40, 40, bias=False), nn.Flatten())
    model = FlatModel(module, loss=lambda outputs, targets: 1e-23 * outputs.sum(1))
    lot = Lot(scale * torch.randn(1, 2, 40), torch.tensor([0]), torch.tensor([0, 1]))
    engine = GhostEngine(model, [1], lot)
    clip = torch.full((1,), 1e-9, dtype=torch.float64)
    with torch.no_grad():
        assert float(engine.clipped_sums(model.flatten(module)[None], lot, clip).sums.norm()) <= 1e-9


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
def test_code_that_mixes_records_only_at_times_is_taken_record_by_record(name, start):
    torch.manual_seed(0)
    module = Mixing(MIXING[name], start)
    model = FlatModel(module)
    lot = make_lot((5,), [7])
    chosen = choose_engine(
        model, model.flatten(module), lot, lot_sizes=[3.0, 40.0], queries=1, private=True, compile=False
    )
    assert isinstance(chosen.engine, VmapEngine), chosen.why


def test_a_loss_that_mixes_records_is_taken_record_by_record():
    def loss(outputs, targets):
        shifted = (outputs - outputs.max()).exp()
        return -(shifted[torch.arange(len(targets)), targets] / shifted.sum(1)).log()

    torch.manual_seed(0)
    module = nn.Linear(5, 3)
    model = FlatModel(module, loss)
    lot = make_lot((5,), [7])
    chosen = choose_engine(model, model.flatten(module), lot, lot_sizes=[4], queries=1, private=True, compile=False)
    assert isinstance(chosen.engine, VmapEngine), chosen.why


def test_a_model_with_frozen_layers_is_not_compiled_and_says_so():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 3))
    model = FlatModel(module)
    lot = make_lot((5,), [7])
    chosen = choose_engine(model, model.flatten(module), lot, lot_sizes=[4], queries=1, private=True, compile=True)
    assert (
        chosen.why == "layer by layer; not compiled: the model has frozen parameters or buffers, which are not compiled"
    )


def test_an_index_that_is_in_no_table_counts_as_zero_and_reads_no_other_agents_row():
    torch.manual_seed(0)
    module = Words().double()
    model = FlatModel(module)
    lot = make_lot(None, [3, 3])
    theta, clip = thetas(model, 2), torch.ones(2, dtype=torch.float64)
    engine = GhostEngine(model, [3], lot)
    with torch.no_grad():
        before = engine.clipped_sums(theta, lot, clip)
        lot.inputs[1, 2] = 99
        after = engine.clipped_sums(theta, lot, clip)
    assert not after.norms[1].isfinite()
    assert torch.equal(after.sums[1], before.sums[1])
    assert float((after.sums[0] - before.sums[0]).norm()) <= 1.0
