"""What a rule makes of noise on its graph: how far the agents' own noise and their masks move an agent's last model.

The rule is played with noise for gradients and nothing else, in many coordinates at once. In rules that average
gradients linearly, masks cancel in the average and stay in the differences between agents until mixing removes them. A rule that is not
linear in its gradients, such as one with Adam inside, has no such response.

A loss also makes agents forget noise, in their average, where masks save most, and in their differences. A rule that removes differences
no faster than a loss removes noise, as DiNNO with a weak ρ, gains little from masks, and noise alone does not show that. So the rule is
played once more on a quadratic loss, with a curvature in the middle of those that the run's steps can descend.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from tacit.algorithms import DSGT, Algorithm
from tacit.errors import NotLinear
from tacit.networks import StackedNetwork, Topology
from tacit.privacy.cancelling import Response, least_deviation
from tacit.privacy.keys import Keys
from tacit.privacy.votes import Ballot
from tacit.ties import first_largest
from tacit.training.rounds import Play
from tacit.training.schedules import Schedule, only_rows

_DRAWS = 200  # coordinates: the mean of this many squares is right to about a tenth
_UNLIKE, _TOLERANCE = 1000.0, 1e-6
_LITTLE = 0.8  # of the mean square that noise without masks leaves: where masks leave more, they gain little
_MORE = (
    0.05  # than DSGT leaves: where that is no better, the graph or the number of rounds is the reason, and not the rule
)


class Expected(NamedTuple):
    """The response by which the size of masks is chosen and, if the rule gains little, what share of the mean square deviation masks leave.

    left: in models of the rule, with a loss; None if the rule gains enough.
    by_dsgt: in models of DSGT, with the same loss and steps on the same graph.
    """

    response: Response
    left: float | None = None
    by_dsgt: float = 0.0


def expected_response(
    algorithm: Algorithm[Any],
    topologies: Sequence[Topology],
    keys: Keys,
    removed: int,
    rounds: int,
    schedule: Schedule,
    seed: int,
) -> Expected | None:
    """Return how the rule responds to noise on the graph where masks disturb most; None if it is not linear in its gradients.

    That is its response to noise alone. Where masks against `removed` curious agents would gain little with a loss, and more with DSGT, it is
    the response with that loss.
    """

    def worst(rule: Algorithm[Any], curvature: float) -> Response | None:
        found = [
            noise_response(rule, topology, keys, rounds, schedule, seed, curvature=curvature) for topology in topologies
        ]
        known = [response for response in found if response is not None]
        return known[first_largest(each.masks / each.own for each in known)] if len(known) == len(found) else None

    def share_left(response: Response | None) -> float:
        """Return the share of the mean square deviation that the best masks leave for equal agents; 0 where that is not known."""
        return 0.0 if response is None else least_deviation([1.0] * keys.agents, keys, removed, response)

    alone = worst(algorithm, 0.0)
    if alone is None:
        return None
    curvature = _middle_curvature(schedule, rounds)
    descending = worst(algorithm, curvature)
    left = share_left(descending)
    if descending is None or left <= _LITTLE:
        return Expected(alone)
    by_dsgt = share_left(worst(DSGT(), curvature))
    return Expected(descending, left, by_dsgt) if left > by_dsgt + _MORE else Expected(alone)


def _middle_curvature(schedule: Schedule, rounds: int) -> float:
    """Return the geometric mean of the least curvature that the steps descend, 1/Ση, and the largest that they bear well, 1/max η."""
    steps = [float(torch.as_tensor(schedule(each, rounds), dtype=torch.float64).mean()) for each in range(rounds)]
    return 1 / math.sqrt(sum(steps) * max(steps))


def noise_response(
    algorithm: Algorithm[Any],
    topology: Topology,
    keys: Keys,
    rounds: int,
    schedule: Schedule,
    seed: int,
    *,
    curvature: float = 0.0,
) -> Response | None:
    """Return what the rule makes of unit noise, or None where it is not linear in its gradients.

    With a `curvature` c, every agent's loss is c/2·|θ|²; None also if that is too much for the rule's steps, or if the
    rule asks for something other than gradients.
    """
    agents = topology.agents
    theta = torch.zeros(agents, 3 * _DRAWS, dtype=torch.float64)
    try:
        play = Play(
            algorithm,
            theta,
            rounds=rounds,
            schedule=only_rows(schedule, range(agents), _rows_of(schedule, rounds, agents)),
            network=StackedNetwork(topology, dtype=torch.float64),
            oracle=_KnownNoise(keys, seed, curvature),
            seed=seed,
            public_loss=_no_loss,
        )
        while play.round < rounds:
            play.advance()
    except NotLinear:
        return None
    own, masks, both = play.state.theta.split(_DRAWS, dim=1)
    expected = _UNLIKE * own + masks
    if not bool(play.state.theta.isfinite().all()) or not bool(
        ((both - expected).abs() <= _TOLERANCE * expected.abs().amax()).all()
    ):
        return None
    return Response(own=float(own.square().mean()), masks=float(masks.square().mean()))


def _rows_of(schedule: Schedule, rounds: int, agents: int) -> int:
    """Return for how many rows a schedule gives step sizes: all trials', where it gives one for each."""
    lr = schedule(0, rounds)
    return lr.numel() if isinstance(lr, Tensor) and lr.numel() > 1 else agents


def _no_loss(theta: Tensor) -> Tensor:
    raise NotLinear


class _KnownNoise:
    """Answers with own noise in the first third of all coordinates, masks in the second, and both, of unlike sizes, in the third."""

    def __init__(self, keys: Keys, seed: int, curvature: float) -> None:
        self._curvature = curvature
        self._generator = torch.Generator().manual_seed(seed)
        low, high = (torch.tensor(ends, dtype=torch.int64) for ends in zip(*keys.all_pairs, strict=True))
        self._low, self._high = low, high

    def gradient(self, theta: Tensor) -> Tensor:
        shape = len(theta), _DRAWS
        own = torch.randn(shape, dtype=torch.float64, generator=self._generator)
        drawn = torch.randn(len(self._low), _DRAWS, dtype=torch.float64, generator=self._generator)
        masks = torch.zeros_like(own).index_add_(0, self._low, drawn).index_add_(0, self._high, drawn, alpha=-1)
        noise = torch.cat([own, masks, _UNLIKE * own + masks], dim=1)
        return noise + self._curvature * theta if self._curvature else noise

    def vote(self, theta: Tensor, ballot: Ballot) -> NoReturn:
        raise NotLinear

    def query(self, per_sample: Any, *public: Tensor, width: int | None = None) -> Tensor:
        if (public[0].shape[1] if width is None else width) != 3 * _DRAWS or self._curvature:
            raise NotLinear
        return self.gradient(public[0])  # the noise of an answer is the same, whatever was asked
