"""What curious agents can reconstruct of another agent's noisy gradients, from where they are in the graph.

Everything they see is a linear map m = B·g̃ of everyone's answers, apart from what the public starts add. With noise of covariance S on
the answers, what they see has the Fisher information H = Bᵢᵀ(BSBᵀ)⁺Bᵢ about the answers of agent i, exactly, in units of σ² for a stated
σ. With independent noise it lies between 0 (nothing) and I (every answer, as the target knows it). The statistic to use is s = R·seen: for
a target whose record adds r·b_k to its k-th answer along one direction, s is sufficient and is N(r·Hb, σ²H).

Where agents share masks, S has them too, except those that the observers know and subtract first.

Other gradients along that direction are assumed known or 0, even if they change with θ; where answers are exact, that does not matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from tacit.errors import InvalidInput

# Queries belong to one block where |H| between them exceeds this; lots are summed over in blocks of up to this many queries.
_LINKED, _SUMMED = 1e-6, 10


class ViewRow(NamedTuple):
    """One vector that is seen: in a slot of an exchange, a final model, or an observer's own answer to a query."""

    source: str  # "message", "model" or "answer"
    number: int
    slot: int
    agent: int


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """What observers see: `matrix` maps answers to it, ordered by agent and query; `starts` maps the starts.

    Members are the observers and their neighbours; slots are the numbers of vectors in each exchange. For the rest see
    `Responses.view`, which makes views.
    """

    observers: tuple[int, ...]
    members: tuple[int, ...]
    slots: tuple[int, ...]
    final: bool
    answers: bool
    matrix: Float[Tensor, "seen answers"]
    starts: Float[Tensor, "seen agents"]
    noise: Float[Tensor, " agents"]
    covariance: Float[Tensor, "agents agents"]
    rounding: float
    chance: bool

    @property
    def agents(self) -> int:
        """The number of agents."""
        return self.starts.shape[1]

    @property
    def queries(self) -> int:
        """The number of answers of each agent."""
        return self.matrix.shape[1] // self.agents

    @property
    def rows(self) -> tuple[ViewRow, ...]:
        """What each row of the matrix is."""
        messages = [(number, slot) for number, slots in enumerate(self.slots) for slot in range(slots)]
        rows = [ViewRow("message", number, slot, agent) for number, slot in messages for agent in self.members]
        rows += [ViewRow("model", 0, 0, agent) for agent in self.members if self.final]
        rows += [
            ViewRow("answer", k, 0, agent) for k in range(self.queries) for agent in self.observers if self.answers
        ]
        return tuple(rows)

    def arrange(
        self,
        messages: Sequence[Sequence[Float[Tensor, "stack params"]]],
        starts: Float[Tensor, "stack params"],
        *,
        models: Float[Tensor, "stack params"] | None = None,
        answers: Sequence[Float[Tensor, "stack params"]] | None = None,
    ) -> Float[Tensor, "trials seen params"]:
        """Return the rows of a run, from its taps, final models and answers, minus what the public starts add.

        Trials are side by side on the agents' axis. All tensors may be projected on a direction first: θ·u for θ.
        """
        if tuple(len(sent) for sent in messages) != self.slots:
            raise InvalidInput(
                f"{len(messages)} exchanges do not match the {len(self.slots)} of this view, vector by vector"
            )
        if self.final != (models is not None) or self.answers != (answers is not None):
            raise InvalidInput(
                f"this view has final={self.final} and answers={self.answers}; give models and answers accordingly"
            )
        if self.answers and len(answers or ()) != self.queries:
            raise InvalidInput(f"{len(answers or ())} answers were given for {self.queries} queries")
        if starts.shape[0] % self.agents or (self.chance and len(starts) > self.agents):
            raise InvalidInput(
                f"starts has {len(starts)} rows for {self.agents} agents; it must have one for each agent of each trial"
                + (", and only one trial, since the rule draws public randomness" if self.chance else "")
            )

        def stacked(tensor: Tensor, agents: Sequence[int]) -> Tensor:
            return tensor.unflatten(0, (-1, self.agents))[:, agents].to(torch.float64)

        parts = [stacked(tensor, self.members) for sent in messages for tensor in sent]
        parts += [] if models is None else [stacked(models, self.members)]
        parts += [stacked(answer, self.observers) for answer in answers or ()]
        return torch.cat(parts, dim=1) - self.starts @ stacked(starts, range(self.agents))

    def information(self, target: int) -> Float[Tensor, "queries queries"]:
        """Return the Fisher information H = Bᵀ Σ⁻¹ B on the target's answers, in units of its `noise`.

        B is the target's part of the matrix; Σ is the covariance that all agents' noise and the rounding make.
        """
        _, values, right = self._parts
        kept = values.square() / (values.square() + self.rounding**2)
        mine = self._whitened(target) @ right.T
        return (mine * kept) @ mine.T

    def recover(self, target: int) -> Float[Tensor, "queries seen"]:
        """Return weights R: R @ seen is sufficient for the target's answers, and equal to them where these are seen exactly."""
        return self.noise[self._index(target)] * self._weigh(self._whitened(target))

    def rebuild(self, combinations: Float[Tensor, "wanted answers"]) -> Float[Tensor, "wanted seen"]:
        """Return weights with which the rows best reconstruct linear combinations of all agents' answers."""
        return self._weigh(self._times_factor(combinations))

    def exact(self, target: int, *, tolerance: float = 1e-6) -> Bool[Tensor, " queries"]:
        """Return which answers are reconstructed, up to `tolerance` of the noise's variance."""
        return self.information(target).diagonal() >= 1 - tolerance

    def share(self, target: int) -> float:
        """Return trace(H)/queries: the average share of the target's answers that is seen, from 0 to 1."""
        return float(self.information(target).trace()) / self.queries

    def sum_share(self, target: int) -> float:
        """Return 1ᵀH1/queries: the share of the sum of the target's answers that is seen, from 0 to 1.

        A record adds to its agent's answers in all rounds, so the sum may reveal it where no single answer does.
        """
        return float(self.information(target).sum().clamp(min=0)) / self.queries

    def shift(self, target: int, *, rate: float, noise: float, size: float = 1.0) -> float:
        """Return q·r·√(1ᵀH1)/σ: how many standard deviations a record moves the best linear statistic, on average.

        It is q·r·√queries/σ where all answers are exact.
        """
        _check(rate, noise, size)
        return rate * size * float(self.information(target).sum().clamp(min=0).sqrt()) / noise

    def scores(
        self, target: int, seen: Float[Tensor, "... seen"], *, rate: float, noise: float, size: float = 1.0
    ) -> Float[Tensor, "..."]:
        """Return the log-likelihood ratio of the record being among the target's data, against its absence.

        Rows are projected on the record's direction and scaled so that the target's answers are r·b_k + σ·ξ_k, with
        b_k ~ Bernoulli(q) if the record is there and 0 if not. Exact for blocks of H of at most ten queries; in longer blocks the
        off-diagonal is ignored, so it is not a likelihood, but it ranks trials almost as well.
        """
        _check(rate, noise, size)
        return log_ratio(self.information(target), seen @ self.recover(target).T, rate=rate, noise=noise, size=size)

    @cached_property
    def _factor(self) -> Float[Tensor, "agents agents"]:
        """F, with S = FFᵀ the covariance of the agents' noise. It is the same for every query, and queries are independent."""
        factor: Tensor = torch.linalg.cholesky(self.covariance)
        return factor

    def _times_factor(self, rows: Float[Tensor, "rows answers"]) -> Float[Tensor, "rows answers"]:
        """Return rows·(F ⊗ I): combinations of answers as combinations of independent standard normals."""
        return torch.einsum("raq,ab->rbq", rows.unflatten(1, (self.agents, self.queries)), self._factor).flatten(1)

    def _whitened(self, target: int) -> Float[Tensor, "queries answers"]:
        """Return the directions, in standard normals, along which a record of the target moves all answers, times its noise."""
        place, unit = self._index(target), torch.zeros(self.agents, 1, dtype=torch.float64)
        unit[place] = self.noise[place]
        column = torch.linalg.solve_triangular(self._factor, unit, upper=False)
        return torch.kron(column.T, torch.eye(self.queries, dtype=torch.float64))

    def _weigh(self, wanted: Float[Tensor, "wanted answers"]) -> Float[Tensor, "wanted seen"]:
        """Return weights with which the rows best reconstruct combinations of standard normals."""
        left, values, right = self._parts
        inverse = values / (values.square() + self.rounding**2)
        return ((wanted @ right.T) * inverse) @ left.T / self._sizes

    @cached_property
    def _sizes(self) -> Float[Tensor, " seen"]:
        """The noise in each row; 1 where there is none."""
        sizes = self._times_factor(self.matrix).norm(dim=1)
        return torch.where(sizes > 0, sizes, 1.0)

    @cached_property
    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """The singular value decomposition of the matrix in units of the noise, each row scaled to norm 1."""
        scaled = self._times_factor(self.matrix) / self._sizes[:, None]
        left, values, right = torch.linalg.svd(scaled, full_matrices=False)
        return left, values, right

    def _index(self, target: int) -> int:
        if target not in range(self.agents):
            raise InvalidInput(f"target is {target!r}; it must be an agent, from 0 to {self.agents - 1}")
        return target


