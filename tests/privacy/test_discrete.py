"""Rounding before the sum and discrete Gaussian noise: against exact sums, slow loops and an independent count of ε."""

import math
import struct
from bisect import bisect_right
from itertools import pairwise

import mpmath
import networkx as nx
import numpy as np
import pytest
import torch
from scipy.stats import chisquare, norm

import tacit
from tacit import algorithms
from tacit.audit.attacks.worlds import first_output, linear_data, linear_model
from tacit.errors import InvalidInput, PrivacyError
from tacit.networks import DENSE
from tacit.privacy import Discrete, Event, Mechanism, accounting, discrete_noise
from tacit.privacy.event import worst_of
from tacit.privacy.gradients.batches import BatchData
from tacit.privacy.gradients.clipping import Quantum, power_below
from tacit.privacy.gradients.rounding import RoundingKernel, round_rows
from tacit.privacy.mechanisms import Poisson
from tacit.privacy.noise_kinds import DiscreteGaussian
from tacit.training.session import Session

WIDTH = 6
FALSE_ALARM = 1e-7


def weights(s, most):
    return [mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(s) ** 2)) for k in range(most + 1)]


def probabilities(s, most):
    """P(k) for |k| ≤ most, by the definition."""
    each = weights(s, most)
    whole = each[0] + 2 * sum(each[1:])
    return {k: each[abs(k)] / whole for k in range(-most, most + 1)}


# The noise


@pytest.mark.chance(1e-7)
@pytest.mark.parametrize("s", [0.4, 2.5, 300.0])
def test_integers_have_the_probabilities_of_the_definition(s):
    drawn = discrete_noise.draw_integers(tacit.Secret().make(1)[0].next(), s, 200_001)
    edges = [-math.inf, *sorted({round(s * z) + 0.5 for z in (-2.5, -1.5, -0.7, -0.1, 0.1, 0.7, 1.5, 2.5)}), math.inf]
    exact = probabilities(s, round(20 * s) + 10)
    expected = [float(sum(p for k, p in exact.items() if low < k < high)) for low, high in pairwise(edges)]
    counted = np.histogram(drawn, bins=edges)[0]
    assert chisquare(counted, len(drawn) * np.array(expected) / sum(expected)).pvalue > FALSE_ALARM


@pytest.mark.parametrize("s", [0.05, 0.7, 3.0])
def test_the_table_has_the_exact_distribution(s):
    with mpmath.workprec(400):
        each = weights(s, 60)
        whole = each[0] + 2 * sum(each[1:])
        totals = [(each[0] + 2 * sum(each[1 : m + 1])) / whole for m in range(61)]
        entries = [int(mpmath.floor(total * 2**63)) for total in totals]
    made = discrete_noise._table(s).tolist()
    assert made == [min(entry, 2**63 - 1) for entry in entries][: len(made)]
    assert made[-1] == 2**63 - 1


@pytest.mark.parametrize("entry", [0, 3, 7])
def test_a_word_that_does_not_decide_is_decided_by_more_bits(entry):
    """U begins with the same 63 bits as P(|k| ≤ m). Zeros after that put it below, ones above, and P's own bits ask for more still."""
    s = 3.0
    table = discrete_noise._table(s)
    words = np.array([int(table[entry]) * 2, int(table[entry]) * 2 + 1], dtype=np.uint64)

    def made(more):
        return discrete_noise._integers(words, table, s, more).tolist()

    assert made(lambda place, level: bytes(64)) == [entry, -entry]
    assert made(lambda place, level: b"\xff" * 64) == [entry + 1, -entry - 1]
    own = discrete_noise._entries(s, 63 + 256)[entry] & (2**256 - 1)
    below = made(lambda place, level: bytes(64) if level else own.to_bytes(32, "little") + bytes(32))
    above = made(lambda place, level: b"\xff" * 64 if level else own.to_bytes(32, "little") + bytes(32))
    assert (below, above) == ([entry, -entry], [entry + 1, -entry - 1])


# Rounding


