"""What a reader found who was told to break what is new: units, several inputs, hosted agents. Each says how far it moved."""

import threading
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import tacit
from tacit.algorithms import Local
from tacit.data import IID, AgentData, DataSet, Records
from tacit.errors import BudgetExceeded, DataError, ModelError, PrivacyError
from tacit.privacy import Budget, Ledger, NoPrivacy, Seeded, Unit, noise_multiplier
from tacit.privacy.mechanisms import Mechanism


def squares(outputs, targets):
    return ((outputs - targets.reshape(outputs.shape).to(outputs.dtype)) ** 2).flatten(1).sum(1)


def session(data, unit=None, model=None, sizes=None, rounds=1, privacy=None, **others):
    torch.manual_seed(0)
    sizes = sizes or (data.units_held if unit else data.sizes)
    privacy = privacy or tacit.Privacy(
        noise_multiplier=1.0, delta=1e-5, clip=1.0, lot_size=[float(size) for size in sizes], unit=unit
    )
    return tacit.Session(
        tacit.Training(
            algorithm=Local(),
            model=model or nn.Linear(2, 1),
            data=data,
            loss=squares,
            rounds=rounds,
            lr=0.1,
            privacy=privacy,
            sizes=sizes,
            compile=False,
            sources=Seeded(0),
            **others,
        ),
    )


class Bare:
    """Keeps sums as they are before noise."""

    def __init__(self):
        self.sums = []

    def begin(self, query):
        pass

    def release(self, sums, streams, masks, agents, out):
        self.sums.append(sums.clone())
        out.zero_()


def sums(made, per_sample=None, width=None):
    made.real_oracle._noise = bare = Bare()
    theta = made.state.theta
    if per_sample is None:
        made.real_oracle.gradient(theta)
    else:
        made.real_oracle.query(per_sample, theta, width=width)
    return torch.cat(bare.sums)


PLACES = 40


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(PLACES, 1)

    def forward(self, values, places):
        return self.linear(values) + 0 * places.sum(1, keepdim=True)


def written_by_hand(record, theta):
    values, places = record.input["values"], record.input["places"]
    return torch.ops.aten.embedding_dense_backward(values[:, None], places, 6, -1, False)[:, 0]


def test_operations_of_the_backward_pass_are_not_called_by_hand():
    """Indices beyond the table wrote into other records: 15 and 18 C, of both agents."""

    torch.manual_seed(0)
    values, places = torch.randn(30, PLACES), torch.randint(0, 6, (30, PLACES))
    values[0], places[0] = 1e4, 6 * (torch.arange(PLACES) + 1)
    public = {"values": torch.randn(8, PLACES), "places": torch.randint(0, 6, (8, PLACES))}
    table = DataSet.from_records(
        name="x", train=({"values": values, "places": places}, torch.randn(30)), validation=(public, torch.randn(8))
    )
    made = session(table.split(2, IID()), model=Both())
    with pytest.raises(NotImplementedError, match="called directly"):
        sums(made, written_by_hand, 6)
    assert made.accounts[0].spent == 0, "it is found on public records"


class Landmarks(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 2, 3), nn.Linear(8, 1)

    def forward(self, image, marks):
        near = marks.to(image.dtype)
        near = (near - 9) / (near[:, :1] - 9)
        grid = near.reshape(-1, 2, 2, 2)
        return self.out(
            functional.grid_sample(self.conv(image), grid, padding_mode="border", align_corners=True).flatten(1)
        )


def test_a_grid_that_is_no_number_ends_no_process():
    """Whole numbers that make 0/0: torch read and wrote anywhere, and the process died of a private record."""
    torch.manual_seed(0)
    marks = torch.randint(1, 9, (12, 8))
    marks[3, 0] = 9
    table = DataSet.from_records(
        name="faces",
        train=({"image": torch.randn(12, 1, 6, 6), "marks": marks}, torch.randn(12)),
        validation=({"image": torch.randn(8, 1, 6, 6), "marks": torch.randint(1, 9, (8, 8))}, torch.randn(8)),
    )
    assert sums(session(table.split(1, IID()), model=Landmarks())).isfinite().all()


def mechanism(unit, most):
    return Mechanism.gaussian(sample_rate=0.1, clip=1.0, lot=10, noise_multiplier=2.0, unit=unit, most=most)


def opened(ledger, run, records, *mechanisms, owners=("hospital",)):
    account = ledger.open(
        run=run, owners=owners, records=records, partition=records, mechanisms=mechanisms, queries=10, release=True
    )
    account.spend()
    return account


