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

    def gradient(self, agent, stream, theta, before=None, keep=0.0, scale=1.0):
        """With `before`, the mean of (∇ℓ(θ) − keep·∇ℓ(before))/scale instead."""
        held = self.data.indices[agent]
        words = stream.words(len(held)).tolist()
        total = torch.zeros_like(theta)
        for position, word in enumerate(words):
            if word / 2**64 >= self.rates[agent]:
                continue
            record = held[position]
            x = self.data.dataset.prepare(self.data.dataset.train.inputs[record : record + 1])[0].double()
            g = sample_gradient(self.module, theta, x, self.data.dataset.train.targets[record])
            if before is not None:
                g = (
                    g - keep * sample_gradient(self.module, before, x, self.data.dataset.train.targets[record])
                ) / scale
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

    def differences(self, thetas, before, keep, scale):
        each = enumerate(self.sources)
        return [self.gradient(i, source.next(), thetas[i], before[i], keep, scale) for i, source in each]


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


def run_dinno(oracle, links, thetas, lrs, *, rho, growth, inner, step, carry, sent=None):
    n = len(thetas)
    dual = [torch.zeros_like(t) for t in thetas]
    carried = step()
    for number, lr in enumerate(lrs):
        _, near = links(number)
        read = thetas if sent is None else sent(number, thetas)
        dual = [dual[i] + rho * sum((read[i] - read[j]) for j in near[i]) for i in range(n)]
        psi, descend = list(thetas), carried if carry else step()
        for _ in range(inner):
            g = oracle.all(psi)
            # ∇ of ψᵀy + ρ Σ_j ‖ψ − (θ_i + θ_j)/2‖², where θ_j is θ_i and how the two differ as they are read
            pull = [sum(2 * rho * (psi[i] - thetas[i] - (read[j] - read[i]) / 2) for j in near[i]) for i in range(n)]
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


# The family: compressed, corrected, local, paired. `sent(number, rows)` is what neighbours read of all agents' rows in round `number`.


def exact(number, rows):
    return rows


def mixed_by(w, x, read):
    """x + W C(x) − C(x)"""
    return [x[i] + combine(w, i, read) - read[i] for i in range(len(x))]


def run_lossy_dsgd(oracle, links, thetas, lrs, *, sent):
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        g = oracle.all(thetas)
        mixed = mixed_by(w, thetas, sent(number, thetas))
        thetas = [mixed[i] - lr * g[i] for i in range(len(thetas))]
        yield thetas


def run_lossy_dsgt(oracle, links, thetas, lrs, *, sent):
    mixed, before = ([torch.zeros_like(t) for t in thetas] for _ in range(2))
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        g = oracle.all(thetas)
        y = [g[i] + mixed[i] - before[i] for i in range(len(thetas))]
        stepped = [thetas[i] - lr * y[i] for i in range(len(thetas))]
        thetas, mixed, before = mixed_by(w, stepped, sent(number, stepped)), mixed_by(w, y, sent(number, y)), g
        yield thetas


def run_q_dpsgd(oracle, links, thetas, lrs, *, sent, gamma):
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        g, read = oracle.all(thetas), sent(number, thetas)
        thetas = [thetas[i] + gamma * (combine(w, i, read) - read[i]) - lr * g[i] for i in range(len(thetas))]
        yield thetas


def run_muffliato(oracle, links, thetas, lrs, *, exchanges, gamma=1.0):
    n = len(thetas)
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        g = oracle.all(thetas)
        before = [thetas[i] - lr * g[i] for i in range(n)]
        thetas = [combine(w, i, before) for i in range(n)]
        for _ in range(exchanges - 1):
            after = [gamma * combine(w, i, thetas) + (1 - gamma) * before[i] for i in range(n)]
            thetas, before = after, thetas
        yield thetas


def run_local_dsgd(oracle, links, thetas, lrs, *, steps, step=plain):
    step, n = step(), len(thetas)
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        for _ in range(steps):
            g = oracle.all(thetas)
            thetas = [thetas[i] - lr * step(i, g[i]) for i in range(n)]
        thetas = [combine(w, i, thetas) for i in range(n)]
        yield thetas


def run_choco(oracle, links, thetas, lrs, *, sent, gamma):
    """As published, with one replica for each agent; `held` is the sum that an agent keeps instead of them."""
    n = len(thetas)
    replica = [torch.zeros_like(t) for t in thetas]
    held = [torch.zeros_like(t) for t in thetas]
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        g = oracle.all(thetas)
        half = [thetas[i] - lr * g[i] for i in range(n)]
        q = sent(number, [half[i] - replica[i] for i in range(n)])
        replica = [replica[i] + q[i] for i in range(n)]
        held = [held[i] + combine(w, i, q) for i in range(n)]
        thetas = [half[i] + gamma * (held[i] - replica[i]) for i in range(n)]
        yield thetas


def run_deepsqueeze(oracle, links, thetas, lrs, *, sent, gamma):
    n = len(thetas)
    error = [torch.zeros_like(t) for t in thetas]
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        g = oracle.all(thetas)
        half = [thetas[i] - lr * g[i] for i in range(n)]
        v = [half[i] + error[i] for i in range(n)]
        read = sent(number, v)
        error = [v[i] - read[i] for i in range(n)]
        thetas = [half[i] + gamma * (combine(w, i, read) - read[i]) for i in range(n)]
        yield thetas


