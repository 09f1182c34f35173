"""Two modules of one make compute the same function of their parameters; code of a user's own has no make."""

import functools
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from tacit.data import Normalise
from tacit.models import convnet, cross_entropy, logistic, mlp
from tacit.models.make import is_own, make_of


def tied():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    module[1].weight = module[0].weight
    return module


def frozen(value):
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[0].requires_grad_(False).weight.fill_(value)
    module[0].bias.fill_(0.0)
    return module


MAKES = {
    "logistic": lambda: logistic((1, 4, 4), 3),
    "mlp": lambda: mlp((1, 4, 4), 3),
    "convnet": lambda: convnet((1, 28, 28), 10),
    "tied": tied,
    "not tied": lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)),
    "frozen at 1": lambda: frozen(1.0),
    "frozen at 2": lambda: frozen(2.0),
    "groups of 2": lambda: nn.GroupNorm(2, 4),
    "groups of 4": lambda: nn.GroupNorm(4, 4),
    "another ε": lambda: nn.GroupNorm(4, 4, eps=1e-3),
    "float64": lambda: nn.GroupNorm(4, 4).double(),
    "evaluated": lambda: nn.GroupNorm(4, 4).eval(),
    "a slope": lambda: nn.LeakyReLU(0.1),
    "another slope": lambda: nn.LeakyReLU(0.2),
}


def test_a_make_says_what_a_module_computes_and_nothing_else():
    found = {}
    for name, module in MAKES.items():
        one, other = make_of(module()), make_of(module())
        assert one is not None
        assert one == other, f"{name}: parameters that are trained are not part of it"
        found.setdefault(one, []).append(name)
    assert all(len(names) == 1 for names in found.values()), found


class Own(nn.Linear):
    """What is written by a user may do anything."""


def hooked():
    module = nn.Linear(2, 2)
    module.register_forward_hook(lambda *_: None)
    return module


def patched():
    module = nn.Linear(2, 2)
    module.forward = lambda x: x
    return module


@pytest.mark.parametrize("make", [lambda: nn.Sequential(Own(2, 2)), hooked, patched])
def test_code_or_state_of_a_users_own_has_no_make(make):
    assert make_of(make()) is None


@dataclass(frozen=True)
class Foreign:
    scale: float = 1.0

    def __call__(self, x):
        return x * self.scale


def test_functions_of_a_user_are_not_our_own():
    assert all(map(is_own, (None, cross_entropy, torch.nn.functional.mse_loss, Normalise(mean=(0.1,), std=(0.2,)))))
    assert not any(map(is_own, (lambda x: x, Foreign(), frozen, nn.Linear(2, 2))))


def test_numbers_that_numpy_does_not_know_have_a_make():
    module = nn.Linear(2, 2)
    module.register_buffer("scale", torch.tensor(1.5, dtype=torch.bfloat16))
    assert make_of(module) is not None


def test_a_function_that_goes_by_anothers_name_is_not_our_own():
    @functools.wraps(torch.nn.functional.mse_loss)
    def loss(outputs, targets):
        return outputs

    assert not is_own(loss)
