"""The carried steps against torch's own optimisers."""

import pytest
import torch

import tacit
from tacit.errors import InvalidInput


@pytest.mark.parametrize(
    ("step", "optimiser"),
    [
        (tacit.Plain(), lambda p: torch.optim.SGD(p, lr=0.1)),
        (tacit.Momentum(0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
        (tacit.Adam(0.8, 0.99, 1e-6), lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.8, 0.99), eps=1e-6)),
    ],
    ids=["plain", "momentum", "adam"],
)
def test_steps_like_torch_on_stacked_agents(step, optimiser):
    generator = torch.Generator().manual_seed(0)
    gradients = torch.randn(6, 3, 4, generator=generator, dtype=torch.float64)
    theta = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    expected = theta.clone().requires_grad_()
    torch_step = optimiser([expected])
    state = step.init(theta)
    for gradient in gradients:
        direction, state = step.step(state, gradient)
        theta = theta - 0.1 * direction
        expected.grad = gradient.clone()
        torch_step.step()
    torch.testing.assert_close(theta, expected.detach(), rtol=0, atol=1e-12)


def test_fresh_adam_with_one_step_is_sign_descent():
    gradient = torch.tensor([[3.0, -0.2, 1e-3]])
    direction, _ = tacit.Adam().step(tacit.Adam().init(gradient), gradient)
    torch.testing.assert_close(direction, gradient.sign(), rtol=1e-4, atol=0)


@pytest.mark.parametrize("make", [lambda: tacit.Momentum(1.0), lambda: tacit.Adam(-0.1), lambda: tacit.Adam(eps=0)])
def test_refuses_values_out_of_range(make):
    with pytest.raises(InvalidInput, match="must"):
        make()
