"""Lots that can be read: each record's gradient has its own axis, under hardly any noise.

The real oracle draws for the user's own numbers of records, rates and agents. Who was drawn is read from the answers, and the draws
are tested for independence between rounds, records and agents (`lot_dependence`).

With bands, groups of records take turns. A record can then be drawn only in the turns of its group, each time at the rate of a turn. So a round of
these tests is one turn of every group.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tacit.audit.attacks.worlds import linear_model
from tacit.audit.detectors import lot_dependence as dependence
from tacit.audit.detectors.made_up import ask_oracle
from tacit.audit.detectors.report import CheckFinding, compare
from tacit.audit.noise.lot_statistics import Draws, rate_p_value, spread_p_value
from tacit.data import AgentData, Records
from tacit.privacy import Plan, Privacy
from tacit.privacy.groups import group_key, group_records, group_units
from tacit.ties import first_smallest
from tacit.training.settings import Training

_NOISE, _LENGTH = 0.02, 0.9  # in clipping norms: noise, and what a drawn record adds
_MOST_AGENTS = 12
_MOST_VISIBLE, _MOST_NUMBERS = 8192, 4e7
_WORK, _LEAST_QUERIES, _MOST_QUERIES = 1e9, 32, 160
_READABLE = 0.3  # how far from a whole number a count may be


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnLots:
    """Who was drawn: for every agent, the visible records in each lot, and how many of the others.

    unread: how many answers were not whole numbers of records.
    untimely: how often a record was drawn when it was another group's turn; None without groups.
    """

    members: tuple[Bool[np.ndarray, "queries visible"], ...]
    others: tuple[Int[np.ndarray, " queries"], ...]
    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    unread: int
    untimely: int | None = None


def read_lots(training: Training, plan: Plan, sizes: Sequence[int], queries: int | None = None) -> DrawnLots:
    """Draw lots as the plan says, from made-up records, and read them."""
    agents = min(plan.agents, _MOST_AGENTS)
    lots, sizes = plan.lot_sizes[:agents], tuple(sizes[:agents])
    visible = int(max(1, min(max(sizes), _MOST_VISIBLE, _MOST_NUMBERS / sum(lots))))
    width = visible + 1  # the last axis counts all others
    queries = queries or int(min(max(_WORK / (sum(lots) * width), _LEAST_QUERIES), _MOST_QUERIES))
    groups = max(1, len(plan.bands))
    queries = groups * max(2, -(-queries // groups)) if groups > 1 else queries
    tables = [Records(torch.arange(size, dtype=torch.float32)[:, None], torch.zeros(size)) for size in sizes]
    unit = None if plan.privacy is None else plan.privacy.unit
    parts = tables if unit is None else [table.of_units(range(len(table))) for table in tables]
    data = AgentData.from_parts(parts, name="visible lots", prepare=partial(_axes, width))
    answers, asked = ask_oracle(
        training,
        model=partial(linear_model, width),
        data=data,
        privacy=Privacy(noise_multiplier=_NOISE, delta=1e-5, clip=1.0, lot_size=lots, unit=unit, bands=groups),
        queries=queries,
    )
    answers *= torch.tensor(lots, dtype=torch.float64)[:, None, None] / _LENGTH
    counts = answers.round()
    unread = int((~((answers - counts).abs() <= _READABLE)).sum())
    unread += int(((counts[:, :, :-1] < 0) | (counts[:, :, :-1] > 1)).sum())
    read = DrawnLots(
        members=tuple(each[:, : min(size, visible)].numpy() > 0 for each, size in zip(counts, sizes, strict=True)),
        others=tuple(each[:, -1].numpy().astype(np.int64) for each in counts),
        sizes=sizes,
        rates=tuple(asked.turn_rates),
        unread=unread,
    )
    if groups == 1:
        return read
    return take_turns(read, [_groups(data, rows[:visible], groups, training.seed) for rows in data.indices], groups)


def _groups(data: AgentData, rows: Int[Tensor, " rows"], groups: int, seed: int) -> Int[np.ndarray, " rows"]:
    """Return the group of each of these records, or of its unit, as the stated hash has it."""
    train, key = data.dataset.train, group_key(seed)
    if train.units is None:
        return group_records(train.inputs, train.targets, rows.numpy(), groups, key)
    return group_units(train.units[rows].numpy(), groups, key)


def take_turns(lots: DrawnLots, owners: Sequence[Int[np.ndarray, " visible"]], groups: int) -> DrawnLots:
    """Return lots by turn instead of by query: of every record what was drawn in its group's turns, and of the others all together.

    `owners` are the groups of the visible records of each agent.
    """
    members, untimely = [], 0
    for drawn, groups_of in zip(lots.members, owners, strict=True):
        turns = drawn.reshape(-1, groups, drawn.shape[1])
        own = turns[:, groups_of, np.arange(drawn.shape[1])]
        untimely += int(turns.sum() - own.sum())
        members.append(own)
    others = tuple(each.reshape(-1, groups).sum(axis=1) for each in lots.others)
    return replace(lots, members=tuple(members), others=others, untimely=untimely)


def _axes(width: int, numbers: Float[Tensor, "records 1"]) -> Float[Tensor, "records width"]:
    """Return most of a clipping norm along each record's own axis; records beyond the width share the last."""
    axes = torch.arange(width, dtype=numbers.dtype, device=numbers.device)
    return _LENGTH * (numbers.clamp(max=width - 1) == axes).to(numbers.dtype)