def test_rounding_is_right_on_average():
    """The keys are the numbers of queries, and so no seed is drawn."""
    scaled = torch.tensor([[0.0, 0.25, -0.25, 3.999, -7.5, 12.0]], dtype=torch.float64)
    made = torch.cat([round_rows(scaled, 100.0, torch.tensor(key)) for key in range(4000)])
    assert bool((made == made.round()).all())
    assert bool(((made - scaled).abs() < 1).all())
    assert bool((made[:, [0, 5]] == scaled[:, [0, 5]]).all())
    share = scaled - scaled.floor()
    deviation = (share * (1 - share) / 4000).sqrt().clamp(min=1e-12)
    assert float(((made.mean(0) - scaled).abs() / deviation).max()) < norm.isf(FALSE_ALARM / 12)


def test_no_vector_is_longer_than_the_bound():
    """Most would be: they are cut towards zero, and then no longer than they were."""
    scaled = torch.randn(500, 400, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scaled *= (4 / scaled.norm(dim=1))[:, None]
    lengths = [round_rows(scaled, limit, torch.tensor(1)).norm(dim=1) for limit in (4.0, 10.0, 1e3)]
    assert [float(each.max()) <= limit for each, limit in zip(lengths, (4.0, 10.0, 1e3), strict=True)] == [True] * 3
    assert float(lengths[0].max()) == 0.0
    assert float(lengths[2].min()) > 4.0  # without a bound, rounding makes every one of them longer


def test_a_records_rounded_vector_does_not_depend_on_what_is_beside_it():
    model = tacit.models.FlatModel(linear_model(40).double(), first_output)
    kernel = RoundingKernel(model, lambda record, theta: record.gradient(theta), 40, Discrete(3, 1.5))
    inputs = torch.randn(12, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    clip = torch.tensor([0.7, 1.3, 1.3], dtype=torch.float64)

    def sums(keep):
        public = (torch.zeros(3, 40, dtype=torch.float64), torch.full((3, 1), 5))
        data = BatchData(public, inputs, torch.zeros(12), keep)
        return kernel.clipped(data, clip, Quantum(power_below(clip), 10))[0]

    every = torch.ones(3, 4, dtype=torch.bool)
    alone = torch.zeros(3, 40, dtype=torch.float64)
    for place in range(4):
        keep = torch.zeros_like(every)
        keep[:, place] = True
        alone += sums(keep)
        assert bool((sums(keep).norm(dim=1) <= 1.5 * clip).all())
    assert torch.equal(sums(every), alone)
    steps = power_below(clip)[:, None] / 8
    assert bool((alone / steps == (alone / steps).round()).all())


def test_room_is_settled_for_the_width_and_the_finest_clip():
    assert Discrete(10).settle(20_000, [1.0]).room == pytest.approx(1.0058, abs=2e-3)
    assert Discrete(10).settle(20_000, [1.0, 1.99]).room == Discrete(10).settle(20_000, [1.0]).room
    assert Discrete(0).settle(8, [1.0]).room == pytest.approx(1 + math.sqrt(8), abs=1e-4)
    assert Discrete(4, room=2.0).settle(8, [1.0]).room == 2.0
    with pytest.raises(PrivacyError, match="give room"):
        Discrete(10).settle(None, [1.0])
    with pytest.raises(PrivacyError, match="nothing but noise"):
        Discrete(0).settle(10**8, [1.0])


# The whole mechanism, against a loop


def settings(noise, *, sigma=0.8, lots=(4.0, 3.0), rounds=3, clips=(0.6, 1.1)):
    chance = torch.Generator().manual_seed(4)
    # Lengths without rounding: 1 + 4 + 4 + 16 = 25.
    inputs = torch.stack([torch.tensor([1.0, 2, 2, 4, 0, 0])[torch.randperm(6, generator=chance)] for _ in range(22)])
    inputs *= torch.randint(0, 2, inputs.shape, generator=chance) * 2 - 1
    inputs = inputs.double() * 2.0 ** torch.randint(-5, 1, (22, 1), generator=chance)
    return {
        "model": linear_model(WIDTH).double(),
        "loss": first_output,
        "data": linear_data(inputs, 11, "vectors"),
        "graph": nx.path_graph(2),
        "privacy": tacit.Privacy(
            noise_multiplier=sigma, delta=1e-3, clip=list(clips), lot_size=list(lots), accountant="rdp", noise=noise
        ),
        "rounds": rounds,
        "lr": 0.3,
        "sources": tacit.Seeded(3),
    }


def mixed_word(word):
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ word >> shift) * factor % 2**64
    return word ^ word >> 31


def rounded_number(x, place, query):
    golden = 0x9E3779B97F4A7C15
    key = mixed_word(((place + 1) * golden + mixed_word(query * golden % 2**64)) % 2**64)
    bits = int.from_bytes(struct.pack("<d", x), "little")
    up = mixed_word((bits + key) % 2**64) >> 34
    return math.floor(x + up / 2**30)


def looped_answer(training, agent, stream, query):
    """(Σ round(clip(v)) + γ·k)/L for agents whose gradients are their records."""
    privacy, data = training["privacy"], training["data"]
    clip, lot, noise = privacy.clip[agent], privacy.lot_size[agent], privacy.noise
    step = 2.0 ** (math.floor(math.log2(clip)) - noise.bits)
    held = data.indices[agent]
    total = [0] * WIDTH
    for record, word in zip(held.tolist(), stream.words(len(held)).tolist(), strict=True):
        if word / 2**64 >= lot / len(held):
            continue
        v = data.dataset.train.table[record]
        factor = min(1.0, clip * (1 - 2.0**-16) / float(v.norm()))
        x = [float(value) * (factor / step) for value in v]
        rounded = [rounded_number(value, place, query) for place, value in enumerate(x)]
        if sum(k * k for k in rounded) > (noise.room * clip / step) ** 2:
            rounded = [math.trunc(value) for value in x]
        total = [a + b for a, b in zip(total, rounded, strict=True)]
    s = privacy.noise_multiplier * noise.room * clip / step
    exact, totals = probabilities(s, math.ceil(14 * s)), []
    for size in range(math.ceil(14 * s) + 1):
        totals.append((totals[-1] if totals else 0) + exact[size] + (exact[-size] if size else 0))
    for place, word in enumerate(stream.words(WIDTH + WIDTH % 2).tolist()[:WIDTH]):
        size = bisect_right(totals, mpmath.mpf(word >> 1) / 2**63)
        total[place] += -size if word & 1 else size
    return torch.tensor([step * value / lot for value in total], dtype=torch.float64)


@pytest.mark.parametrize("noise", [Discrete(5, 1.2), Discrete(0, 1.5)], ids=["fine", "coarse, and cut towards zero"])
def test_answers_are_those_of_a_slow_loop(noise):
    training = settings(noise)
    sources = training["sources"].make(2)
    with Session(tacit.Training(algorithm=tacit.Local(), **training | {"graph": None})) as session:
        for query in range(3):
            made = session.real_oracle.gradient(session.state.theta)
            expected = [looped_answer(training, agent, source.next(), query) for agent, source in enumerate(sources)]
            torch.testing.assert_close(made, torch.stack(expected), rtol=0, atol=1e-12)


def test_q_dpsgd_2_without_quantised_messages_is_dsgd_with_discrete_noise():
    training = settings(Discrete(5))
    plain, rule = tacit.DSGD(), algorithms.QDPSGD2(codec=DENSE)
    made, expected = (tacit.train(each, **training).theta for each in (rule, plain))
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-14)


