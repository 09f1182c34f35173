"""Records that belong to one unit are drawn, added up and clipped as one."""

from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import nn

import tacit
from tacit.audit.detectors.influence import check_influence
from tacit.audit.detectors.made_up import use_made_up_records
from tacit.data import AgentData, DataSet, Records
from tacit.errors import DataError, PrivacyError
from tacit.models import FlatModel
from tacit.privacy import Seeded, Unit
from tacit.privacy.gradients import choose_engine
from tacit.privacy.gradients.clipping import Lot
from tacit.privacy.gradients.general import GradientKernel
from tacit.privacy.units import AgentUnits, UnitModel

MOST, CLIP = 3, 0.7


def make_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def make_records(count, seed=0):
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(count, 6, generator=chance), torch.randint(0, 3, (count,), generator=chance)


def units_table(rng, units, most=MOST):
    """Rows for each unit, from one to `most` of them, -1 where it has fewer."""
    rows, taken = np.full((units, most), -1, dtype=np.int64), 0
    for unit in range(units):
        size = int(rng.integers(1, most + 1))
        rows[unit, :size] = np.arange(taken, taken + size)
        taken += size
    return torch.from_numpy(rows), taken


@cache
def engine_for(most=MOST, lots=(4.0, 4.0)):
    model = FlatModel(make_model())
    unit = Unit("patient", most)
    asked = UnitModel(model, unit, ())
    inputs, targets = make_records(7, seed=9)
    rows = (torch.arange(7)[:, None] + torch.arange(most)) % 7
    example = Lot(
        inputs,
        targets,
        torch.tensor([0, 7]),
        torch.where(torch.arange(most) <= torch.arange(7)[:, None] % most, rows, -1),
    )
    theta = model.flatten(make_model())
    return choose_engine(asked, theta, example, lot_sizes=lots, queries=1, private=True, compile=False)


def slow_sum(model, theta, inputs, targets, rows, clip):
    """One record after another, one unit after another."""
    total = torch.zeros(model.size, dtype=torch.float64)
    for members in rows.tolist():
        whole = torch.zeros(model.size, dtype=torch.float64)
        for row in members:
            if row >= 0:
                at = theta.clone().requires_grad_()
                loss = model.losses(at, inputs[row : row + 1], targets[row : row + 1], training=True)[0]
                whole += torch.autograd.grad(loss, at)[0].double()
        total += whole * min(1.0, clip / float(whole.norm()))
    return total


def test_units_are_summed_and_clipped_as_one():
    model, rng = FlatModel(make_model()), np.random.default_rng(0)
    rows, count = units_table(rng, 9)
    inputs, targets = make_records(count)
    chosen = engine_for()
    assert chosen.why.startswith("patient by patient")
    thetas = torch.stack([model.flatten(make_model()), 0.3 * torch.randn(model.size)])
    lot = Lot(inputs, targets, torch.tensor([0, 4, 9]), rows)
    found = chosen.engine.clipped_sums(thetas, lot, torch.tensor([CLIP, 1e6], dtype=torch.float64)).sums
    for agent, (part, clip) in enumerate(((rows[:4], CLIP), (rows[4:], 1e6))):
        expected = slow_sum(model, thetas[agent], inputs, targets, part, clip)
        torch.testing.assert_close(found[agent], expected, rtol=1e-4, atol=1e-5)


VALUES = st.sampled_from([0.0, 1.0, -1.0, 1e-40, 1e10, 1e30, torch.nan, torch.inf])


@settings(max_examples=60)
@given(data=st.data(), seed=st.integers(0, 2**16), most=st.sampled_from([1, 2, 5]), place=st.integers(0, 5))
def test_no_unit_changes_another_and_none_counts_for_more_than_the_bound(data, seed, most, place):
    model, rng = FlatModel(make_model()), np.random.default_rng(seed)
    rows, count = units_table(rng, 6, most)
    inputs, targets = make_records(count, seed)
    for row in data.draw(st.lists(st.integers(0, count - 1), max_size=4)):
        inputs[row, : int(rng.integers(1, 7))] = data.draw(VALUES)
    engine = engine_for(most).engine
    theta = model.flatten(make_model())[None] * data.draw(st.sampled_from([0.0, 1.0, 100.0]))
    clip = torch.tensor([CLIP], dtype=torch.float64)
    others = torch.cat([rows[:place], rows[place + 1 :]])
    whole, less = (
        engine.clipped_sums(theta, Lot(inputs, targets, torch.tensor([0, len(each)]), each), clip)
        for each in (rows, others)
    )
    same = torch.cat([whole.norms[:place], whole.norms[place + 1 :]])
    assert torch.equal(same.nan_to_num(nan=-1), less.norms.nan_to_num(nan=-1))
    assert float((whole.sums - less.sums).norm()) <= CLIP


