"""Bare noise: the real oracle asked about records without a gradient, with the noise that a run of these settings has.

Own noise, masks, bands and the grid are those of the run's plan. What the observer of its ε sees is turned into standard normals: bands are
undone, since Cy = Z where all sums are zero; curious agents subtract the masks that they share, and whiten the rest with the stated covariance
Σ = diag(a²) + b²·Lap; discrete numbers are spread within their probability.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import networkx as nx
import numpy as np
import torch
from jaxtyping import Float

from tacit.audit.attacks.banded import band_matrix
from tacit.audit.attacks.coalition import worst_coalition
from tacit.audit.attacks.known_masks import MaskRecorder, hidden_covariance, known_pairs
from tacit.audit.attacks.worlds import linear_model
from tacit.audit.detectors.made_up import ask_oracle
from tacit.audit.noise.discrete_scores import scores_of_agent
from tacit.data import AgentData
from tacit.errors import InvalidInput
from tacit.privacy import Cancelling, Plan, Privacy
from tacit.privacy.noise_kinds import Masks
from tacit.ties import first_smallest
from tacit.training.settings import Training

_MOST_AGENTS = 12  # without masks; masks are those of all agents
_LOT, _PER_LOT = 2.0, 2  # of the smallest lot; records for each that is expected in a lot
_MOST_WIDTH, _MOST_NUMBERS, _MOST_INPUTS = 2**16, 2**23, 2**24
_MOST_MASKS = 2**25  # numbers of all masks of all queries
_LEAST_QUERIES, _MOST_QUERIES = 8, 64


@dataclass(frozen=True, kw_only=True, eq=False)
class CoalitionView:
    """What curious agents know of noise with masks, and what protects the agent with the highest ε from them.

    total: the sum of the noise of all who are not curious, as standard normals if all is as stated.
    protects: the σ that protects the target from this coalition, by the covariance of what it does not know.
    claimed: the σ that its ε is derived from.
    """

    curious: tuple[int, ...]
    target: int
    total: Float[np.ndarray, "queries width"]
    protects: float
    claimed: float


@dataclass(frozen=True, kw_only=True, eq=False)
class BareNoise:
    """The noise of answers, as standard normals if all is as stated. With masks, it is what the other agents' noise leaves of an agent's.

    exact: whether the model computes in float64, so that low bits are released.
    apart: the same, made independent of the other agents' noise; None where it is independent.
    answers: as they left the oracle, without bands, for the search for a grid; None where `noise` is on it.
    agents: whose noise it is; None for the first ones.
    view: what curious agents know, where there are masks.
    """

    noise: Float[np.ndarray, "agents queries width"]
    sigmas: tuple[float, ...]
    exact: bool
    apart: Float[np.ndarray, "agents queries width"] | None = None
    answers: Float[np.ndarray, "agents queries width"] | None = None
    agents: tuple[int, ...] | None = None
    view: CoalitionView | None = None


def read_noise(training: Training, plan: Plan, width: int, dtype: torch.dtype, queries: int | None = None) -> BareNoise:
    """Ask the oracle for bare noise of the plan's kind."""
    agents = plan.agents if plan.masks is not None else min(plan.agents, _MOST_AGENTS)
    lots = [_LOT] * agents if plan.masks is None else [_LOT * lot / min(plan.lot_sizes) for lot in plan.lot_sizes]
    width = _fitting_width(plan, agents, max(lots), width)
    queries = queries or int(min(max(_MOST_NUMBERS // (agents * width), _LEAST_QUERIES), _MOST_QUERIES))
    queries = max(queries, 2 * len(plan.bands))
    sizes = [math.ceil(max(_PER_LOT, len(plan.bands)) * lot) for lot in lots]
    curious = () if plan.masks is None else _choose_curious(plan)
    known = frozenset() if plan.masks is None else known_pairs(plan.masks, curious)
    recorder = MaskRecorder(training.chosen_sources, known)
    sources = training.sources if plan.masks is None else recorder
    given, asked = ask_oracle(
        replace(training, sources=sources),
        model=partial(_wide_model, width, dtype),
        data=AgentData.from_parts(
            [(torch.zeros(size, 1), torch.zeros(size)) for size in sizes],
            name="bare noise",
            prepare=partial(_without_gradient, width),
        ),
        privacy=_same_noise(plan, agents, lots),
        queries=queries,
        planned=plan.queries if plan.bands else queries,  # coefficients depend on it
    )
    answers = undo_bands(given.numpy(), asked.bands)
    units = np.array([clip / lot for clip, lot in zip(asked.clips, asked.lot_sizes, strict=True)])[:, None, None]
    sigmas, exact = asked.noise_multipliers, dtype == torch.float64
    scaled = answers / (np.array(sigmas)[:, None, None] * units)
    if asked.rounding is not None:
        each = enumerate(answers / units)
        scores = [scores_of_agent(noise, asked, agent, np.random.default_rng(agent)) for agent, noise in each]
        return BareNoise(noise=np.stack(scores), sigmas=sigmas, exact=exact, answers=scaled)
    if asked.masks is None:
        return BareNoise(noise=scaled, sigmas=sigmas, exact=exact)
    honest = [agent for agent in range(agents) if agent not in curious]
    covariance = hidden_covariance(asked.masks, known)[honest][:, honest].numpy()
    inverse, units = np.linalg.inv(covariance), units[honest]
    known_masks = recorder.recorded(asked.masks, answers.shape[2]).numpy() if known else 0.0
    hidden = (answers - known_masks)[honest]
    values, vectors = np.linalg.eigh(covariance)
    alone = 1 / np.sqrt(np.diag(inverse))
    return BareNoise(
        noise=np.einsum("ij,jqw->iqw", inverse, hidden) * alone[:, None, None],
        sigmas=tuple((alone / units[:, 0, 0]).tolist()),
        exact=exact,
        apart=np.einsum("ij,jqw->iqw", vectors / np.sqrt(values) @ vectors.T, hidden),
        answers=scaled[honest],
        agents=tuple(honest),
        view=_view(plan, curious, hidden.sum(axis=0) / math.sqrt(float(covariance.sum()))),
    )


def _view(plan: Plan, curious: Sequence[int], total: Float[np.ndarray, "queries width"]) -> CoalitionView:
    """Compare what the claim rests on with the noise that this coalition does not know."""
    assert plan.masks is not None
    target = _target(plan)
    precision = torch.linalg.inv(hidden_covariance(plan.masks, known_pairs(plan.masks, curious)))[target, target]
    unit = plan.clips[target] / plan.lot_sizes[target]
    return CoalitionView(
        curious=tuple(curious),
        target=target,
        total=total,
        protects=float(precision) ** -0.5 / unit,
        claimed=plan.mechanism(target).noise_against(plan.observer),
    )


def undo_bands(answers: Float[np.ndarray, "agents queries width"], bands: Sequence[float]) -> np.ndarray:
    """Return Cy for answers y: the independent noise of every query, where sums are zero."""
    if not bands:
        return answers
    return np.einsum("kq,aqw->akw", band_matrix(bands, answers.shape[1]).numpy(), answers, optimize=True)


def _fitting_width(plan: Plan, agents: int, lot: float, width: int) -> int:
    """Return the width of answers: the model's, or less if records, answers or masks would take too much memory or time."""
    width = int(min(width, _MOST_WIDTH, max(1, _MOST_INPUTS / (lot * max(1, len(plan.bands))))))
    if plan.masks is None:
        return width
    pairs, least = len(plan.masks.keys.all_pairs), max(_LEAST_QUERIES, 2 * len(plan.bands))
    return int(max(1, min(width, _MOST_NUMBERS / (agents * least), _MOST_MASKS / (pairs * least))))


def _same_noise(plan: Plan, agents: int, lots: Sequence[float]) -> Privacy:
    """Return settings with the plan's noise, in units of the clipping norm, for these lots."""
    assert plan.privacy is not None
    settings = Privacy(
        noise_multiplier=plan.noise_multipliers[:agents],
        delta=plan.privacy.delta,
        clip=plan.clips[:agents],
        lot_size=lots,
        bands=len(plan.bands) or 1,
    )
    if plan.rounding is not None:
        return replace(settings, noise=plan.rounding, accountant="rdp")
    if plan.masks is None:
        return settings
    # The size of masks follows from the noise that agents need without any, so this noise must be the same.
    sizes = [round(lot / rate) for lot, rate in zip(plan.lot_sizes, plan.sample_rates, strict=True)]
    without = replace(plan.privacy, noise=None, bands=len(plan.bands) or 1).plan(sizes, plan.queries)
    needed = [s * c / lot for s, c, lot in zip(without.noise_multipliers, plan.clips, plan.lot_sizes, strict=True)]
    assert isinstance(plan.privacy.noise, Cancelling)
    ratio = plan.masks.size / math.sqrt(float(np.mean(np.square(needed))))
    noise = replace(plan.privacy.noise, keys=_key_graph(plan.masks), ratio=ratio)
    return replace(settings, noise_multiplier=without.noise_multipliers, noise=noise)


def _key_graph(masks: Masks) -> Literal["complete"] | nx.Graph:
    if masks.keys.pairs is None:
        return "complete"
    graph = nx.empty_graph(masks.keys.agents)
    graph.add_edges_from(masks.keys.pairs)
    return graph


def _target(plan: Plan) -> int:
    """Return the agent with the least stated noise, relative to its clipping norm, against the stated observer."""
    return first_smallest(plan.mechanism(agent).noise_against(plan.observer) for agent in range(plan.agents))


def _choose_curious(plan: Plan) -> list[int]:
    """Return the worst coalition of the stated size for the target or, where there are too many to try, partners of the target."""
    assert plan.masks is not None
    target, number = _target(plan), (plan.observer.curious or 0) + plan.masks.lost
    if number == 0:
        return []
    try:
        return worst_coalition(plan.masks, target, number)
    except InvalidInput:
        partners = [other for pair in plan.masks.keys.by_agent[target] for other in pair if other != target]
        rest = [agent for agent in range(plan.agents) if agent != target and agent not in partners]
        return sorted([*partners, *rest][:number])


def _wide_model(width: int, dtype: torch.dtype) -> torch.nn.Module:
    return linear_model(width).to(dtype)


def _without_gradient(width: int, inputs: torch.Tensor) -> torch.Tensor:
    return inputs.expand(len(inputs), width) * 0
