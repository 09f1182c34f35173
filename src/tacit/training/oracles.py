"""The oracle of a session: what a query is about, which engine computes it, and where its lots, noise and masks come from."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from tacit.data.schema import Schema
from tacit.models import FlatModel
from tacit.privacy import (
    Account,
    Diagnostics,
    PlainOracle,
    Plan,
    PrivateOracle,
    choose_engine,
)
from tacit.privacy.gradients.choice import Chosen
from tacit.privacy.gradients.clipping import Lot
from tacit.privacy.groups import group_key
from tacit.privacy.masks import share_masks
from tacit.privacy.randomness import MaskSource
from tacit.privacy.teacher_oracle import TeacherOracle
from tacit.privacy.units import UnitModel
from tacit.training.preparation import public_lot, public_units
from tacit.training.runtimes import Hosted
from tacit.training.settings import Training

_CHECKED_RECORDS = 7


class Queried(NamedTuple):
    """What a query is about, every record or every unit with its records, and how it is computed."""

    model: FlatModel
    example: Lot
    shaped_for: Sequence[float]
    chosen: Chosen


def choose_queried(
    training: Training,
    model: FlatModel,
    schema: Schema,
    theta: Float[Tensor, "agents params"],
    *,
    shaped_for: Sequence[float],
    plan: Plan,
    queries: int,
) -> Queried:
    """Choose how gradients are computed, in steps for lots of these sizes, after a test on public records."""
    data, unit = training.data, training.unit
    if unit is None:
        queried, example = model, public_lot(data, schema, _CHECKED_RECORDS, theta.device)
    else:
        queried = UnitModel(model, unit, schema.targets.shape)
        example = public_units(data, schema, _CHECKED_RECORDS, unit, theta.device)
    chosen = choose_engine(
        queried,
        theta[0],
        example,
        lot_sizes=shaped_for,
        queries=queries,
        private=plan.privacy is not None,
        compile=training.compile if plan.rounding is None and plan.ballot is None else False,
    )
    if plan.rounding is not None:
        chosen = chosen._replace(why="record by record, since each is rounded by itself")
    if plan.ballot is not None:
        chosen = chosen._replace(why="on labelled public records, which cost nothing")
    return Queried(queried, example, shaped_for, chosen)


def make_oracle(
    training: Training,
    model: FlatModel,
    queried: Queried,
    plan: Plan,
    hosted: Hosted,
    *,
    trials: Sequence[int],
    run: str,
    accounts: Sequence[Account],
    diagnostics: list[Diagnostics] | None,
    device: torch.device,
) -> PrivateOracle | PlainOracle | TeacherOracle:
    """Return the oracle of the hosted agents of all trials, side by side as in `plan`; trials have the sources of their numbers."""
    sources = training.chosen_sources
    everyone = [sources.make(hosted.total, trial) for trial in trials]
    drawn = [of_trial[agent] for of_trial in everyone for agent in hosted.agents]
    common: dict[str, Any] = {"data": training.data, "plan": plan, "sources": drawn, "accounts": accounts}
    if plan.ballot is not None:
        pool = training.data.dataset.pool
        assert pool is not None
        return TeacherOracle(**common, model=model, pool=pool, seed=training.seed)
    common |= {
        "model": queried.model,
        "engine": queried.chosen.engine,
        "example": queried.example,
        "device": device,
        "shaped_for": queried.shaped_for,
    }
    if plan.privacy is None:
        return PlainOracle(**common)

    def make_masks(pairs: Sequence[tuple[int, int]], place: int) -> Sequence[MaskSource]:
        return sources.make_masks(pairs, run, trials[place])

    shared = share_masks(plan.masks, hosted.agents, make_masks, len(trials))
    return PrivateOracle(**common, shared=shared, diagnostics=diagnostics, group_key=group_key(training.seed))
