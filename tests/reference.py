"""Slow, obvious loops written from the equations, agent by agent and record by record, in float64.

Nothing of `tacit.algorithms`, `tacit.networks`, `tacit.graphs.mixing` or `tacit.privacy.clipping` is used here.
"""

import copy
import math

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
            x = self.data.data.prepare(self.data.data.train.inputs[record : record + 1])[0].double()
            g = sample_gradient(self.module, theta, x, self.data.data.train.targets[record])
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


def combine(w, i, values):
    return sum(w[i][j] * values[j] for j in range(len(values)))


def neighbours(graph, i):
    return sorted(graph.neighbors(i))


def run_dsgd(oracle, graph, thetas, lrs, beta=0.0):
    w, n = metropolis(graph), len(thetas)
    velocity = [torch.zeros_like(t) for t in thetas]
    for lr in lrs:
        g = oracle.all(thetas)
        velocity = [beta * velocity[i] + g[i] for i in range(n)]
        thetas = [combine(w, i, thetas) - lr * velocity[i] for i in range(n)]
    return thetas


def run_local(oracle, graph, thetas, lrs):
    for lr in lrs:
        g = oracle.all(thetas)
        thetas = [theta - lr * g[i] for i, theta in enumerate(thetas)]
    return thetas


def run_dsgt(oracle, graph, thetas, lrs):
    w, n = metropolis(graph), len(thetas)
    y = [torch.zeros_like(t) for t in thetas]
    before = [torch.zeros_like(t) for t in thetas]
    for lr in lrs:
        g = oracle.all(thetas)
        y = [g[i] + combine(w, i, y) - before[i] for i in range(n)]
        thetas = [sum(w[i][j] * (thetas[j] - lr * y[j]) for j in range(n)) for i in range(n)]
        before = g
    return thetas


def run_dinno(oracle, graph, thetas, lrs, *, rho, growth, inner, adam, carry):
    n = len(thetas)
    dual = [torch.zeros_like(t) for t in thetas]

    def fresh():
        return [[torch.zeros_like(t), torch.zeros_like(t), 0] for t in thetas]

    moments = fresh()
    for lr in lrs:
        new_dual = [dual[i] + rho * sum((thetas[i] - thetas[j]) for j in neighbours(graph, i)) for i in range(n)]
        psi = list(thetas)
        if not carry:
            moments = fresh()
        for _ in range(inner):
            g = oracle.all(psi)
            stepped = []
            for i in range(n):
                # ∇ of θᵀy + ρ Σ_j ‖ψ − (θ_i + θ_j)/2‖²
                pull = sum(2 * rho * (psi[i] - (thetas[i] + thetas[j]) / 2) for j in neighbours(graph, i))
                direction = g[i] + new_dual[i] + pull
                if adam:
                    m, v, t = moments[i]
                    m, v, t = 0.9 * m + 0.1 * direction, 0.999 * v + 0.001 * direction**2, t + 1
                    moments[i] = [m, v, t]
                    direction = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
                stepped.append(psi[i] - lr * direction)
            psi = stepped
        thetas, dual, rho = psi, new_dual, rho * growth
    return thetas
