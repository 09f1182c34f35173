"""Every rule to be played on every network, beside the slow loop from its equations.

The rules of the library have their loops in `tests/reference.py`. Those here use what no shipped rule does: each neighbour's message by
itself, what neighbours read of one's own, codecs that lose something, public chance and public losses.
"""

import math
import struct
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import reference
import torch

import tacit
from tacit import algorithms
from tacit.algorithms import Adam, Momentum, Plain
from tacit.networks import QSGD, BFloat16, Float16, RandomK, TopK
from tacit.training.chance import chance, shared_chance

SEED = 11


class ThetaState(NamedTuple):
    theta: torch.Tensor
    memory: torch.Tensor


@dataclass(frozen=True)
class WithoutMemory:
    def init(self, theta):
        return ThetaState(theta, theta.new_zeros(()))


class MedianOfNeighbors(WithoutMemory):
    """Uses every message by itself."""

    def round(self, state, at):
        inbox = at.exchange(state.theta)
        values, present = inbox.messages()
        values = torch.cat([inbox.own[:, None], values.masked_fill(~present[..., None], torch.nan)], dim=1)
        return state._replace(theta=values.nanmedian(dim=1).values - at.lr * at.gradient(state.theta))


def run_median(oracle, links, thetas, lrs):
    for number, lr in enumerate(lrs):
        _, near = links(number)
        g, middle = oracle.all(thetas), []
        for i, theta in enumerate(thetas):
            each = [theta, *(thetas[j] for j in near[i])]
            columns = [sorted(float(value[place]) for value in each) for place in range(len(theta))]
            middle.append(torch.tensor([column[(len(column) - 1) // 2] for column in columns], dtype=theta.dtype))
        thetas = [middle[i] - lr * g[i] for i in range(len(thetas))]
        yield thetas


class WithFeedback:
    """Sends the largest part, keeps what was not sent for the next time, and adds public chance."""

    def init(self, theta):
        return ThetaState(theta, torch.zeros_like(theta))

    def round(self, state, at):
        wanted = state.theta + state.memory
        inbox = at.exchange(wanted, codec=TopK(0.3))
        theta = state.theta + 0.5 * (inbox.mix() - inbox.own) - at.lr * at.gradient(state.theta)
        return ThetaState(theta + 0.01 * at.chance(theta.shape[1]) + 0.01 * at.shared_chance(1), wanted - inbox.own)


def run_feedback(oracle, links, thetas, lrs):
    n, width, kind = len(thetas), len(thetas[0]), torch.float64
    memory = [torch.zeros_like(theta) for theta in thetas]
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        g = oracle.all(thetas)
        wanted = [thetas[i] + memory[i] for i in range(n)]
        sent = [reference.largest(each, 0.3) for each in wanted]
        own = [chance(SEED, [i], number, 0, (width,), kind)[0] for i in range(n)]
        common = shared_chance(SEED, number, 1, (1,), kind)
        memory = [wanted[i] - sent[i] for i in range(n)]
        thetas = [
            thetas[i] + 0.5 * (reference.combine(w, i, sent) - sent[i]) - lr * g[i] + 0.01 * own[i] + 0.01 * common
            for i in range(n)
        ]
        yield thetas


class Rounded(WithoutMemory):
    """Sends half the bytes."""

    def round(self, state, at):
        return state._replace(theta=at.exchange(state.theta, codec=BFloat16()).mix() - at.lr * at.gradient(state.theta))


def run_rounded(oracle, links, thetas, lrs):
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        g, sent = oracle.all(thetas), [reference.bfloat16(theta) for theta in thetas]
        thetas = [reference.combine(w, i, sent) - lr * g[i] for i in range(len(thetas))]
        yield thetas


def public_loss(theta):
    """A loss of every row on what everybody knows, added up number by number, so that rows do not know of each other."""
    total = torch.zeros_like(theta[:, 0])
    for place, column in enumerate(theta.unbind(1)):
        total = total + (column - 0.1 * place).square()
    return total


class Ranked(WithoutMemory):
    """Takes over what neighbours have on average where that does better on public records."""

    def round(self, state, at):
        theta = state.theta - at.lr * at.gradient(state.theta)
        mixed = at.exchange(theta).mix()
        better = at.public_loss(mixed) < at.public_loss(theta)
        return state._replace(theta=torch.where(better[:, None], mixed, theta))


def run_ranked(oracle, links, thetas, lrs):
    def loss(theta):
        return sum((float(value) - 0.1 * place) ** 2 for place, value in enumerate(theta))

    for number, lr in enumerate(lrs):
        w, _ = links(number)
        g = oracle.all(thetas)
        stepped = [thetas[i] - lr * g[i] for i in range(len(thetas))]
        mixed = [reference.combine(w, i, stepped) for i in range(len(thetas))]
        thetas = [mix if loss(mix) < loss(step) else step for mix, step in zip(mixed, stepped, strict=True)]
        yield thetas


def dinno(*, inner, step, carry, sent=None):
    return partial(reference.run_dinno, rho=0.4, growth=1.05, inner=inner, step=step, carry=carry, sent=sent)


def averaged(run):
    return lambda *given: reference.averaged(run(*given), 0.6)


def loss_of(theta):
    return sum((float(value) - 0.1 * place) ** 2 for place, value in enumerate(theta))


def largest(share):
    return lambda number, rows: [reference.largest(row, share) for row in rows]


def chosen(number, width, share):
    """The places of the smallest public random numbers of a round, those that everybody has in common."""
    numbers = shared_chance(SEED, number, 0, (width,), torch.float64).tolist()
    order = sorted(range(width), key=lambda place: (numbers[place], place))
    return sorted(order[: max(1, math.ceil(share * width))])


def some(share):
    def sent(number, rows):
        places = chosen(number, len(rows[0]), share)
        return [torch.stack([v if p in places else 0 * v for p, v in enumerate(row)]) for row in rows]

    return sent


def levels(bits):
    """Every number rounded up or down, by each agent's own public chance, to a level of the row's largest."""
    count = 2 ** (bits - 1) - 1

    def sent(number, rows):
        read = []
        for agent, row in enumerate(rows):
            up = chance(SEED, [agent], number, 0, (len(row),), torch.float64)[0]
            scale = float(torch.tensor(max(abs(float(v)) for v in row), dtype=torch.float32))
            steps = [
                min(count, math.floor(abs(float(v)) / scale * count + float(u))) for v, u in zip(row, up, strict=True)
            ]
            signs = [math.copysign(1, float(v)) for v in row]
            read.append(
                torch.tensor([s * k * scale / count for s, k in zip(signs, steps, strict=True)], dtype=row.dtype)
            )
        return read

    return sent


def half(number, rows):
    return [
        torch.tensor([struct.unpack("<e", struct.pack("<e", float(v)))[0] for v in row], dtype=row.dtype)
        for row in rows
    ]


GAP = 0.3
GAMMA = 2 * (1 - (GAP * (1 - GAP / 4)) ** 0.5) / (1 - GAP / 2) ** 2

SEVERAL = tacit.DiNNO(rho=0.4, rho_growth=1.05, inner_steps=2, carry=True)
RUN_SEVERAL = dinno(inner=2, step=reference.adam, carry=True)
MOMENTUM = partial(reference.momentum, 0.5)

PAIRS = {
    "sgd": (tacit.SGD(step=Adam()), partial(reference.run_local, step=reference.adam)),
    "local": (tacit.Local(step=Momentum(0.5)), partial(reference.run_local, step=MOMENTUM)),
    "dsgd": (tacit.DSGD(), reference.run_dsgd),
    "dsgd with momentum": (tacit.DSGD(step=Momentum(0.5)), partial(reference.run_dsgd, step=MOMENTUM)),
    "dsgd with adam": (tacit.DSGD(step=Adam()), partial(reference.run_dsgd, step=reference.adam)),
    "dsgt": (tacit.DSGT(), reference.run_dsgt),
    "dinno": (tacit.DiNNO(rho=0.4, rho_growth=1.05), dinno(inner=1, step=reference.adam, carry=False)),
    "dinno with plain steps": (
        tacit.DiNNO(rho=0.4, rho_growth=1.05, inner_steps=3, step=Plain()),
        dinno(inner=3, step=reference.plain, carry=False),
    ),
    "dinno carried": (SEVERAL, RUN_SEVERAL),
    "dinno with random-k": (
        tacit.DiNNO(rho=0.4, rho_growth=1.05, step=Plain(), codec=RandomK(0.4)),
        dinno(inner=1, step=reference.plain, carry=False, sent=some(0.4)),
    ),
    "dsgd averaged": (tacit.Averaged(tacit.DSGD(), decay=0.6), averaged(reference.run_dsgd)),
    "dsgt averaged": (tacit.Averaged(tacit.DSGT(), decay=0.6), averaged(reference.run_dsgt)),
    "dinno averaged": (tacit.Averaged(SEVERAL, decay=0.6), averaged(RUN_SEVERAL)),
    "local averaged": (tacit.Averaged(tacit.Local(), decay=0.6), averaged(reference.run_local)),
    "dsgd in float16": (tacit.DSGD(codec=Float16()), partial(reference.run_lossy_dsgd, sent=half)),
    "dsgd with random-k": (tacit.DSGD(codec=RandomK(0.4)), partial(reference.run_lossy_dsgd, sent=some(0.4))),
    "dsgt with qsgd": (tacit.DSGT(codec=QSGD(4)), partial(reference.run_lossy_dsgt, sent=levels(4))),
    "sdm-dsgd": (
        algorithms.SDMDSGD(share=0.3, damping=0.4),
        partial(reference.run_sdm_dsgd, kept=lambda number: chosen(number, 13, 0.3), damping=0.4),
    ),
    "q-dpsgd-1": (algorithms.QDPSGD1(gamma=0.7), partial(reference.run_q_dpsgd, sent=levels(8), gamma=0.7)),
    "q-dpsgd-2": (algorithms.QDPSGD2(gamma=0.7), partial(reference.run_q_dpsgd, sent=levels(8), gamma=0.7)),
    "dp-srm": (algorithms.DPSRM(a=0.3, slack=1.4), partial(reference.run_dp_srm, a=0.3, slack=1.4)),
    "leasgd": (
        algorithms.LEASGD(rho=0.7, rank_every=2),
        partial(reference.run_leasgd, loss=loss_of, rho=0.7, every=2),
    ),
    "muffliato": (algorithms.Muffliato(exchanges=3), partial(reference.run_muffliato, exchanges=3)),
    "muffliato accelerated": (
        algorithms.Muffliato(exchanges=3, gap=GAP),
        partial(reference.run_muffliato, exchanges=3, gamma=GAMMA),
    ),
    "choco": (
        algorithms.ChocoSGD(codec=TopK(0.3), gamma=0.4),
        partial(reference.run_choco, sent=largest(0.3), gamma=0.4),
    ),
    "deepsqueeze": (
        algorithms.DeepSqueeze(codec=TopK(0.3), gamma=0.2),
        partial(reference.run_deepsqueeze, sent=largest(0.3), gamma=0.2),
    ),
    "local-dsgd": (algorithms.LocalDSGD(local_steps=3), partial(reference.run_local_dsgd, steps=3)),
    "d2": (algorithms.D2(), partial(reference.run_d2, lazy=True)),
    "d2 with W": (algorithms.D2(lazy=False), partial(reference.run_d2, lazy=False)),
    "extra": (algorithms.EXTRA(), reference.run_extra),
    "ad-psgd": (algorithms.ADPSGD(delay=2), partial(reference.run_ad_psgd, delay=2)),
    **{
        f"dsgd by {kind}": (
            algorithms.Robust(tacit.DSGD(), kind, bound),
            partial(reference.run_robust_dsgd, mean=partial(getattr(reference, kind), **more)),
        )
        for kind, bound, more in (("median", None, {}), ("trimmed", 2, {"b": 2}), ("clipped", 0.8, {"tau": 0.8}))
    },
    "median": (MedianOfNeighbors(), run_median),
    "feedback": (WithFeedback(), run_feedback),
    "rounded": (Rounded(), run_rounded),
    "ranked": (Ranked(), run_ranked),
}
RULES = {name: rule for name, (rule, _) in PAIRS.items()}