def run_sdm_dsgd(oracle, links, thetas, lrs, *, kept, damping):
    """`kept(number)` are the places that are kept in a round. On links that stay, `mixed` is Wθ."""
    n, width = len(thetas), len(thetas[0])
    w, _ = links(0)
    mixed = [combine(w, i, thetas) for i in range(n)]
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        g, places = oracle.all(thetas), kept(number)
        change = [damping * (mixed[i] - thetas[i] - lr * g[i]) for i in range(n)]
        sparse = []
        for row in change:
            sparse.append(torch.zeros_like(row))
            for place in places:
                sparse[-1][place] = row[place] * width / len(places)
        thetas = [thetas[i] + sparse[i] for i in range(n)]
        mixed = [mixed[i] + combine(w, i, sparse) for i in range(n)]
        yield thetas


def run_d2(oracle, links, thetas, lrs, *, lazy):
    """θ_{k+1} = W̃(2θ_k − θ_{k−1} − η_k g_k + η_{k−1} g_{k−1}), and W̃(θ_0 − η_0 g_0) in the first round."""
    n, before, step_before = len(thetas), None, None
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        step = [lr * g for g in oracle.all(thetas)]
        if before is None:
            z = [thetas[i] - step[i] for i in range(n)]
        else:
            z = [2 * thetas[i] - before[i] - step[i] + step_before[i] for i in range(n)]
        before, step_before = thetas, step
        thetas = [(z[i] + combine(w, i, z)) / 2 if lazy else combine(w, i, z) for i in range(n)]
        yield thetas


def run_extra(oracle, links, thetas, lrs):
    """x_1 = Wx_0 − ηg_0;  x_{k+2} = (I + W)x_{k+1} − W̃x_k − (η g_{k+1} − η g_k), with the W of the round in which a value was mixed."""
    n, before = len(thetas), None
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        step = [lr * g for g in oracle.all(thetas)]
        mixed = [combine(w, i, thetas) for i in range(n)]
        if before is None:
            after = [mixed[i] - step[i] for i in range(n)]
        else:
            old, old_mixed, old_step = before
            after = [thetas[i] + mixed[i] - (old[i] + old_mixed[i]) / 2 - (step[i] - old_step[i]) for i in range(n)]
        before = thetas, mixed, step
        thetas = after
        yield thetas


def run_ad_psgd(oracle, links, thetas, lrs, *, delay):
    history = [thetas] * (delay + 1)
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        g = oracle.all(history[-1 - delay])
        now = history[-1]
        history.append([combine(w, i, now) - lr * g[i] for i in range(len(now))])
        yield history[-1]


def run_leasgd(oracle, links, thetas, lrs, *, loss, rho, every):
    n, ranks = len(thetas), []
    for number, lr in enumerate(lrs):
        _, near = links(number)
        if number % every == 0:
            ranks = [loss(theta) for theta in thetas]
        g, after = oracle.all(thetas), []
        for i in range(n):
            leaders = [thetas[j] for j in near[i] if ranks[j] < ranks[i]]
            theta = thetas[i] - lr * g[i]
            if leaders:
                theta = theta - lr * rho * (thetas[i] - sum(leaders) / len(leaders))
            after.append(theta)
        thetas = after
        yield thetas


def run_dp_srm(oracle, links, thetas, lrs, *, a, slack):
    n, before, v = len(thetas), None, None
    for number, lr in enumerate(lrs):
        w, _ = links(number)
        if number == 0:
            v = oracle.all(thetas)
        else:
            q = oracle.differences(thetas, before, 1 - a, slack * a)
            v = [slack * a * q[i] + (1 - a) * v[i] for i in range(n)]
        before, thetas = thetas, [combine(w, i, thetas) - lr * v[i] for i in range(n)]
        yield thetas


def median(own, others):
    each = torch.stack([own, *others]).sort(dim=0).values
    return (each[(len(each) - 1) // 2] + each[len(each) // 2]) / 2


def trimmed(own, others, *, b):
    """Without the b smallest and b largest of every coordinate, or as many as leave one or two."""
    each = torch.stack([own, *others]).sort(dim=0).values
    b = min(b, (len(each) - 1) // 2)
    return each[b : len(each) - b].mean(0)


def clipped(own, others, *, tau):
    """Lengths are rounded to float32."""
    lengths = [float((other - own).norm().float()) for other in others]
    pulls = [(other - own) * (tau / max(length, tau)) for other, length in zip(others, lengths, strict=True)]
    return own + sum(pulls) / (len(others) + 1) if pulls else own


def run_robust_dsgd(oracle, links, thetas, lrs, *, mean):
    for number, lr in enumerate(lrs):
        _, near = links(number)
        g = oracle.all(thetas)
        thetas = [mean(thetas[i], [thetas[j] for j in near[i]]) - lr * g[i] for i in range(len(thetas))]
        yield thetas
