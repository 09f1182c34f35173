import pytest
import torch
from torch import nn

from tacit.errors import InvalidInput, ModelError
from tacit.models import FlatModel, build, convnet, mlp, resnet9


def test_the_papers_convnet_has_38424_parameters():
    assert FlatModel(convnet((1, 32, 32), 10)).size == 38_424


def test_resnet9_replaces_batch_norm_by_group_norm():
    kinds = {type(layer) for layer in resnet9((3, 32, 32), 100).modules()}
    assert nn.GroupNorm in kinds
    assert nn.BatchNorm2d not in kinds


def test_outputs_at_a_vector_are_the_modules_own():
    module = mlp((6,), 3)
    model = FlatModel(module)
    x = torch.randn(4, 6)
    theta = model.flatten(module)
    torch.testing.assert_close(model.outputs(theta, x), module(x))
    torch.testing.assert_close(model.module(theta)(x), module(x))


def test_frozen_parameters_are_not_in_the_vector():
    module = mlp((6,), 3, hidden=(5,))
    module[1].requires_grad_(False)
    model = FlatModel(module)
    assert model.size == 5 * 3 + 3
    x = torch.randn(2, 6)
    torch.testing.assert_close(model.outputs(model.flatten(module), x), module(x))


def test_the_users_module_is_not_touched():
    module = mlp((6,), 3).eval()
    before = module.state_dict()
    model = FlatModel(module)
    model.module(torch.zeros(model.size))
    assert not module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: FlatModel(nn.ReLU()), ModelError, "nothing to train"),
        (
            lambda: FlatModel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())),
            ModelError,
            "use float32 for all of them",
        ),
        (lambda: FlatModel(nn.Linear(2, 2).bfloat16()), ModelError, "use float32 for all of them"),
        (lambda: convnet((5, 5), 3), ModelError, r"channels, height, width"),
        (lambda: resnet9((3, 4, 4), 3), ModelError, "at least 8×8"),
        (lambda: build("resnet", (3, 8, 8), 3), InvalidInput, "did you mean 'resnet9'"),
        (
            lambda: FlatModel(nn.Linear(2, 2), nn.functional.cross_entropy).losses(
                torch.zeros(6), torch.zeros(3, 2), torch.zeros(3, dtype=torch.long)
            ),
            ModelError,
            "one value per record, for example with reduction='none'",
        ),
    ],
)
def test_refuses_what_cannot_be_trained(call, error, message):
    with pytest.raises(error, match=message):
        call()
