"""Each detector finds the fault that it is for, and stays silent on a sound system. Seeds are fixed, but where a rate is stated."""

from dataclasses import replace

import faults
import numpy as np
import pytest
import torch
from torch import nn

from tacit import DSGD, Ledger, NoPrivacy, Privacy, Training
from tacit.audit import check
from tacit.audit.detectors.bare_noise import BareNoise, read_noise
from tacit.audit.detectors.influence import _largest, check_influence
from tacit.audit.detectors.lot_dependence import Sampled, between_agents, between_rounds, between_two_records
from tacit.audit.detectors.lots import check_lots, read_lots
from tacit.audit.detectors.made_up import use_made_up_records
from tacit.audit.detectors.noise import check_noise, grid_step
from tacit.audit.noise.noise_statistics import find_shift
from tacit.data import AgentData
from tacit.errors import DataError, InvalidInput
from tacit.graphs import complete
from tacit.privacy import GhostEngine
from tacit.training.session import Session

RISK = 1e-6
AGENTS, RECORDS, LOT, QUERIES = 3, 60, 6, 50
SIZES = pytest.mark.parametrize(("features", "lot"), [(16, LOT), (64, 32)])


def training(features=16, lot=LOT, **changes):
    generator = torch.Generator().manual_seed(0)
    parts = [(torch.randn(RECORDS, features, generator=generator), torch.arange(RECORDS) % 4) for _ in range(AGENTS)]
    settings = {
        "algorithm": DSGD(),
        "model": lambda: nn.Linear(features, 4),
        "data": AgentData.from_parts(parts, name="small", classes=4),
        "privacy": Privacy(noise_multiplier=1.5, delta=1e-3, clip=1.0, lot_size=lot),
        "rounds": 10,
        "lr": 0.1,
        "graph": complete(AGENTS),
        "sources": faults.UNKNOWN,
    }
    return Training(**{**settings, **changes})


def outcomes(findings):
    return {f"{each.part}: {each.name}": each.outcome for each in findings}


def failed(findings):
    return {name for name, outcome in outcomes(findings).items() if outcome == "fail"}


def lots_of(settings, queries=QUERIES):
    sizes = settings.data.sizes
    return check_lots(read_lots(settings, settings.privacy.plan(sizes, 10), sizes, queries), RISK)


def noise_of(settings, *, width=200, queries=10, dtype=torch.float32):
    plan = settings.privacy.plan(settings.data.sizes, 10)
    return check_noise(read_noise(settings, plan, width, dtype, queries), RISK)


def influence_of(settings):
    with Session(use_made_up_records(settings)) as session:
        return check_influence(session)


@pytest.mark.chance(RISK)
@SIZES
def test_a_sound_system_passes_with_secret_lots_and_noise_and_is_not_charged(features, lot):
    ledger, steps = Ledger(), []
    settings = training(features=features, lot=lot, sources=None, ledger=ledger)
    report = check(settings, false_alarm=RISK, on_step=steps.append)
    assert ledger.entries() == []
    assert steps[-1] == "lots"
    assert report.verdict == "no fault found", report.failed
    assert {each.part for each in report.findings} == {"influence", "bits", "noise", "lots"}
    assert 0 < report.false_alarm <= RISK
    for part, name in (("influence", "own sum"), ("noise", "shifts"), ("lots", "rounds"), ("lots", "records")):
        assert report.outcome(part, name) == "pass"


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (faults.use_each_lot_twice, {"lots: rounds"}),
        (faults.alternate_even_and_odd_records, {"lots: size", "lots: rounds", "lots: records"}),
        (faults.use_one_lot_throughout, {"lots: rounds"}),
        (faults.draw_lots_of_one_size, {"lots: size"}),
        (faults.five_lots_under_one_noise, {"lots: readable"}),
        (lambda patch: faults.draw_at(1.5, patch), {"lots: rate"}),
        (faults.divide_by_the_drawn_lot, {"lots: readable"}),
    ],
    ids=["twice", "even and odd", "one", "one size", "five", "rate", "divided"],
)
def test_lots_that_are_not_poisson_are_found(plant, found, monkeypatch):
    plant(monkeypatch)
    assert found <= failed(lots_of(training()))