def test_q_dpsgd_2_is_refused_without_discrete_noise():
    training = settings(None)
    with pytest.raises(InvalidInput, match=r"accountant=.rdp., or --noise discrete"):
        tacit.train(algorithms.QDPSGD2(), **training)


# Accounting


def moments(order, rate, sigma):
    """E_P[((1 - q) + qQ/P)^α] of the sampled Gaussian mechanism, term by term."""
    terms = (
        math.comb(order, j)
        * mpmath.mpf(1 - rate) ** (order - j)
        * mpmath.mpf(rate) ** j
        * mpmath.exp(j * (j - 1) / (2 * mpmath.mpf(sigma) ** 2))
        for j in range(order + 1)
    )
    return sum(terms)


@pytest.mark.parametrize("order", [2, 3, 7])
@pytest.mark.parametrize(("s", "shift"), [((0.6), (1, 0)), (2.0, (3, -1))])
def test_divergences_of_whole_orders_are_those_of_the_continuous_mechanism(order, s, shift):
    """Added up over the grid of two dimensions, in both directions."""
    rate, reach = 0.2, round(9 * s * math.sqrt(order)) + order * 3
    one = {k: weights(s, 2 * reach)[abs(k)] for k in range(-2 * reach, 2 * reach + 1)}
    whole = sum(one.values()) ** 2
    there, back = mpmath.mpf(0), mpmath.mpf(0)
    for x in range(-reach, reach + 1):
        for y in range(-reach, reach + 1):
            p = one[x] * one[y] / whole
            mixture = (1 - rate) * p + rate * one[x - shift[0]] * one[y - shift[1]] / whole
            there += mixture**order * p ** (1 - order)
            back += p**order * mixture ** (1 - order)
    expected = moments(order, rate, s / math.hypot(*shift))
    assert there == pytest.approx(expected, rel=1e-9)
    assert back <= there


