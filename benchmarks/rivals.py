"""The rivals: a loop over agents with Opacus (hooks, and ghost clipping), and the plain loop that promises nothing."""

import copy
import warnings
from collections.abc import Callable, Sequence

import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]
warnings.filterwarnings("ignore", message="Full backward hook is firing")


def opacus_hooks(
    modules: Sequence[nn.Module], batches: Sequence[Batch], *, clip: float, sigma: float
) -> Callable[[], None]:
    """Return one step of every agent with per-sample gradients by hooks."""
    agents = []
    for module, (inputs, _) in zip(modules, batches, strict=True):
        model = GradSampleModule(copy.deepcopy(module))
        plain = torch.optim.SGD(model.parameters(), lr=0.01)
        agents.append(
            (model, DPOptimizer(plain, noise_multiplier=sigma, max_grad_norm=clip, expected_batch_size=len(inputs)))
        )
    loss = nn.CrossEntropyLoss()

    def step() -> None:
        for (model, optimizer), (inputs, targets) in zip(agents, batches, strict=True):
            optimizer.zero_grad()
            loss(model(inputs), targets).backward()
            optimizer.step()

    return step


def opacus_ghost(
    modules: Sequence[nn.Module], batches: Sequence[Batch], *, clip: float, sigma: float
) -> Callable[[], None]:
    """Return one step of every agent with Opacus' ghost clipping: two backward passes."""
    agents = []
    for module, (inputs, _) in zip(modules, batches, strict=True):
        model = GradSampleModuleFastGradientClipping(copy.deepcopy(module), max_grad_norm=clip, use_ghost_clipping=True)
        plain = torch.optim.SGD(model.parameters(), lr=0.01)
        optimizer = DPOptimizerFastGradientClipping(
            plain, noise_multiplier=sigma, max_grad_norm=clip, expected_batch_size=len(inputs)
        )
        agents.append((model, optimizer, DPLossFastGradientClipping(model, optimizer, nn.CrossEntropyLoss())))

    def step() -> None:
        for (model, optimizer, loss), (inputs, targets) in zip(agents, batches, strict=True):
            optimizer.zero_grad()
            loss(model(inputs), targets).backward()
            optimizer.step()

    return step


def non_private(modules: Sequence[nn.Module], batches: Sequence[Batch]) -> Callable[[], None]:
    """Return one ordinary step of every agent: no clipping, no noise."""
    copies = [copy.deepcopy(module) for module in modules]
    agents = [(model, torch.optim.SGD(model.parameters(), lr=0.01)) for model in copies]
    loss = nn.CrossEntropyLoss()

    def step() -> None:
        for (model, optimizer), (inputs, targets) in zip(agents, batches, strict=True):
            optimizer.zero_grad()
            loss(model(inputs), targets).backward()
            optimizer.step()

    return step
