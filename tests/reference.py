"""Slow, obvious loops written from the equations, agent by agent and record by record, in float64.

Nothing of `tacit.algorithms`, `tacit.networks`, `tacit.graphs.mixing` or `tacit.privacy.gradients.clipping` is used here.
"""

import copy
import math
import struct

import torch
from torch import nn

HAIR = 1e-5


def metropolis(graph):
    """w_ij = 1/(1 + max(d_i, d_j)) on edges, the rest on the diagonal."""
    n = graph.number_of_nodes()
    w = [[0.0] * n for _ in range(n)]
    for i, j in graph.edges:
        w[i][j] = w[j][i] = 1 / (1 + max(graph.degree[i], graph.degree[j]))
    for i in range(n):
        w[i][i] = 1 - sum(w[i])
    return w


def set_parameters(module, theta):
    start = 0
    for p in module.parameters():
        p.data = theta[start : start + p.numel()].reshape(p.shape).clone()
        start += p.numel()


def sample_gradient(module, theta, x, y, loss=nn.functional.cross_entropy):
    module = copy.deepcopy(module)
    set_parameters(module, theta)
    value = loss(module(x[None]), y[None])
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(value, list(module.parameters()))])


class ReferenceOracle:
    """g̃ = (Σ clip_C(∇ℓ) + σC ξ)/L on the noise's grid, with the lots and the noise of given sources."""

    def __init__(self, module, data, sources, *, rates, lots, clips=None, sigmas=None):
        self.module, self.data, self.sources = module, data, sources
        self.rates, self.lots, self.clips, self.sigmas = rates, lots, clips, sigmas

    def gradient(self, agent, stream, theta):
        held = self.data.indices[agent]
        words = stream.words(len(held)).tolist()
        total = torch.zeros_like(theta)
        for position, word in enumerate(words):
            if word / 2**64 >= self.rates[agent]:
                continue
            record = held[position]
            x = self.data.dataset.prepare(self.data.dataset.train.inputs[record : record + 1])[0].double()
            g = sample_gradient(self.module, theta, x, self.data.dataset.train.targets[record])
            if self.clips is not None:
                norm = float(g.norm())
                g = g * min(1.0, self.clips[agent] * (1 - HAIR) / norm)
            total = total + g
        if self.sigmas is not None:
            noise = torch.from_numpy(stream.normals(len(theta)))
            scale = self.sigmas[agent] * self.clips[agent]
            grid = 2.0 ** math.floor(math.log2(scale / 1024))
            total = grid * torch.round((total + scale * noise) / grid)
        return total / self.lots[agent]

    def all(self, thetas):
        return [self.gradient(i, source.next(), thetas[i]) for i, source in enumerate(self.sources)]


def largest(row, share):
    """The numbers of a row that are largest by size, the first of equal ones, the others zero."""
    kept = max(1, math.ceil(share * len(row)))
    places = sorted(range(len(row)), key=lambda place: (-abs(float(row[place])), place))[:kept]
    return torch.stack([row[place] if place in places else torch.zeros_like(row[place]) for place in range(len(row))])


def bfloat16(row):
    """Every number, as float32, rounded to its upper sixteen bits, ties to even."""

    def rounded(value):
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        bits += 0x7FFF + (bits >> 16 & 1)
        return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]

    return torch.tensor([rounded(float(value)) for value in row], dtype=row.dtype)


def fixed(graph):
    """Links that stay: in every round, Metropolis weights and everyone's neighbours."""
    w = metropolis(graph)
    near = [sorted(graph.neighbors(i)) for i in range(len(w))]
    return lambda number: (w, near)


def combine(w, i, values):
    return sum(w[i][j] * values[j] for j in range(len(values)))


def plain():
    return lambda i, g: g


def momentum(beta):
    """m ← βm + g for every agent i."""
    velocity = {}

    def step(i, g):
        velocity[i] = beta * velocity.get(i, 0) + g
        return velocity[i]

    return step


def adam():
    """m ← 0.9m + 0.1g, v ← 0.999v + 0.001g² and the direction m̂/(√v̂ + 1e-8) for every agent i."""
    moments = {}

    def step(i, g):
        m, v, t = moments.get(i, (0, 0, 0))
        m, v, t = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2, t + 1
        moments[i] = m, v, t
        return (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)

    return step


# Each of the following yields all agents' models after every round. `links(k)` are the weights and neighbours of round k.


def run_local(oracle, links, thetas, lrs, step=plain):
    step = step()
    for lr in lrs:
        g = oracle.all(thetas)
        thetas = [theta - lr * step(i, g[i]) for i, theta in enumerate(thetas)]
        yield thetas


def run_dsgd(oracle, links, thetas, lrs, step=plain):
    step, n = step(), len(thetas)
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        g = oracle.all(thetas)
        thetas = [combine(w, i, thetas) - lr * step(i, g[i]) for i in range(n)]
        yield thetas


def run_dsgt(oracle, links, thetas, lrs):
    n = len(thetas)
    mixed = [torch.zeros_like(t) for t in thetas]
    before = [torch.zeros_like(t) for t in thetas]
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        g = oracle.all(thetas)
        y = [g[i] + mixed[i] - before[i] for i in range(n)]
        thetas = [sum(w[i][j] * (thetas[j] - lr * y[j]) for j in range(n)) for i in range(n)]
        mixed, before = [combine(w, i, y) for i in range(n)], g
        yield thetas


def run_dinno(oracle, links, thetas, lrs, *, rho, growth, inner, step, carry):
    n = len(thetas)
    dual = [torch.zeros_like(t) for t in thetas]
    carried = step()
    for number, lr in enumerate(lrs):
        _, near = links(number)
        dual = [dual[i] + rho * sum((thetas[i] - thetas[j]) for j in near[i]) for i in range(n)]
        psi, descend = list(thetas), carried if carry else step()
        for _ in range(inner):
            g = oracle.all(psi)
            # ∇ of ψᵀy + ρ Σ_j ‖ψ − (θ_i + θ_j)/2‖²
            pull = [sum(2 * rho * (psi[i] - (thetas[i] + thetas[j]) / 2) for j in near[i]) for i in range(n)]
            psi = [psi[i] - lr * descend(i, g[i] + dual[i] + pull[i]) for i in range(n)]
        thetas, rho = psi, rho * growth
        yield thetas


def averaged(models, decay):
    """The mean of all models so far, until the share of the newest would be under 1 − decay; that share from then on."""
    mean = []
    for number, thetas in enumerate(models, start=1):
        share = max(1 - decay, 1 / number)
        mean = [(1 - share) * old + share * new for old, new in zip(mean or thetas, thetas, strict=True)]
        yield mean
