"""Noise with bands: its matrix, its event, the groups that take turns, and what a record can move."""

import copy
import itertools
import math
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_oracle import make_data, make_oracle

import tacit
from tacit.data import AgentData, Records
from tacit.data.records import concatenate
from tacit.errors import BudgetExceeded, PrivacyError
from tacit.privacy import Fast, Privacy, Secret, Seeded, accounting, calibration
from tacit.privacy.banded_noise import BandedNoise
from tacit.privacy.bands import best_bands, check_rounding, coefficients, compare_bands, prefix_error
from tacit.privacy.event import worst_of
from tacit.privacy.gradients.clipping import Lot
from tacit.privacy.groups import group_key, group_records, group_units
from tacit.privacy.mechanisms import Cyclic, Mechanism, Poisson
from tacit.privacy.noise import End, GridNoise
from tacit.privacy.noise_kinds import Gaussian
from tacit.privacy.oracle import Diagnostics
from tacit.privacy.turns import ROOM

RATE = 256 / 6000


def toeplitz(column, queries):
    matrix = np.zeros((queries, queries))
    for lag, weight in enumerate(column[:queries]):
        matrix += weight * np.eye(queries, k=-lag)
    return matrix


def make_privacy(**changes):
    return Privacy(**({"epsilon": 8.0, "delta": 1e-5, "clip": 1.0, "lot_size": 256} | changes))


def test_the_event_is_that_of_another_implementation():
    """ε for 128 queries, 8 bands, σ = 2 and δ = 1e-6, as a public implementation of the theorem states it."""
    for within, stated in ((1.0, 10.997151), (0.05, 0.566287)):
        mechanism = Mechanism(
            sampler=Cyclic(rate=within / 8, groups=8),
            clip=1.0,
            lot=1.0,
            noise=Gaussian(multiplier=2.0),
            bands=coefficients(8, 128),
        )
        assert accounting.epsilon([mechanism.event(128)], delta=1e-6) == pytest.approx(stated, rel=1e-3)


# The matrix


@pytest.mark.parametrize(("bands", "queries"), [(2, 5), (4, 30), (8, 100), (16, 7)])
def test_the_error_of_sums_is_that_of_the_matrices(bands, queries):
    column = coefficients(bands, queries)
    sums = np.tril(np.ones((queries, queries)))
    noise = sums @ np.linalg.inv(toeplitz(column, queries))
    assert prefix_error(column, queries) == pytest.approx(np.linalg.norm(noise) / math.sqrt(queries))
    assert np.linalg.norm(column) <= 1 - ROOM


def test_no_nearby_matrix_has_a_smaller_error():
    column, chance = np.array(coefficients(6, 80)), np.random.default_rng(0)
    best = prefix_error(column, 80) * np.linalg.norm(column)
    for _ in range(50):
        other = column * (1 + 0.03 * chance.standard_normal(6))
        assert prefix_error(other, 80) * np.linalg.norm(other) >= best * (1 - 1e-6)


@pytest.mark.parametrize(("epsilon", "queries", "low", "high"), [(8, 100, -0.32, -0.25), (1, 400, -0.02, 0.05)])
def test_bands_pay_for_a_large_epsilon_and_few_queries(epsilon, queries, low, high):
    """The error of sums falls by about 28 % in the first case; in the second it does not, so that independent noise is chosen."""

    def calibrate(rate, count):
        return calibration.noise_multiplier(epsilon=epsilon, delta=1e-5, sample_rate=rate, queries=count)

    compared = compare_bands(calibrate, RATE, queries)
    assert low < min(each.error for each in compared[1:]) - 1 < high
    chosen = make_privacy(epsilon=epsilon, bands="auto").plan([6000] * 2, queries)
    assert max(1, len(chosen.bands)) == best_bands(compared)
    assert (best_bands(compared) == 1) == (epsilon == 1)


# The mechanism and its event


