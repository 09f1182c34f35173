"""Lots that can be read: each record's gradient is an axis of its own, under hardly any noise.

The real oracle draws for the user's own numbers of records, rates and agents. Whoever was drawn is read off the answers, and the
draws are tested for independence: between rounds, records and agents (`lot_dependence`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tacit.algorithms import Local
from tacit.audit.attacks.worlds import first_output, linear_model
from tacit.audit.detectors import lot_dependence as dependence
from tacit.audit.detectors.report import Finding, judged, share
from tacit.audit.noise.lot_statistics import Draws, rate_p_value, spread_p_value
from tacit.data import AgentData, Records
from tacit.privacy import Plan, Privacy
from tacit.training.session import Session
from tacit.training.settings import Training

_NOISE = 0.02  # in clipping norms; a drawn record adds half of one
_MOST_AGENTS = 12
_MOST_VISIBLE, _MOST_NUMBERS = 8192, 4e7
_WORK, _LEAST_QUERIES, _MOST_QUERIES = 1e9, 32, 160
_READABLE = 0.3  # how far from a whole number a count may be


@dataclass(frozen=True, kw_only=True, eq=False)
class Lots:
    """Who was drawn: for every agent, the visible records in each lot, and how many of the others.

    unread: answers that were no whole numbers of records, in some agent and query.
    """

    members: tuple[Bool[np.ndarray, "queries visible"], ...]
    others: tuple[Int[np.ndarray, " queries"], ...]
    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    unread: int

    @property
    def queries(self) -> int:
        """How many lots were drawn from each agent's records."""
        return len(self.members[0])


def read_lots(training: Training, plan: Plan, sizes: Sequence[int], queries: int | None = None) -> Lots:
    """Draw lots as the plan says, from made-up records, and read them."""
    agents = min(plan.agents, _MOST_AGENTS)
    lots, sizes = plan.lot_sizes[:agents], tuple(sizes[:agents])
    visible = int(max(1, min(max(sizes), _MOST_VISIBLE, _MOST_NUMBERS / sum(lots))))
    width = visible + 1  # the last axis counts all others
    queries = queries or int(min(max(_WORK / (sum(lots) * width), _LEAST_QUERIES), _MOST_QUERIES))
    tables = [Records(torch.arange(size, dtype=torch.float32)[:, None], torch.zeros(size)) for size in sizes]
    unit = None if plan.privacy is None else plan.privacy.unit
    parts = tables if unit is None else [table.of_units(range(len(table))) for table in tables]
    settings = replace(
        training,
        algorithm=Local(),
        graph=None,
        model=partial(linear_model, width),
        loss=first_output,
        data=AgentData.from_parts(parts, name="visible lots", prepare=partial(_axes, width)),
        privacy=Privacy(noise_multiplier=_NOISE, delta=1e-5, clip=1.0, lot_size=lots, unit=unit),
        rounds=queries,
        lr=0.1,
        same_start=True,
        spare_queries=0,
        sizes=None,
        compile=False,
    )
    with Session(settings) as session:
        theta = session.state.theta
        answers = [
            session.real_oracle.gradient(theta).cpu().double() * 2 * theta.new_tensor(lots).cpu().double()[:, None]
            for _ in range(queries)
        ]
    return _read(torch.stack(answers, dim=1), sizes, session.plan.sample_rates)


def _axes(width: int, numbers: Float[Tensor, "records 1"]) -> Float[Tensor, "records width"]:
    """Return half a clipping norm along each record's own axis; those beyond share the last."""
    places = torch.arange(width, dtype=numbers.dtype, device=numbers.device)
    return 0.5 * (numbers.clamp(max=width - 1) == places).to(numbers.dtype)


def _read(answers: Float[Tensor, "agents queries width"], sizes: Sequence[int], rates: Sequence[float]) -> Lots:
    counts = answers.round()
    unread = int((~((answers - counts).abs() <= _READABLE)).sum())
    unread += int(((counts[:, :, :-1] < 0) | (counts[:, :, :-1] > 1)).sum())
    visible = counts.shape[2] - 1
    return Lots(
        members=tuple(each[:, : min(size, visible)].numpy() > 0 for each, size in zip(counts, sizes, strict=True)),
        others=tuple(each[:, -1].numpy().astype(np.int64) for each in counts),
        sizes=tuple(sizes),
        rates=tuple(rates),
        unread=unread,
    )


