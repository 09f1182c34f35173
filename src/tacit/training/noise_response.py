"""What a rule makes of noise on its graph: how far the agents' own noise and their masks move an agent's last model.

The rule is played with noise for gradients and nothing else, in many coordinates at once. Rules that average gradients
linearly take masks out of the average, and keep them in the differences between agents as long as mixing takes; a rule that is not
linear in its gradients, such as one with Adam inside, has no such response.
"""

from typing import Any

import torch
from torch import Tensor

from tacit.algorithms import Algorithm
from tacit.errors import NotLinear
from tacit.networks import StackedNetwork, Topology
from tacit.privacy.cancelling import Response
from tacit.privacy.keys import Keys
from tacit.training.rounds import Play
from tacit.training.schedules import Schedule, only_rows

_DRAWS = 200  # coordinates: the mean of so many squares is right to about a tenth
_UNLIKE, _TOLERANCE = 1000.0, 1e-6


def noise_response(
    algorithm: Algorithm[Any], topology: Topology, keys: Keys, rounds: int, schedule: Schedule, seed: int
) -> Response | None:
    """Return what the rule makes of unit noise, or None where it is not linear in its gradients."""
    agents = topology.agents
    theta = torch.zeros(agents, 3 * _DRAWS, dtype=torch.float64)
    try:
        play = Play(
            algorithm,
            theta,
            rounds=rounds,
            schedule=only_rows(schedule, range(agents), _rows_of(schedule, rounds, agents)),
            network=StackedNetwork(topology, dtype=torch.float64),
            oracle=_KnownNoise(keys, seed),
            seed=seed,
            public_loss=_no_loss,
        )
        while play.round < rounds:
            play.advance()
    except NotLinear:
        return None
    own, masks, both = play.state.theta.split(_DRAWS, dim=1)
    expected = _UNLIKE * own + masks
    if not bool(((both - expected).abs() <= _TOLERANCE * expected.abs().amax()).all()):
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

    def __init__(self, keys: Keys, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        low, high = (torch.tensor(ends, dtype=torch.int64) for ends in zip(*keys.all_pairs, strict=True))
        self._low, self._high = low, high

    def gradient(self, theta: Tensor) -> Tensor:
        shape = len(theta), _DRAWS
        own = torch.randn(shape, dtype=torch.float64, generator=self._generator)
        drawn = torch.randn(len(self._low), _DRAWS, dtype=torch.float64, generator=self._generator)
        masks = torch.zeros_like(own).index_add_(0, self._low, drawn).index_add_(0, self._high, drawn, alpha=-1)
        return torch.cat([own, masks, _UNLIKE * own + masks], dim=1)

    def query(self, per_sample: Any, *public: Tensor, width: int | None = None) -> Tensor:
        raise NotLinear