def test_the_event_has_a_turn_for_every_band_th_query_at_as_many_times_the_rate():
    plan = make_privacy(bands=8).plan([6000], 100)
    event = plan.event(0)
    assert (event.sample_rate, event.count) == (8 * plan.sample_rates[0], 13)
    assert plan.epsilons([100])[0, 0] == pytest.approx(8, rel=1e-3)
    assert plan.epsilons([100])[0, 0] <= 8
    assert [plan.mechanism(0).event(count).count for count in (0, 1, 8, 9)] == [0, 1, 1, 2]
    assert plan.mechanism(0).sample_rate == RATE


def test_to_replace_a_record_is_to_remove_one_and_add_one_in_another_group():
    """With σ = 1, two bands and 400 queries, an attack on a record replaced by one of the other group reaches ε = 4.06 at δ = 0.01."""
    plan = make_privacy(epsilon=None, noise_multiplier=1.0, lot_size=25, bands=2).plan([1000], 400)
    turns = plan.event(0)
    ledger = tacit.Ledger()
    account = ledger.open(run="run", owners=["a"], mechanisms=plan.mechanisms, queries=400, release=True)
    for _ in range(400):
        account.spend()
    kept = ledger.guarantee("a", delta=1e-2, adjacency="replace_one")
    assert (kept.accountant, kept.epsilon > 4.07) == ("rdp", True)
    assert ledger.guarantee("a", delta=1e-2).accountant == "pld"
    poisson = replace(turns, cyclic=False)
    terms = {"delta": 1e-2, "adjacency": "replace_one"}
    assert accounting.epsilon([poisson], **terms) < 4 < kept.epsilon < 2.5 * accounting.epsilon([poisson], **terms)
    assert accounting.epsilon([turns], delta=1e-2) == accounting.epsilon([poisson], delta=1e-2)
    for mixed in ([poisson, turns], [worst_of([poisson, turns])]):  # of both kinds: the safe one
        assert accounting.epsilon(mixed, **terms) >= kept.epsilon
    assert turns.dominates(poisson)
    assert not poisson.dominates(turns)
    assert accounting.largest_epsilon([[poisson], [turns]], **terms) == (1, kept.epsilon)


def test_a_budget_under_replace_one_counts_other_groups():
    plan = make_privacy(epsilon=None, noise_multiplier=1.0, lot_size=25, bands=2).plan([1000], 400)
    asked = {"run": "run", "owners": ["a"], "mechanisms": plan.mechanisms, "queries": 400, "release": True}
    limit = {"delta": 1e-2, "adjacency": "replace_one"}
    with pytest.raises(BudgetExceeded):
        tacit.Ledger(budget=tacit.Budget(epsilon=4.0, **limit)).open(**asked)
    tacit.Ledger(budget=tacit.Budget(epsilon=8.5, **limit)).open(**asked)


def test_a_mechanism_with_bands_is_stored_and_read_back():
    one = make_privacy(bands=4).plan([6000], 50).mechanism(0)
    assert Mechanism.of_json(one.to_json()) == one
    assert one.to_json()["sampler"]["kind"] == "cyclic"
    for part, value in (("bands", []), ("bands", ["1"]), ("bands", [0.9, 0.9, 0.1, 0.1])):
        with pytest.raises(PrivacyError):
            Mechanism.of_json(one.to_json() | {part: value})
    with pytest.raises(PrivacyError, match="not known here"):
        Mechanism.of_json(one.to_json() | {"sampler": one.to_json()["sampler"] | {"kind": "poisson"}})