def check_lots(lots: DrawnLots, false_alarm: float) -> list[CheckFinding]:
    """Test the lots against independent draws at the stated rate."""
    if lots.unread:
        measured = f"{lots.unread:,} answers are not sums of records that were each drawn at most once"
        return [CheckFinding("lots", "readable", "fail", measured, "every answer is a sum of drawn records")]
    turns = _check_turns(lots)
    if min(lots.rates) >= 1:
        whole = all(members.all() for members in lots.members)
        measured = "every record is in every lot" if whole else "a record is missing from a lot"
        return [*turns, CheckFinding("lots", "whole", "pass" if whole else "fail", measured, "q = 1")]
    sampled = dependence.Sampled.of(lots.members, lots.rates)
    tests = {
        "rounds": (dependence.between_rounds, "records drawn again some rounds later"),
        "reused": (dependence.between_two_lots, "records that two lots share"),
        "records": (dependence.between_records, "records drawn together with one a number of positions on"),
        "pairs": (dependence.between_two_records, "how often two records are drawn together"),
    }
    if len(lots.members) > 1:
        tests["agents"] = (dependence.between_agents, "positions that two agents both draw")
    risk = false_alarm / (2 + len(tests))
    found = [*turns, _check_rate(lots, risk), _check_size(lots, risk)]
    return found + [_check_pairs(name, test(sampled), about, risk) for name, (test, about) in tests.items()]


def _check_turns(lots: DrawnLots) -> list[CheckFinding]:
    if lots.untimely is None:
        return []
    measured = f"records were drawn {lots.untimely:,} times in another group's turn"
    return [
        CheckFinding("lots", "turns", "fail" if lots.untimely else "pass", measured, "only in turns of their own group")
    ]


def _check_pairs(name: str, test: dependence.Coincidence, about: str, risk: float) -> CheckFinding:
    measured = f"{about}: {test.count:,} where {test.expected:.4g} are expected ({test.where})"
    unseen = [what for what, value in (("never", test.never), ("always", test.always)) if value >= risk]
    if len(unseen) == 2 and test.p_value >= risk:
        return CheckFinding(
            "lots", name, "inconclusive", measured, f"too few draws to fail any of {test.tests:,} tests"
        )
    short = f"; too few draws to find records that are {unseen[0]} drawn together" if unseen else ""
    return compare("lots", name, test.p_value, risk, measured, f"independent, {test.tests:,} tests{short}")


def _draws(counts: Int[np.ndarray, " queries"], records: int) -> Draws:
    """Return counts with a little noise, which the tests of answers assume; without it their bounds would not hold."""
    noise = np.random.default_rng(0).standard_normal(len(counts))
    return Draws(answers=counts + _NOISE * noise, pulls=np.ones(records))


def _check_rate(lots: DrawnLots, risk: float) -> CheckFinding:
    values = []
    for members, others, size, rate in zip(lots.members, lots.others, lots.sizes, lots.rates, strict=True):
        draws = _draws(members.sum(axis=1) + others, size)
        values.append((rate_p_value(draws, rate, _NOISE), draws.rate, rate))
    p_value, drawn, stated = values[first_smallest(value[0] for value in values)]
    each, rate_of = ("lots", "q") if lots.untimely is None else ("turns", "rate of a turn")
    measured = f"{drawn:.5g} of records are drawn · {len(values)} agents, {len(lots.members[0])} {each} each"
    return compare("lots", "rate", min(1.0, len(values) * p_value), risk, measured, f"{rate_of} = {stated:.5g}")


def _check_size(lots: DrawnLots, risk: float) -> CheckFinding:
    """Test how lot sizes vary: of all records, and of those at even, odd, early and late positions."""
    values = []
    for members, others, size, rate in zip(lots.members, lots.others, lots.sizes, lots.rates, strict=True):
        half = members.shape[1] // 2
        parts = {
            "records at even positions": members[:, ::2],
            "records at odd positions": members[:, 1::2],
            "the first half": members[:, :half],
            "the second half": members[:, half:],
        }
        groups = {"all records": (members.sum(axis=1) + others, size)}
        groups |= {name: (part.sum(axis=1), part.shape[1]) for name, part in parts.items()}
        for name, (counts, total) in groups.items():
            if (variance := total * rate * (1 - rate)) > 0:
                p_value = spread_p_value(_draws(counts, total), rate, _NOISE)
                values.append((p_value, float(counts.std()), variance**0.5, name))
    p_value, spread, stated, name = values[first_smallest(value[0] for value in values)]
    measured, bound = f"lots of {name} vary by {spread:.4g}", f"{stated:.4g} for Poisson lots"
    return compare("lots", "size", min(1.0, len(values) * p_value), risk, measured, bound)