def lot_findings(lots: Lots, false_alarm: float) -> list[Finding]:
    """Test what was read against independent draws at the stated rate."""
    queries, agents = lots.queries, len(lots.members)
    if lots.unread:
        words = f"{lots.unread:,} answers are not sums of records that were drawn once, or none"
        readable = "every answer is a sum of drawn records"
        return [Finding(part="lots", name="readable", outcome="fail", measured=words, bound=readable)]
    if min(lots.rates) >= 1:
        whole = all(members.all() for members in lots.members)
        return [
            Finding(
                part="lots",
                name="whole",
                outcome="pass" if whole else "fail",
                measured="every record is in every lot" if whole else "a record is missing from a lot",
                bound="q = 1",
            )
        ]
    names = ("rate", "size", "rounds", "reused", "records", "pairs", *(("agents",) if agents > 1 else ()))
    risk = share(false_alarm, names)
    sampled = dependence.Sampled.of(lots.members, lots.rates)
    found = [_judged_rate(lots, risk), _judged_size(lots, risk)]
    tests = {
        "rounds": (dependence.between_rounds(sampled), "records drawn again some rounds later"),
        "reused": (dependence.between_two_lots(sampled), "records that two lots have in common"),
        "records": (dependence.between_records(sampled), "records drawn with one so many places on"),
        "pairs": (dependence.between_two_records(sampled), "how often two records are drawn together"),
    }
    if agents > 1:
        tests["agents"] = (dependence.between_agents(sampled), "places drawn by two agents alike")
    found += [_judged_pairs(name, test, words, risk) for name, (test, words) in tests.items()]
    drawn = f"{agents} agents, {queries} lots each"
    return [replace(found[0], measured=f"{found[0].measured} · {drawn}"), *found[1:]]


def _judged_pairs(name: str, test: dependence.Coincidence, words: str, risk: float) -> Finding:
    measured = f"{words}: {test.count:,} where {test.expected:.4g} are expected ({test.where})"
    unseen = [what for what, value in (("never", test.never), ("always", test.always)) if value >= risk]
    if len(unseen) == 2 and test.p_value >= risk:
        bound = f"so few draws could not fail it, in {test.tests:,} tests"
        return Finding(part="lots", name=name, outcome="inconclusive", measured=measured, bound=bound)
    short = f"; too few draws to see what is {unseen[0]} together" if unseen else ""
    return judged("lots", name, test.p_value, risk, measured, f"independent, {test.tests:,} tests{short}")


def _draws(counts: Int[np.ndarray, " queries"], records: int) -> Draws:
    """Return counts with the little noise that the tests of answers suppose; without it their bounds would not hold."""
    noise = np.random.default_rng(0).standard_normal(len(counts))
    return Draws(answers=counts + _NOISE * noise, pulls=np.ones(records))


def _judged_rate(lots: Lots, risk: float) -> Finding:
    values = []
    for members, others, size, rate in zip(lots.members, lots.others, lots.sizes, lots.rates, strict=True):
        draws = _draws(members.sum(axis=1) + others, size)
        values.append((rate_p_value(draws, rate, _NOISE), draws.rate, rate))
    worst = min(values)
    measured = f"{worst[1]:.5g} of records are drawn"
    return judged("lots", "rate", min(1.0, len(values) * worst[0]), risk, measured, f"q = {worst[2]:.5g}")


def _judged_size(lots: Lots, risk: float) -> Finding:
    """How lot sizes vary: of all records, and of those at even, odd, early and late places."""
    values = []
    for members, others, size, rate in zip(lots.members, lots.others, lots.sizes, lots.rates, strict=True):
        half = members.shape[1] // 2
        groups = {"all records": (members.sum(axis=1) + others, size)}
        for name, part in (("even", slice(0, None, 2)), ("odd", slice(1, None, 2))):
            groups[f"records at {name} places"] = (members[:, part].sum(axis=1), members[:, part].shape[1])
        for name, part in (("first", slice(0, half)), ("second", slice(half, None))):
            groups[f"the {name} half"] = (members[:, part].sum(axis=1), members[:, part].shape[1])
        for name, (counts, total) in groups.items():
            if total and total * rate * (1 - rate) > 0:
                draws = _draws(counts, total)
                stated = (total * rate * (1 - rate)) ** 0.5
                values.append((spread_p_value(draws, rate, _NOISE), float(counts.std()), stated, name))
    worst = min(values)
    measured = f"lots of {worst[3]} vary by {worst[1]:.4g}"
    bound = f"{worst[2]:.4g} for Poisson lots"
    return judged("lots", "size", min(1.0, len(values) * worst[0]), risk, measured, bound)