@pytest.mark.parametrize(
    ("sampler", "bands", "message"),
    [
        (Cyclic(rate=0.1, groups=2), (0.6, 0.8), "norm above"),
        (Cyclic(rate=0.1, groups=2), (0.5, 0.5, 0.1), "no more bands than groups"),
        (Cyclic(rate=0.1, groups=2), (0.0, 0.5), "first of them positive"),
        (Cyclic(rate=0.1, groups=2), (), "belong together"),
        (Poisson(rate=0.1), (0.5, 0.5), "belong together"),
    ],
)
def test_a_mechanism_whose_record_would_count_for_more_is_refused(sampler, bands, message):
    with pytest.raises(PrivacyError, match=message):
        Mechanism(sampler=sampler, clip=1.0, lot=1.0, noise=Gaussian(multiplier=1.0), bands=bands)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bands": 0}, "whole number from 1 to 128"),
        ({"bands": 2.0}, "whole number from 1 to 128"),
        ({"bands": 2, "adjacency": "replace_one"}, "may be in another group"),
        ({"bands": "auto", "epsilon": None, "noise_multiplier": 1.0}, "give epsilon"),
        ({"bands": 2, "noise": tacit.Cancelling(lost=1)}, "leave out lost"),
    ],
)
def test_settings_that_bands_do_not_allow_are_refused(changes, message):
    with pytest.raises(PrivacyError, match=message):
        make_privacy(**changes)


def test_more_bands_than_the_rate_allows_are_refused():
    with pytest.raises(PrivacyError, match="at most 23 bands"):
        make_privacy(bands=24).plan([6000], 100)
    with pytest.raises(PrivacyError, match="use fewer bands"):
        check_rounding(128, 10**9)


# Groups


@pytest.mark.parametrize("named", [str, int])
def test_one_unit_more_moves_no_other_to_another_group(named):
    """Neither in one table nor where parts are put together: numbers of units follow from their names, not from how many there are."""
    names = [named(number) for number in range(100, 180)]

    def groups(names, *others):
        columns = [names, *others]
        parts = [Records(torch.zeros(len(each), 1), torch.zeros(len(each))).of_units(each) for each in columns]
        units = concatenate(parts).units if others else parts[0].units
        return group_units(units.numpy(), 4, group_key(0)).tolist()

    assert groups(names)[1:] == groups(names[1:])
    assert len(set(groups(names))) == 4
    one, less = groups(names, names), groups(names[1:], names)
    assert one[1:] == less
    assert one[:80] != one[80:]  # the same name in two parts is two units


def test_one_record_more_moves_no_other_to_another_group():
    table, targets = torch.randn(200, 3), torch.arange(200)
    rows, key = np.arange(200), group_key(7)
    groups = group_records(table, targets, rows, 5, key)
    assert (np.delete(groups, 17) == group_records(table, targets, np.delete(rows, 17), 5, key)).all()
    moved = torch.cat([table[100:], table[:100]]), torch.cat([targets[100:], targets[:100]])
    assert (np.roll(groups, 100) == group_records(*moved, rows, 5, key)).all()
    assert (groups != group_records(table, targets, rows, 5, group_key(8))).any()
    counts = np.bincount(group_units(np.arange(10_000), 5, key))
    assert abs(counts - 2000).max() < 5 * math.sqrt(2000)