def test_each_lot_used_twice_is_found_at_a_small_rate(monkeypatch):
    faults.use_each_lot_twice(monkeypatch)
    parts = [(torch.zeros(2000, 16), torch.zeros(2000, dtype=torch.int64))]
    alone = training(data=AgentData.from_parts(parts, name="many", classes=4), graph=complete(1))
    assert {"lots: rounds"} <= failed(lots_of(alone, queries=40))


def test_lots_that_agents_share_are_found():
    alike = replace(faults.UNKNOWN, lots=Alike(faults.UNKNOWN.lots))
    assert "lots: agents" in failed(lots_of(training(sources=alike)))


class Alike:
    """Every agent draws as the first does."""

    secret = True

    def __init__(self, sources):
        self.sources = sources

    def make(self, agents, trial=0):
        return [self.sources.make(1, trial)[0] for _ in range(agents)]


def test_two_records_that_are_always_or_never_together_are_found():
    """Made-up draws: one pair in a hundred records; a sound table of the same size passes."""
    chance = np.random.default_rng(0)
    sound = chance.random((400, 60)) < 0.3
    together, apart = sound.copy(), sound.copy()
    together[:, 7] = together[:, 41]
    apart[:, 7] &= ~apart[:, 41]
    values = [between_two_records(Sampled.of([each], [0.3])).p_value for each in (sound, together, apart)]
    assert values[0] > 0.01
    assert max(values[1:]) < RISK


def test_p_values_of_independent_draws_are_never_too_small():
    """The seeds are fixed, so there is no false alarm: of 200 tables, about 2 would be below 1 % if bounds were tight."""
    chance = np.random.default_rng(1)
    tables = [[chance.random((12, 20)) < 0.2 for _ in range(2)] for _ in range(200)]
    for test in (between_rounds, between_agents, between_two_records):
        values = np.array([test(Sampled.of(each, [0.2, 0.2])).p_value for each in tables])
        assert (values < 0.01).mean() <= 0.02, test.__name__


def test_few_rare_draws_are_inconclusive():
    parts = [(torch.zeros(3000, 16), torch.zeros(3000, dtype=torch.int64))]
    rare = training(
        data=AgentData.from_parts(parts, name="rare", classes=4),
        graph=complete(1),
        privacy=Privacy(noise_multiplier=1.5, delta=1e-3, clip=1.0, lot_size=1),
    )
    assert outcomes(lots_of(rare, queries=8))["lots: pairs"] == "inconclusive"


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        (faults.SHIFTED, {"noise: shifts"}),
        (faults.HALVED, {"noise: size", "noise: shape"}),
        (faults.FORGOTTEN, {"noise: size"}),
        (faults.SAME_EVERY_ROUND, {"noise: shifts"}),
        (faults.UNKNOWN, set()),
    ],
    ids=["shifted", "halved", "forgotten", "same", "sound"],
)
def test_spoilt_noise_is_found(sources, found):
    seen = failed(noise_of(training(sources=sources)))
    assert found <= seen
    assert seen or not found


def test_noise_divided_by_the_drawn_lot_is_found(monkeypatch):
    faults.divide_by_the_drawn_lot(monkeypatch)
    assert "noise: size" in failed(noise_of(training()))


@pytest.mark.parametrize("shift", [-5, 0, 3])
@pytest.mark.parametrize("lag", [0, 4])
def test_noise_is_found_at_every_lag_and_shift(lag, shift):
    long = np.random.default_rng(2).standard_normal((20, 60))
    one, other = long[:12, 10:50], long[lag : lag + 12, 10 + shift : 50 + shift]
    seen = find_shift(one, other)
    assert (seen.lag, seen.shift) == (-lag, -shift)
    assert seen.p_value < RISK