def test_guarantees_for_patients_and_for_records_of_one_owner_are_not_added_up():
    """By other names of the data, or by owners in another order, they were: ε=3.36 was stated for both."""
    ledger = Ledger()
    opened(ledger, "a", "ward 2023", mechanism("patient", 8))
    with pytest.raises(PrivacyError, match="protects every record and run 'a' every patient"):
        opened(ledger, "b", "ward 2024", mechanism("record", 1))
    with pytest.raises(PrivacyError, match="protects one kind of unit"):
        opened(Ledger(), "c", "ward", mechanism("patient", 8), mechanism("record", 1), owners=("one", "two"))


def records_of(who):
    return Records(torch.ones(len(who), 2), torch.ones(len(who))).of_units(who)


def test_parts_number_their_patients_by_themselves():
    """Strangers were one patient, and pooled, one patient moved the sum by 3 C."""
    data = AgentData.from_parts([records_of(["anna", "bert"]), records_of(["bert", "carl"])], name="x")
    assert len(data.dataset.train.units.unique()) == 4
    with pytest.raises(DataError, match="numbers its units by itself"):
        data.pooled()


def test_a_patient_of_two_agents_is_refused():
    """Each agent's sum moved by C, and both stated what one of them costs."""
    table = DataSet.from_records(name="x", train=(torch.ones(6, 2), torch.ones(6)), units=[7, 7, 1, 2, 3, 4])
    rows = torch.tensor([0, 2, 3]), torch.tensor([1, 4, 5])
    data = AgentData(dataset=table, indices=rows, owners=("a", "b"), partition="own")
    with pytest.raises(DataError, match="held by two agents"):
        session(data, Unit("patient", 4))


@pytest.mark.parametrize("unit", [None, Unit("patient", 2)])
def test_a_record_that_presses_ctrl_c_is_charged(unit):
    """It was told without noise, and charged nothing."""
    inputs = torch.zeros(20, 2)
    inputs[7, 0] = 101

    def prepare(batch):
        if batch[0, 0].item() == 101:
            raise KeyboardInterrupt
        return batch

    table = DataSet.from_records(
        name="ward", train=(inputs, torch.zeros(20)), prepare=prepare, units=np.arange(20) // 2
    )
    made = session(table.split(1, IID()), unit, ledger=Ledger())
    with pytest.raises(KeyboardInterrupt), made:
        made.advance()
    assert made.accounts[0].spent == 1
    assert made.accounts[0].charged == made.accounts[0].allowed


def test_a_budget_follows_records_that_come_divided_in_another_way():
    """Three deals of the same records by from_parts were let in under a budget that one of them used up."""
    inputs, targets = torch.randn(8, 2), torch.randn(8)
    ledger = Ledger(Budget(epsilon=5.0, delta=1e-5))

    def run(parts, name):
        data = AgentData.from_parts([(inputs[part], targets[part]) for part in parts], name="ward")
        with session(data, ledger=ledger, name=name) as made:
            made.advance()

    run([slice(0, 4), slice(4, 8)], "first")
    with pytest.raises(BudgetExceeded):
        run([slice(0, 8)], "second")


def test_a_run_without_privacy_exposes_records_that_come_divided_in_another_way():
    inputs, targets = torch.randn(8, 2), torch.randn(8)
    ledger = Ledger()
    parts = AgentData.from_parts([(inputs[:4], targets[:4]), (inputs[4:], targets[4:])], name="ward")
    with session(parts, privacy=NoPrivacy(lot_size=4.0), ledger=ledger, name="plain") as made:
        made.advance()
    whole = AgentData.from_parts([(inputs, targets)], name="ward")
    with session(whole, ledger=ledger, name="private") as made:
        made.advance()
    assert ledger.readers_without_privacy(whole.owners) == {whole.owners[0]: ("plain",)}


