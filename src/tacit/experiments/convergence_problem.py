"""A strongly convex problem with a known optimum, and runs on it recorded round by round.

The loss of a record is that of logistic regression plus λ‖θ‖²/2, so that every agent's objective is strongly convex. Agents'
records have means of their own, so that their own optima differ. Everything is in float64; the optimum is by L-BFGS.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from tacit import DSGD, DSGT, DiNNO, Fast, NoPrivacy, Plain, Privacy, Session, Training
from tacit.algorithms import Algorithm
from tacit.data import AgentData
from tacit.graphs import build
from tacit.training.runtimes import Stacked

RULES: dict[str, tuple[Algorithm[Any], float]] = {
    "dsgd": (DSGD(), 0.5),
    "dsgt": (DSGT(), 0.5),
    "dinno": (DiNNO(rho=0.2, rho_growth=1.0, inner_steps=2, step=Plain()), 0.3),
}
"""Each with its first step size. DiNNO takes plain steps: Adam from rest does not settle at a point."""
CLIP = 5.0  # no gradient is as long: records have norm 1 at most, and λ‖θ‖ stays below 1
LEAST_NOISE = 0.02  # stands for no noise where records are clipped; the library does not clip without noise
RECORDS, WIDTH, PENALTY = 40, 10, 0.1
_HALF = 20  # rounds after which a decaying step begins to be much smaller


class RidgeLogistic(nn.Module):
    """A linear score, and λ‖θ‖²/2 beside it for the loss to add."""

    def __init__(self, width: int, penalty: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, dtype=torch.float64))
        self.penalty = penalty

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the two numbers for each record."""
        score: Tensor = inputs @ self.weight
        return torch.stack([score, (0.5 * self.penalty * self.weight.square().sum()).expand_as(score)], dim=-1)


def ridge_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return log(1 + exp(-target·score)) + λ‖θ‖²/2 for targets of ±1."""
    return nn.functional.softplus(-targets * outputs[:, 0]) + outputs[:, 1]


@dataclass(frozen=True, kw_only=True)
class Decaying:
    """η₀/(1 + k/20)^power: summable for a power above 1, and as the theorem asks above 2."""

    start: float
    power: float

    def __call__(self, round: int, rounds: int) -> float:
        """Return the step size at a round."""
        return self.start / (1 + round / _HALF) ** self.power


POWERS = {"constant": 0.0, "summable": 2.1, "harmonic": 1.0}


@cache
def problem(agents: int) -> tuple[AgentData, Tensor]:
    """Return what the agents hold, and the optimum of all of it."""
    rng = np.random.default_rng(0)
    true, parts = 3 * rng.normal(size=WIDTH), []
    for _ in range(agents):
        inputs = rng.normal(size=(RECORDS, WIDTH)) + 0.5 * rng.normal(size=WIDTH)
        inputs /= np.maximum(1.0, np.linalg.norm(inputs, axis=1, keepdims=True))
        targets = np.where(rng.random(RECORDS) < 1 / (1 + np.exp(-inputs @ true)), 1.0, -1.0)
        parts.append((torch.from_numpy(inputs), torch.from_numpy(targets)))
    data = AgentData.from_parts(parts, name="logistic problem")
    return data, _optimum(data)


def _optimum(data: AgentData) -> Tensor:
    inputs, targets = data.dataset.train.table, data.dataset.train.targets

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        theta = torch.from_numpy(values).clone().requires_grad_()
        loss = nn.functional.softplus(-targets * (inputs @ theta)).mean() + 0.5 * PENALTY * theta.square().sum()
        (gradient,) = torch.autograd.grad(loss, theta)
        return float(loss.detach()), gradient.numpy()

    options = {"ftol": 1e-16, "gtol": 1e-12, "maxiter": 5000}
    return torch.from_numpy(
        minimize(objective, np.zeros(WIDTH), jac=True, method="L-BFGS-B", options=options).x  # type: ignore[call-overload]
    )


@dataclass(frozen=True, kw_only=True)
class Course:
    """θ after every round, [rounds, trials, agents, params], and the share of records that were clipped."""

    theta: Tensor
    clipped: float


def watch(
    algorithm: str,
    *,
    agents: int,
    rounds: int,
    steps: str = "constant",
    trials: int = 1,
    sigma: float = 0.0,
    clip: float | None = None,
    lot: float | None = None,
    seed: int = 0,
) -> Course:
    """Run one rule on a ring of agents, with noise of σ or clipping where given, and keep every model."""
    data, _ = problem(agents)
    rule, first = RULES[algorithm]
    lot = RECORDS if lot is None else lot
    private, watched = sigma > 0 or clip is not None, clip is not None and clip < CLIP
    training = Training(
        algorithm=rule,
        model=RidgeLogistic(WIDTH, PENALTY),
        loss=ridge_loss,
        data=data,
        graph=build("ring", agents),
        privacy=Privacy(noise_multiplier=sigma or LEAST_NOISE, delta=1e-5, clip=clip or CLIP, lot_size=lot)
        if private
        else NoPrivacy(lot_size=lot),
        rounds=rounds,
        lr=Decaying(start=first, power=POWERS[steps]),
        seed=seed,
        sources=Fast(seed),
        private_diagnostics=watched,
        evaluate_every=rounds,
        compile=False,
    )
    with Session(training, Stacked(trials)) as session:
        course = []
        while not session.finished:
            session.advance()
            course.append(session.state.theta.unflatten(0, (trials, -1)).clone())
        clipped = [share for query in session.diagnostics or () for share in query.clipped_share]
    theta = torch.stack(course)
    longest = 1 + PENALTY * float(theta.norm(dim=-1).max())  # of any gradient, as no record is longer than 1
    if not watched and longest >= CLIP:
        raise RuntimeError(f"gradients may be as long as {longest:g}, so that clipping at {CLIP:g} is not inactive")
    return Course(theta=theta, clipped=float(np.mean(clipped)) if clipped else 0.0)


@cache
def noiseless(algorithm: str, agents: int, rounds: int, steps: str) -> Tensor:
    """Return θ after every round of the run with full lots and neither clipping nor noise: [rounds, agents, params]."""
    return watch(algorithm, agents=agents, rounds=rounds, steps=steps).theta[:, 0]


def distance(one: Tensor, other: Tensor) -> Tensor:
    """Return the root mean square over agents of the distance between their models."""
    return (one - other).square().sum(-1).mean(-1).sqrt()