def test_p_values_of_shifts_are_never_too_small():
    """The seeds are fixed, so there is no false alarm."""
    chance = np.random.default_rng(3)
    pairs = [chance.standard_normal((2, 4, 6)) for _ in range(300)]
    for values in ([find_shift(a, b).p_value for a, b in pairs], [find_shift(a).p_value for a, _ in pairs]):
        assert (np.array(values) < 0.05).mean() <= 0.05


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_grid_is_seen_where_there_is_one(dtype):
    numbers = np.random.default_rng(4).standard_normal(5000)
    step = 1 / 1311
    on = (np.round(numbers / step) * step).astype(dtype).astype(float)
    assert grid_step(on) == pytest.approx(step, rel=1e-4)
    assert grid_step(numbers.astype(dtype).astype(float)) is None


def test_float64_answers_on_no_grid_fail_and_float32_ones_are_inconclusive():
    noise = np.random.default_rng(5).standard_normal((1, 4, 500))
    seen = [outcomes(check_noise(BareNoise(noise=noise, sigmas=(1.0,), exact=exact), RISK)) for exact in (True, False)]
    assert [each["bits: grid"] for each in seen] == ["fail", "inconclusive"]


@SIZES
def test_influence_of_a_sound_engine_is_one_clipping_norm(features, lot):
    found = influence_of(training(features=features, lot=lot))
    assert failed(found) == set()
    own = next(each for each in found if each.name == "own sum")
    assert own.outcome == "pass"
    assert 0.99 < float(own.measured.split("at most ")[1].split(" C")[0]) <= 1


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (faults.clip_by_the_largest_coordinate, "influence: own sum"),
        (faults.raise_on_huge_inputs, "influence: odd records"),
    ],
    ids=["largest coordinate", "an error"],
)
def test_a_record_that_moves_too_much_or_is_revealed_is_found(plant, found, monkeypatch):
    plant(monkeypatch)
    assert found in failed(influence_of(training()))


def test_the_first_of_the_records_that_move_a_sum_as_far_but_for_rounding_is_named():
    moved = [(0.4, "blank"), (1 - 2**-24, "huge"), (1.0, "tiny"), (0.7, "nan")]
    assert _largest(moved) == (1.0, "huge")
    assert _largest([(0.0, "blank")]) == _largest([]) == (0.0, "none")


def test_a_preparation_that_mixes_records_is_refused_and_could_mix_nothing(monkeypatch):
    settings = training()
    table = settings.data.dataset
    mixed = replace(settings.data, dataset=replace(table, prepare=lambda batch: batch - batch.nan_to_num().mean(dim=0)))
    with pytest.raises(DataError, match="prepare mixes records"):
        influence_of(replace(settings, data=mixed))
    monkeypatch.setattr("tacit.training.preparation.check_isolated", lambda prepare, public: None)
    assert not failed(influence_of(replace(settings, data=mixed)))


def test_an_engine_in_which_records_matter_to_each_other_is_found(monkeypatch):
    """Each record's norm, and with it the sum, is off by a hair that depends on how many there are."""
    sound = GhostEngine.clipped_sums

    def mixing(self, theta, lot, clip):
        found = sound(self, theta, lot, clip)
        return found._replace(sums=found.sums * (1 + lot.size), norms=found.norms * (1 + 1e-15 * lot.size))

    settings = training()
    with Session(use_made_up_records(settings)) as session:
        monkeypatch.setattr(GhostEngine, "clipped_sums", mixing)
        found = failed(check_influence(session))
    assert {"bits: norms", "influence: own sum", "influence: other agents"} <= found


def test_no_training_record_is_read():
    settings = training()
    table = settings.data.dataset.train
    poisoned = replace(table, inputs=torch.full_like(table.inputs, 7.5), targets=torch.full_like(table.targets, 3))
    data = replace(settings.data, dataset=replace(settings.data.dataset, train=poisoned))
    inputs = use_made_up_records(replace(settings, data=data)).data.dataset.train.inputs
    assert not (inputs == 7.5).any()
    assert inputs.shape == table.inputs.shape


@pytest.mark.parametrize(
    ("settings", "options", "words"),
    [
        (lambda: training(privacy=NoPrivacy(lot_size=4)), {}, "no guarantee to check"),
        (training, {"false_alarm": 0.0}, "strictly between 0 and 1"),
        (lambda: "run.toml", {}, "give a Training"),
    ],
)
def test_what_cannot_be_checked_is_refused(settings, options, words):
    with pytest.raises(InvalidInput, match=words):
        check(settings(), **options)