def test_units_are_divided_under_a_label_of_their_own_and_only_once():
    table = DataSet.from_records(name="ward", train=(torch.randn(40, 2), torch.zeros(40)), units=np.arange(40) // 2)
    assert table.split(2, IID()).partition.endswith("/by unit")

    class Half:
        def __str__(self):
            return "first half"

        def __call__(self, targets, classes, agents, rng):
            return [np.arange(len(targets) // 2)[agent::agents] for agent in range(agents)]

    class Twice(Half):
        def __call__(self, targets, classes, agents, rng):
            return [np.arange(len(targets)), np.arange(3)]

    assert table.split(2, Half()).sizes == (10, 10)
    with pytest.raises(DataError, match="gives a unit to two agents"):
        table.split(2, Twice())


def test_a_run_without_noise_takes_no_account_with_noise():
    """Three rounds without noise were played on the account of a private run."""
    data = DataSet.from_records(name="ward", train=(torch.randn(8, 2), torch.randn(8))).split(1, IID())
    private = session(data, ledger=Ledger(), name="r")
    with pytest.raises(PrivacyError, match="do not belong to this data and plan"):
        tacit.Session(
            tacit.Training(
                algorithm=Local(),
                model=nn.Linear(2, 1),
                data=data,
                loss=squares,
                rounds=1,
                lr=0.1,
                privacy=NoPrivacy(lot_size=8.0),
                name="r",
            ),
            accounts=private.accounts,
        )


@pytest.mark.parametrize(
    "column",
    [
        [1.0, float("nan"), float("nan"), 2.0],
        [1, "1", "2", 2],
        np.ma.masked_array([1, 2, 3, 4], mask=[0, 1, 1, 0]),
        np.array([1.0, 2.0, 3.0, 4.0]),
        [None, "a", "b", "c"],
    ],
)
def test_a_column_that_would_make_one_of_strangers_is_refused(column):
    with pytest.raises(DataError, match="whole numbers or texts"):
        Records(torch.zeros(4, 1), torch.zeros(4)).of_units(column)


def test_texts_that_differ_are_different_units():
    units = Records(torch.zeros(4, 1), torch.zeros(4)).of_units(["a", "a\0", "b", "a"]).units
    assert units[0] == units[3]
    assert len(units.unique()) == 3


def test_a_ledgers_text_is_read_strictly():
    ledger = Ledger()
    opened(ledger, "a", "ward", mechanism("record", 1))
    text = ledger.to_json()
    assert Ledger.from_json(text).accounts[0].spent == 1
    with pytest.raises(PrivacyError):
        Ledger.from_json(text.replace('"spent": 1', '"spent": 1, "spent": 0'))
    with pytest.raises(PrivacyError):
        Ledger.from_json(text.replace('"multiplier": 2.0', f'"multiplier": {"9" * 400}'))


def test_scoring_leaves_public_records_as_they_are():
    class Halves(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, inputs):
            return self.linear(inputs.mul_(0.5) if not self.training else inputs)

    held_out = torch.ones(12, 2)
    table = DataSet.from_records(
        name="x", train=(torch.randn(12, 2), torch.arange(12) % 2), validation=(held_out, torch.arange(12) % 2)
    )
    tacit.train(
        Local(),
        model=Halves,
        data=table.split(1, IID()),
        privacy=tacit.Privacy(noise_multiplier=1.0, delta=1e-5, clip=1.0, lot_size=4),
        rounds=2,
        lr=0.1,
    )
    assert bool((held_out == 1).all())


def test_a_model_whose_units_cannot_be_computed_is_refused_in_words():
    table = DataSet.from_records(name="x", train=(torch.randn(12, 2), torch.randn(12)), units=np.arange(12) // 2).split(
        1, IID()
    )

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out = nn.LSTM(2, 3, batch_first=True), nn.Linear(3, 1)

        def forward(self, inputs):
            return self.out(self.cell(inputs[:, None])[0][:, 0])

    with pytest.raises(ModelError, match="the summed gradients of a patient's records cannot be computed"):
        session(table, Unit("patient", 2), model=Recurrent())


def test_a_unit_that_may_be_at_several_agents_is_warned_of(caplog):
    parts = [Records(torch.randn(6, 2), torch.randn(6, 1)).of_units([1, 1, 2, 2, 3, 3]) for _ in range(2)]
    session(AgentData.from_parts(parts, name="stay"), Unit("patient", 2))
    assert "over several agents it is higher" in caplog.text


def test_other_names_of_the_owners_do_not_restart_a_budget():
    """Three runs of ε = 1.9 were admitted under a budget of 2."""
    parts = [(torch.randn(40, 2), torch.randn(40, 1)) for _ in range(2)]
    ledger = Ledger(Budget(epsilon=2.0, delta=1e-4))
    privacy = tacit.Privacy(epsilon=1.9, delta=1e-4, clip=1.0, lot_size=20)
    session(AgentData.from_parts(parts, name="stay"), privacy=privacy, ledger=ledger)
    for owners in (["north", "south"], ["North", "South"]):
        with pytest.raises(BudgetExceeded):
            session(AgentData.from_parts(parts, name="stay", owners=owners), privacy=privacy, ledger=ledger)


def test_threads_that_open_accounts_at_once_are_admitted_one_by_one(monkeypatch):
    ledger = Ledger(Budget(epsilon=2.0, delta=2e-4))
    sigma = noise_multiplier(epsilon=1.9, delta=1e-4, sample_rate=0.1, queries=200)
    mechanism = Mechanism.gaussian(sample_rate=0.1, clip=1.0, lot=20.0, noise_multiplier=sigma)
    keep, start, admitted = Ledger._keep, threading.Barrier(4), []

    def keep_late(self, account):
        time.sleep(0.05)  # whoever checks meanwhile would not see this run
        keep(self, account)

    def run(number):
        start.wait()
        try:
            ledger.open(run=f"{number}", owners=["north"], mechanisms=[mechanism], queries=200, release=True)
            admitted.append(number)
        except BudgetExceeded:
            pass

    monkeypatch.setattr(Ledger, "_keep", keep_late)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == 1
    assert ledger.guarantee("north", delta=2e-4).epsilon < 2.0