def log_ratio(
    information: Float[Tensor, "queries queries"],
    recovered: Float[Tensor, "... queries"],
    *,
    rate: float,
    noise: float,
    size: float = 1.0,
) -> Float[Tensor, "..."]:
    """Return log E_b exp((r·bᵀs − r²·bᵀHb/2)/σ²), block by block of H; see `View.scores`."""
    _, labels = connected_components((information.abs() > _LINKED).numpy(), directed=False)
    total = torch.zeros(recovered.shape[:-1], dtype=torch.float64)
    for label in range(max(labels) + 1):
        block = torch.from_numpy(labels == label).nonzero().flatten()
        for queries in [block] if len(block) <= _SUMMED else block.split(1):
            total += _sum_lots(information[queries][:, queries], recovered[..., queries], rate, noise, size)
    return total


def _sum_lots(block: Tensor, recovered: Tensor, rate: float, noise: float, size: float) -> Tensor:
    """Sum over all sets of queries whose lots may have contained the record."""
    either = torch.tensor([0.0, 1.0], dtype=torch.float64)
    members = torch.cartesian_prod(*[either] * len(block)).reshape(-1, len(block))
    drawn = members.sum(dim=1)
    chance = torch.special.xlogy(drawn, rate) + torch.special.xlog1py(len(block) - drawn, -rate)
    power = ((members @ block) * members).sum(dim=1)
    return torch.logsumexp(chance + (size * recovered @ members.T - size**2 * power / 2) / noise**2, dim=-1)


def _check(rate: float, noise: float, size: float) -> None:
    if not 0 < rate <= 1 or not noise > 0 or not 0 < size <= 1:
        raise InvalidInput(f"rate {rate} and size {size} must lie in (0, 1], and noise {noise} must be positive")