def test_the_other_direction_is_never_larger():
    """The inequality from which that follows, on a grid of ratios, rates and orders."""
    for order in (1.5, 2, 5, 30):
        for rate in (1e-3, 0.2, 0.9, 1.0):
            for r in np.geomspace(1, 50, 40):
                a, b = 1 - rate + rate * r, rate + (1 - rate) * r
                left, right = a**order - a ** (1 - order), r**order * b ** (1 - order) - r ** (1 - order) * b**order
                assert left >= right * (1 - 1e-9) - 1e-12


def counted_epsilon(rate, sigma, queries, delta, orders=range(2, 60)):
    """ε from the moments alone: every whole order's bound, converted by Canonne, Kamath & Steinke's proposition 12."""
    return min(
        float(queries * mpmath.log(moments(order, rate, sigma)) / (order - 1))
        + math.log1p(-1 / order)
        - math.log(delta * order) / (order - 1)
        for order in orders
    )


def test_epsilon_of_a_run_is_that_of_an_independent_count():
    training = settings(Discrete(6), sigma=2.5, rounds=9)
    result = tacit.train(tacit.DSGD(), **training)
    for agent, rate in enumerate((4 / 11, 3 / 11)):
        found = result.guarantees()[agent]
        assert found.epsilon == pytest.approx(counted_epsilon(rate, 2.5, 9, 1e-3), rel=1e-6)
        assert found.accountant == "rdp"
    assert result.plan.rounding == Discrete(6).settle(WIDTH, [0.6, 1.1])


def test_noise_is_calibrated_to_the_same_count():
    privacy = tacit.Privacy(epsilon=2.0, delta=1e-3, clip=1.0, lot_size=10, accountant="rdp", noise=Discrete(8))
    plan = privacy.plan([100, 50], 30, width=1000)
    for rate, sigma in zip((0.1, 0.2), plan.noise_multipliers, strict=True):
        assert 1.99 < counted_epsilon(rate, sigma, 30, 1e-3) <= 2.0 + 1e-9


def test_whatever_is_counted_with_discrete_noise_is_counted_by_whole_orders():
    smooth, discrete = (Event(sample_rate=0.1, noise_multiplier=2.0, count=50, discrete=each) for each in (False, True))
    terms = {"delta": 1e-5}
    alone = accounting.epsilon([discrete], **terms)
    assert alone == accounting.epsilon([discrete], **terms, accountant="rdp")
    assert alone > accounting.epsilon([smooth], **terms)
    both = accounting.epsilon([smooth, discrete], **terms)
    twice = Event(sample_rate=0.1, noise_multiplier=2.0, count=100, discrete=True)
    assert both == pytest.approx(accounting.epsilon([twice], **terms), rel=1e-12)
    assert accounting.largest_epsilon([[smooth], [discrete]], **terms) == (1, alone)
    assert discrete.dominates(smooth)
    assert not smooth.dominates(discrete)
    assert worst_of([smooth, discrete]).discrete
    replaced = [accounting.epsilon([each], **terms, adjacency="replace_one") for each in (discrete, smooth)]
    assert 2 * alone < replaced[0] < 4 * alone
    assert replaced[1] < replaced[0]