def test_without_a_unit_one_patient_counts_as_often_as_it_has_records():
    """The sum of eight records of one patient, clipped one by one and as one."""
    model, (inputs, targets) = FlatModel(make_model()), make_records(1)
    theta, clip = model.flatten(make_model())[None], torch.tensor([0.01], dtype=torch.float64)
    inputs, targets = inputs.repeat(8, 1), targets.repeat(8)
    one = choose_engine(
        model,
        theta[0],
        Lot(*make_records(7), torch.tensor([0, 7])),
        lot_sizes=[8],
        queries=1,
        private=True,
        compile=False,
    ).engine
    apart = one.clipped_sums(theta, Lot(inputs, targets, torch.tensor([0, 8])), clip).sums.norm()
    lot = Lot(inputs, targets, torch.tensor([0, 1]), torch.arange(8)[None])
    together = engine_for(8).engine.clipped_sums(theta, lot, clip).sums.norm()
    assert float(apart) == pytest.approx(0.08, rel=1e-3)
    assert float(together) == pytest.approx(0.01, rel=1e-3)
    assert float(together) <= 0.01


def test_of_a_unit_with_more_records_every_choice_is_as_likely():
    """2,000 draws of two out of four; the seed is fixed."""
    held = AgentUnits(torch.tensor([5, 5, 5, 5, 7, 9, 9]), np.arange(7))
    assert len(held) == 3
    source, seen = Seeded(0).make(1)[0], Counter()
    for _ in range(2000):
        members = held.members(source.next(), np.array([0, 1]), 2)
        assert members[1].tolist() == [4, -1]
        seen[tuple(members[0])] += 1
    assert set(seen) == {(a, b) for a in range(4) for b in range(a + 1, 4)}
    assert chisquare(list(seen.values())).pvalue > 1e-3