@pytest.mark.parametrize("unit", [None, tacit.Unit("patient", most=2)])
def test_a_lot_has_records_of_the_group_whose_turn_it_is(unit):
    data = make_data(sizes=(60, 80))
    if unit is not None:
        records = replace(data.dataset.train, units=torch.arange(140) // 2)
        data = replace(data, dataset=replace(data.dataset, train=records))
    held = (60, 80) if unit is None else (30, 40)
    oracle, *_ = make_oracle(data, sources=Seeded(3), bands=4, lot_size=6.0, unit=unit, sizes=held)
    seen = [[set() for _ in range(4)] for _ in range(2)]
    sizes = np.zeros((400, 2))
    for query in range(400):
        for agent, lot in enumerate(oracle._drawer.draw(query)[1]):
            first = lot if unit is None else lot[:, 0]
            seen[agent][query % 4] |= set(first.tolist())
            sizes[query, agent] = len(lot)
    for agent, (groups, all_of) in enumerate(zip(seen, held, strict=True)):
        assert sum(map(len, groups)) == len(set.union(*groups)) == all_of
        assert abs(sizes[:, agent].mean() - 6) < 5 * math.sqrt(6 / 400)


# Noise


def grids(agents, masks=None, ends=None):
    return GridNoise(
        clips=[2.0] * agents,
        noise_multipliers=[1.5] * agents,
        lot_sizes=[8.0] * agents,
        masks=masks,
        ends=ends,
        device=torch.device("cpu"),
    )


def released(noise, sources, sums, pairs=()):
    """Answer all sums, [queries, agents, width], one after another."""
    streams, masks = sources.make(sums.shape[1]), sources.make_masks(pairs, "run")
    out = torch.empty_like(sums)
    for query, each in enumerate(sums):
        noise.begin(query)
        opened = [source.next() for source in masks]
        noise.release(each.clone(), [s.next() for s in streams], opened, slice(0, sums.shape[1]), out[query])
    return out


@pytest.mark.parametrize("sources", [Seeded(4), Fast(4)])
def test_answers_are_arithmetic_on_fresh_gaussian_answers_to_mixed_sums(sources):
    queries, agents, width = 9, 2, 5
    column = coefficients(4, queries)
    sums = torch.randn(queries, agents, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 20
    matrix = torch.from_numpy(toeplitz(column, queries))
    answers = released(BandedNoise(grids(agents), column), sources, sums)
    fresh = released(grids(agents), sources, torch.einsum("tu,uaw->taw", matrix, sums))
    assert torch.allclose(torch.einsum("tu,uaw->taw", matrix, answers), fresh, rtol=0, atol=1e-12)


def test_noise_has_the_covariance_of_the_inverse_matrix():
    """Of 40,000 columns; every entry of the covariance is within 6 standard errors. The seed is fixed."""
    queries, width = 6, 40_000
    column = coefficients(3, queries)
    noise = released(BandedNoise(grids(1), column), Seeded(2), torch.zeros(queries, 1, width, dtype=torch.float64))[
        :, 0
    ]
    inverse = np.linalg.inv(toeplitz(column, queries))
    expected = (1.5 * 2 / 8) ** 2 * inverse @ inverse.T
    found = (noise @ noise.T / width).numpy()
    errors = np.sqrt((np.outer(expected.diagonal(), expected.diagonal()) + expected**2) / width)
    assert (abs(found - expected) < 6 * errors).all()


def test_masks_with_bands_cancel_and_leave_the_kronecker_product():
    queries, agents, width, size = 5, 3, 8_000, 2.0
    pairs = list(itertools.combinations(range(agents), 2))
    ends = [
        [End(place, 1 if pair[0] == agent else -1) for place, pair in enumerate(pairs) if agent in pair]
        for agent in range(agents)
    ]
    column = coefficients(3, queries)
    zero = torch.zeros(queries, agents, width, dtype=torch.float64)
    noise = released(BandedNoise(grids(agents, [size] * agents, ends), column), Seeded(2), zero, pairs)
    own = released(BandedNoise(grids(agents), column), Seeded(2), zero)
    assert (
        float((noise.sum(dim=1) - own.sum(dim=1)).abs().max()) < 0.02
    )  # what is left is rounding, to 2^-10 of own noise
    inverse = np.linalg.inv(toeplitz(column, queries))
    between = (1.5 * 2 / 8) ** 2 * np.eye(agents) + size**2 * (agents * np.eye(agents) - 1)
    expected = np.kron(inverse @ inverse.T, between)
    flat = noise.reshape(queries * agents, width)
    found = (flat @ flat.T / width).numpy()
    errors = np.sqrt((np.outer(expected.diagonal(), expected.diagonal()) + expected**2) / width)
    assert (abs(found - expected) < 6 * errors).all()


# The oracle


def answers_of(data, queries, seed=3, **settings):
    oracle, *_ = make_oracle(data, sources=Seeded(seed), sizes=(20,), **settings)
    theta = torch.zeros(1, oracle._model.size)
    return torch.stack([oracle.gradient(theta)[0].double() for _ in range(queries)])


def test_a_record_moves_the_queries_of_one_turn_by_at_most_the_clipping_norm():
    """Every record is in the lot at its group's turn; lots and noise of the rest are the same, since a new record comes last."""
    bands, queries = 2, 10
    both = make_data(sizes=(20,))
    rows = [(both.dataset.train.inputs[:last], both.dataset.train.targets[:last]) for last in (19, 20)]
    without, data = (AgentData.from_parts([part], name="made", classes=3) for part in rows)
    settings = {"bands": bands, "lot_size": 10.0, "noise_multiplier": 0.5}
    column = make_privacy(epsilon=None, noise_multiplier=0.5, bands=bands, lot_size=10).plan([20], 1000).bands
    moved = (
        10.0
        * torch.from_numpy(toeplitz(column, queries))
        @ (answers_of(data, queries, **settings) - answers_of(without, queries, **settings))
    )
    inputs, targets = data.dataset.train.inputs, data.dataset.train.targets
    (group,) = group_records(inputs, targets, np.array([19]), bands, b"")
    blocks = moved[int(group) :][: 2 * ((queries - int(group)) // 2)].unflatten(0, (-1, bands)).flatten(1).norm(dim=1)
    grid = 2.0**-10 * 0.5 * math.sqrt(bands * moved.shape[1])
    assert float(moved[: int(group)].norm()) <= grid
    assert ((blocks <= 1 + grid) & (blocks > 0.5)).all()


def test_a_lot_may_hold_all_records_of_an_agent_that_declares_half_of_them():
    """Equal records are all in one group, so that one record more must not make its lot too large to be answered."""
    equal = torch.ones(7_000, 4), torch.zeros(7_000, dtype=torch.int64)
    data = AgentData.from_parts([equal], name="made", classes=3)
    shown = Lot(torch.randn(4, 4), torch.arange(4) % 3, torch.tensor([0, 4]))
    sizes: list[Diagnostics] = []
    settings = {"sizes": (3_000,), "bands": 16, "lot_size": 187.5, "queries": 16}
    oracle, theta = make_oracle(data, example=shown, diagnostics=sizes, **settings)

    def gradient(record, theta):
        return record.gradient(theta)

    for _ in range(16):
        oracle.query(gradient, theta)
    assert max(each.lot_sizes[0] for each in sizes) == 7_000


def test_engines_of_a_session_are_shaped_for_full_groups():
    from tacit.training.session import Session
    from tacit.training.settings import Training

    privacy = make_privacy(epsilon=None, noise_multiplier=1.0, lot_size=500, bands=16)
    training = Training(
        algorithm=tacit.DSGD(),
        model=lambda: torch.nn.Linear(4, 3),
        data=make_data(sizes=(8_000, 8_000)),
        privacy=privacy,
        graph=tacit.graphs.ring(2),
        rounds=2,
        lr=0.1,
    )
    with Session(training) as session:
        assert session.chosen.engine.runner.shape.most_in_lot >= 2 * 8_000 + 1000


def test_a_query_inside_another_is_refused_and_no_group_has_a_turn_too_many():
    data = make_data(sizes=(40,))
    oracle, *_ = make_oracle(data, bands=4, lot_size=10.0)
    twin = copy.copy(oracle)  # another oracle that is charged to the same account
    theta, turns, errors = torch.zeros(1, oracle._model.size), [], []
    draw = oracle._drawer.draw

    def watched(query):
        turns.append(query)
        return draw(query)

    oracle._drawer.draw = watched

    def ask_again(record, theta):
        for other in (oracle, twin):
            try:
                other.gradient(theta[None])
            except PrivacyError as error:
                errors.append(str(error))
        return theta * 0

    def ask_in_a_thread(record, theta):
        thread = threading.Thread(target=ask_again, args=(record, torch.zeros(oracle._model.size)))
        thread.start()
        thread.join()
        return theta * 0

    for function in (ask_again, ask_in_a_thread):
        oracle.query(function, theta)
    assert turns == [0, 1]
    assert oracle._accounts[0].spent == 2
    assert len(errors) >= 4
    assert all("answering another query" in error for error in errors)
    oracle.gradient(theta)  # and afterwards it answers again
    assert turns == [0, 1, 2]


def test_a_turn_follows_the_queries_charged_and_a_lost_memory_starts_anew():
    data = make_data(sizes=(40,))
    oracle, *_ = make_oracle(data, bands=4, lot_size=5.0)
    theta, turns = torch.zeros(1, oracle._model.size), []
    draw = oracle._drawer.draw

    def watched(query):
        turns.append(query)
        return draw(query)

    oracle._drawer.draw = watched
    for _ in range(3):
        oracle.gradient(theta)
    assert sorted(oracle._noise._past) == [0, 1, 2]
    oracle._accounts[0].spend()  # charged by a process that died before its answer was on record
    kept = [past.sums for parts in oracle._noise._past.values() for past in parts.values()]
    oracle.skip(3)
    assert sorted(oracle._noise._past) == [0, 1, 2], "the next query follows these"
    oracle.skip(4)
    assert not oracle._noise._past
    assert not any(bool(sums.any()) for sums in kept)  # erased, and not only let go
    oracle.gradient(theta)
    oracle.gradient(theta)
    assert turns == [0, 1, 2, 4, 5]
    assert sorted(oracle._noise._past) == [4, 5]


def test_a_query_that_failed_is_not_taken_for_another(monkeypatch):
    data = make_data(sizes=(40,))
    oracle, *_ = make_oracle(data, bands=4, lot_size=5.0)
    theta = torch.zeros(1, oracle._model.size)
    oracle.gradient(theta)
    with monkeypatch.context() as patch:
        patch.setattr(oracle, "_sums", lambda *args: 1 / 0)
        with pytest.raises(PrivacyError, match="failed on a private lot"):
            oracle.gradient(theta)
    oracle.gradient(theta)
    assert [bool(parts) for _, parts in sorted(oracle._noise._past.items())] == [True, False, True]


def test_nothing_of_what_noise_remembers_is_in_the_state_and_the_end_erases_it():
    from tacit.training.session import Session
    from tacit.training.settings import Training

    data = make_data(sizes=(40, 40))
    training = Training(
        algorithm=tacit.DSGD(),
        model=lambda: torch.nn.Linear(4, 3),
        data=data,
        privacy=make_privacy(epsilon=None, noise_multiplier=1.0, lot_size=5, bands=4),
        graph=tacit.graphs.ring(2),
        rounds=6,
        lr=0.1,
        sources=Secret(),
    )
    with Session(training) as session:
        for _ in range(5):
            session.advance()
        past = session.real_oracle._noise._past
        remembered = [parts.sums for one in past.values() for parts in one.values()]
        assert len(remembered) == 4
        shapes = {tuple(sums.shape) for sums in remembered}
        for tensor in session.state_dict().values():
            if tuple(tensor.shape) in shapes:
                assert not any(torch.allclose(tensor.double(), sums) for sums in remembered)
    assert not past
    assert not any(bool(sums.any()) for sums in remembered)


def test_an_agent_that_is_away_has_no_turn_that_is_not_charged():
    """Away for every other query, an agent whose turns were counted by the queries it answers would give one group all of them."""
    from tacit.training.session import Session
    from tacit.training.settings import Training

    rounds, bands = 8, 2
    away = [tacit.Absence(2, first, first + 1) for first in range(1, rounds, 2)]
    training = Training(
        algorithm=tacit.DSGD(),
        model=lambda: torch.nn.Linear(4, 3),
        data=make_data(sizes=(40, 40, 40, 40)),
        privacy=make_privacy(
            epsilon=None, noise_multiplier=1.0, lot_size=20, bands=bands
        ),  # all of a group is in its lots
        graph=tacit.graphs.ring(4),
        rounds=rounds,
        lr=0.1,
        absences=away,
    )
    with Session(training) as session:
        drawer = session.real_oracle._drawer
        draw, lots = drawer.draw, []
        drawer.draw = lambda query: lots.append(draw(query)) or lots[-1]
        while not session.finished:
            session.advance()
        for agent, line in enumerate(session.accounts[0].lines):
            seen = Counter(record for _, each in lots for record in each[agent].tolist())
            assert len(seen) == 40
            assert max(seen.values()) <= line.event(session.accounts[0].spent).count == rounds // bands