def test_a_mechanism_with_rounding_survives_json():
    noise = DiscreteGaussian(multiplier=1.5, bits=7, room=1.25)
    mechanism = Mechanism(sampler=Poisson(rate=0.1), clip=0.5, lot=8.0, noise=noise)
    document = mechanism.to_json()
    assert document["noise"] == {"kind": "discrete", "multiplier": 1.5, "bits": 7, "room": 1.25}
    assert Mechanism.of_json(document) == mechanism
    assert mechanism.event(4) == Event(sample_rate=0.1, noise_multiplier=1.5, count=4, discrete=True)
    without = document | {"noise": {"kind": "discrete", "multiplier": 1.5, "bits": 7}}
    for broken in (without, document | {"noise": document["noise"] | {"room": 0.5}}):
        with pytest.raises(PrivacyError):
            Mechanism.of_json(broken)


def test_what_discrete_noise_cannot_do_is_refused():
    terms = {"epsilon": 1.0, "delta": 1e-3, "clip": 1.0, "lot_size": 2}
    with pytest.raises(PrivacyError, match="Rényi divergences only, so use 'rdp'"):
        tacit.Privacy(**terms, noise=Discrete())
    with pytest.raises(PrivacyError, match="leave out one of them"):
        tacit.Privacy(**terms, noise=Discrete(), accountant="rdp", bands=2)
    loud = tacit.Privacy(**terms | {"epsilon": 0.01}, noise=Discrete(16), accountant="rdp").plan([100], 50, width=9)
    with pytest.raises(PrivacyError, match="use fewer bits"):
        loud.mechanism(0)
    with pytest.raises(PrivacyError, match="from 0 to 16"):
        Discrete(bits=17)


# Does noise cover what a record can do?


def influence_and_noise(training):
    """How far one more record moves a sum, by the oracle's own answers, and the standard deviation of noise over σ.

    Every record is in every lot, so that the same seed gives the same noise with and without a record.
    """
    moved = []
    canary = torch.full((1, WIDTH), 100.0, dtype=torch.float64)
    parts = [
        torch.zeros(3, WIDTH, dtype=torch.float64),
        torch.cat([torch.zeros(3, WIDTH, dtype=torch.float64), canary]),
    ]
    privacy = tacit.Privacy(
        noise_multiplier=1.0, delta=1e-3, clip=1.0, lot_size=3, accountant="rdp", noise=training["privacy"].noise
    )
    answers = []
    for inputs in parts:
        own = training | {
            "data": linear_data(inputs, len(inputs), "few"),
            "sizes": [3],
            "graph": None,
            "privacy": privacy,
        }
        with Session(tacit.Training(algorithm=tacit.Local(), **own | {"rounds": 40})) as session:
            answers.append(torch.cat([session.real_oracle.gradient(session.state.theta) for _ in range(40)]))
    moved = 3 * (answers[1] - answers[0]).norm(dim=1)
    return float(moved.max()), 3 * float(answers[0].square().mean().sqrt())


def test_noise_covers_rounded_records():
    """240 numbers of a fixed seed: their root mean square is within 15 % of the standard deviation."""
    noise = Discrete(0, 2.0)
    influence, deviation = influence_and_noise(settings(noise))
    assert 1.4 < influence <= 2.0
    assert deviation == pytest.approx(2.0, rel=0.15)


def test_rounding_that_is_not_counted_is_caught(monkeypatch):
    """Planted: noise for C, as before rounding. A record then moves the sum by more than noise is for."""
    monkeypatch.setattr(DiscreteGaussian, "steps", lambda self, clip: self.multiplier * clip / self.rounding.step(clip))
    influence, deviation = influence_and_noise(settings(Discrete(0, 2.0)))
    assert influence > 1.2 * deviation