def test_what_is_chosen_of_a_unit_does_not_depend_on_which_others_are_in_the_lot():
    held = AgentUnits(torch.arange(40) // 8, np.arange(40))
    alone = held.members(Seeded(3).make(1)[0].next(), np.array([2]), 3)
    beside = held.members(Seeded(3).make(1)[0].next(), np.array([0, 2, 4]), 3)
    assert alone[0].tolist() == beside[1].tolist()


@pytest.fixture(scope="module")
def patients():
    inputs, targets = make_records(120)
    names = [f"patient {number // 3}" for number in range(100)]
    return DataSet.from_records(
        name="ward",
        train=(inputs[:100], targets[:100]),
        validation=(inputs[100:], targets[100:]),
        classes=3,
        units=names,
    )


def make_privacy(**changes):
    given = {"noise_multiplier": 1.0, "delta": 1e-5, "clip": 1.0, "lot_size": 4, "unit": Unit("patient", most=2)}
    return tacit.Privacy(**given | changes)


def test_a_unit_goes_to_one_agent_and_lots_are_of_units(patients):
    data = patients.split(3, tacit.data.IID())
    held = [set(patients.train.units[rows].tolist()) for rows in data.indices]
    assert data.units_held == tuple(map(len, held))
    assert sum(data.units_held) == 34 == len(set.union(*held))
    result = tacit.train(
        tacit.DSGT(),
        model=make_model,
        data=data,
        privacy=make_privacy(),
        rounds=3,
        lr=0.1,
        graph=tacit.graphs.ring(3),
    )
    assert result.plan.sample_rates == tuple(4 / count for count in data.units_held)
    assert result.sizes == data.units_held
    assert "patients each" in repr(result)


def test_every_unit_is_in_a_full_lot_with_as_many_records_as_take_part(patients):
    """At q=1 and with nothing to clip, the answer is the mean over units of the sums of their records, up to little noise."""
    data = patients.split(1, tacit.data.IID())
    asked = tacit.Training(
        algorithm=tacit.SGD(),
        model=make_model,
        data=data,
        privacy=make_privacy(noise_multiplier=0.02, lot_size=34, unit=Unit("patient", most=3), clip=100.0),
        rounds=2,
        lr=0.1,
        sources=Seeded(0),
    )
    with tacit.Session(asked) as session:
        theta, model = session.state.theta, session.model
        answer = session.oracle.gradient(theta)[0].double()

        def total(at):
            return model.losses(at, patients.train.inputs, patients.train.targets, training=True).sum()

        mean = torch.func.grad(total)(theta[0]).double() / 34
        assert float((answer - mean).norm()) < 6 * 0.02 * 100 / 34 * model.size**0.5
        counted = session.oracle.query(count_one, theta, width=1)
        assert float(counted[0, 0]) == pytest.approx(100 / 34, abs=6 * 0.02 * 100 / 34)


def count_one(record, theta):
    return record.input.new_ones(1)


def test_parts_say_to_whom_their_records_belong():
    inputs, targets = make_records(12)
    with pytest.raises(DataError, match="units are"):
        Records(inputs, targets, torch.zeros(5, dtype=torch.int64))
    parts = [
        Records(inputs[:6], targets[:6]).of_units([1, 1, 2, 2, 3, 3]),
        Records(inputs[6:], targets[6:]).of_units(list("aabbbb")),
    ]
    data = AgentData.from_parts(parts, name="two wards", classes=3)
    assert data.units_held == (3, 2)
    with pytest.raises(DataError, match="units of all, or of none"):
        AgentData.from_parts([parts[0], Records(inputs[6:], targets[6:])], name="two wards", classes=3)


@pytest.mark.parametrize(
    ("name", "most"), [("", 2), ("record", 2), ("patient", 0), ("patient", True), ("patient", 10**6)]
)
def test_a_unit_that_makes_no_sense_is_refused(name, most):
    with pytest.raises(PrivacyError, match=r"unit|record|most"):
        Unit(name, most)


def test_protecting_patients_needs_to_know_whose_records_are_whose(patients):
    inputs, targets = make_records(60)
    data = DataSet.from_records(name="nobody's", train=(inputs, targets), classes=3).split(2, tacit.data.IID())
    with pytest.raises(DataError, match="privacy is per patient, but nobody's does not say"):
        tacit.train(tacit.Local(), model=make_model, data=data, privacy=make_privacy(), rounds=1, lr=0.1)
    with pytest.raises(PrivacyError, match="give Unit"):
        make_privacy(unit="patient")
    with pytest.raises(DataError, match="too few for 40 agents"):
        patients.split(40, tacit.data.IID())


@pytest.mark.slow
@pytest.mark.chance(2e-6)
def test_the_check_of_ones_own_settings_finds_units_whose_records_are_clipped_apart(patients, monkeypatch):
    settings = tacit.Training(
        algorithm=tacit.DSGD(),
        model=make_model,
        data=patients.split(3, tacit.data.IID()),
        privacy=make_privacy(),
        rounds=3,
        lr=0.1,
        graph=tacit.graphs.ring(3),
    )
    report = tacit.audit.check(settings, false_alarm=1e-6)
    assert report.verdict == "no fault found", report
    assert "patient by patient" in report.about

    sound = GradientKernel.clipped

    def record_by_record(self, data, clip, quantum):
        if not isinstance(self._model, UnitModel):
            return sound(self, data, clip, quantum)
        parts = []
        for member in range(data.targets.shape[1]):
            only = data.targets.clone()
            only[:, :member, -1] = only[:, member + 1 :, -1] = 0
            parts.append(sound(self, data._replace(targets=only), clip, quantum))
        return sum(sums for sums, _ in parts), torch.stack([norms for _, norms in parts]).amax(0)

    monkeypatch.setattr(GradientKernel, "clipped", record_by_record)
    with tacit.Session(use_made_up_records(settings)) as session:  # noise and lots are those of before
        (failed,) = [each for each in check_influence(session) if each.outcome == "fail"]
    assert failed.name == "own sum"
    assert failed.measured.startswith("one patient moves it by at most 1.9")


def test_a_guarantee_for_patients_says_so_and_is_not_added_to_one_for_records(patients):
    data, ledger = patients.split(2, tacit.data.IID()), tacit.Ledger()
    run = {"model": make_model, "data": data, "rounds": 2, "lr": 0.1, "ledger": ledger}
    result = tacit.train(tacit.Local(), privacy=make_privacy(), **run)
    (first, _) = result.guarantees()
    assert first.unit == "patient"
    assert "per patient at δ=1e-05, add-or-remove-one, pld" in str(first)
    tacit.train(tacit.Local(), privacy=make_privacy(unit=Unit("patient", most=5)), **run)
    with pytest.raises(
        PrivacyError, match=r"protects every record and run 'local-1' every patient, on the same records"
    ):
        tacit.train(tacit.Local(), privacy=make_privacy(unit=None), **run)
    assert len(ledger.accounts) == 2
    assert ledger.accounts[0].lines[0].mechanism.to_json()["sampler"]["most"] == 2


def test_a_column_of_units_that_is_not_used_is_reported(patients, caplog):
    data = patients.split(2, tacit.data.IID())
    run = {"model": make_model, "data": data, "rounds": 1, "lr": 0.1}
    tacit.train(tacit.Local(), privacy=make_privacy(), **run)
    assert not caplog.records
    tacit.train(tacit.Local(), privacy=make_privacy(unit=None), **run)
    assert "ward says whose each record is, but every record is protected by itself" in caplog.text
