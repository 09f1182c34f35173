"""Records with several inputs: a tuple is read by a model's arguments in their order, a dictionary by their names."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import tacit
from tacit.audit.detectors.influence import check_influence
from tacit.audit.detectors.made_up import hostile_records, use_made_up_records
from tacit.data import AgentData, DataSet, Field, Records, Schema
from tacit.data.prepare import check_isolated, isolate
from tacit.data.records import concatenate
from tacit.errors import DataError, ModelError
from tacit.models import FlatModel
from tacit.training.session import Session

CLASSES, WORDS = 3, 7


class Both(nn.Module):
    """Reads numbers and words."""

    def __init__(self):
        super().__init__()
        self.look, self.read = nn.Linear(4, 6), nn.Embedding(WORDS, 6)
        self.out = nn.Linear(6, CLASSES)

    def forward(self, numbers, words):
        return self.out(torch.tanh(self.look(numbers) + self.read(words).mean(1)))


class AsOne(Both):
    """The same of one tensor, which holds the words as numbers."""

    def forward(self, x):
        return super().forward(x[:, :4], x[:, 4:].long())


class Packed(Both):
    """The same of whatever a dictionary holds."""

    def forward(self, **batch):
        return super().forward(batch["numbers"], batch["words"])


def columns(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, WORDS, (count, 5), generator=generator)
    numbers = torch.randn(count, 4, generator=generator)
    return numbers, words, torch.randint(0, CLASSES, (count,), generator=generator)


def several(count, kind, seed=0):
    numbers, words, targets = columns(count, seed)
    made = {
        "tuple": (numbers, words),
        "dict": {"words": words, "numbers": numbers},
        "one": torch.cat([numbers, words.float()], 1),
    }
    return made[kind], targets


def dealt(kind, **changes):
    return DataSet.from_records(
        name="both",
        train=several(120, kind),
        validation=several(40, kind, seed=1),
        test=several(30, kind, seed=2),
        classes=CLASSES,
        **changes,
    ).split(3, tacit.data.IID())


def settings(kind, model=None, **changes):
    return {
        "model": model or {"tuple": Both, "dict": Both, "one": AsOne}[kind],
        "data": dealt(kind),
        "graph": tacit.graphs.ring(3),
        "privacy": tacit.Privacy(noise_multiplier=1.0, delta=1e-5, clip=0.5, lot_size=8),
        "rounds": 4,
        "lr": 0.5,
        "sources": tacit.Seeded(0),
    } | changes


@pytest.mark.parametrize("privacy", ["private", "plain"])
def test_a_run_is_the_same_however_the_inputs_are_given(privacy):
    """One tensor that is cut up by the model, a tuple, a dictionary by names, and one that the model takes whole."""
    changes = {"privacy": tacit.NoPrivacy(lot_size=8)} if privacy == "plain" else {}
    known = tacit.train(tacit.DSGT(), **settings("one", **changes))
    for kind, model in (("tuple", Both), ("dict", Both), ("dict", Packed)):
        result = tacit.train(tacit.DSGT(), **settings(kind, model, **changes))
        torch.testing.assert_close(result.theta, known.theta, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(result.history[-1].loss, known.history[-1].loss, rtol=1e-5)
        np.testing.assert_array_equal(result.evaluate().accuracy, known.evaluate().accuracy)
        np.testing.assert_array_equal(result.evaluate(several(30, kind, seed=2)).accuracy, known.evaluate().accuracy)


@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_clipped_sums_are_those_of_a_loop_over_records(kind):
    """The answer of a session's engine against autograd, record by record, in float64."""
    inputs, targets = several(120, kind)
    data = AgentData.from_parts([(inputs, targets)], name="all", classes=CLASSES)
    privacy = tacit.Privacy(noise_multiplier=1.0, delta=1e-5, clip=0.3, lot_size=120)
    training = settings(kind, lambda: Both().double(), data=data, graph=None, privacy=privacy)
    with Session(tacit.Training(algorithm=tacit.Local(), **training)) as session:
        assert session.chosen.why == "layer by layer"
        drawer = session.real_oracle._drawer
        (piece,) = drawer.pieces([np.arange(120)], 10**6)
        theta = session.state.theta
        found = session.chosen.engine.clipped_sums(theta, piece.lot, torch.tensor([0.3], dtype=torch.float64))
        model = session.model.module(theta[0])
    expected = torch.zeros(theta.shape[1], dtype=torch.float64)
    numbers, words, targets = columns(120)
    for record in range(120):
        model.zero_grad()
        outputs = model(numbers[record : record + 1].double(), words[record : record + 1])
        nn.functional.cross_entropy(outputs, targets[record : record + 1]).backward()
        gradient = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
        expected += gradient * min(1.0, 0.3 / float(gradient.norm()))
    torch.testing.assert_close(found.sums[0], expected, rtol=0, atol=1e-3 * 0.3)


@pytest.mark.slow
def test_steps_are_compiled_with_several_inputs():
    class Floats(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(4, 6), nn.Linear(3, 6)

        def forward(self, left, right):
            return torch.relu(self.one(left) - self.other(right))[:, :CLASSES]

    table = {"left": torch.randn(90, 4), "right": torch.randn(90, 3)}, torch.randint(0, CLASSES, (90,))
    data = AgentData.from_parts([table], name="floats", classes=CLASSES)
    made = settings("dict", Floats, data=data, graph=None)
    plain, compiled = (tacit.train(tacit.Local(), **made | {"compile": how}) for how in (False, True))
    with Session(tacit.Training(algorithm=tacit.Local(), **made | {"compile": True})) as session:
        assert session.chosen.compiled, session.chosen.why
    torch.testing.assert_close(compiled.theta, plain.theta, rtol=1e-4, atol=1e-5)


def test_records_keep_several_inputs_together():
    records = Records.of(several(10, "dict"))
    assert list(records.inputs) == ["numbers", "words"]
    numbers, words, targets = columns(10)
    taken = records.take(torch.tensor([3, 1]))
    assert torch.equal(taken.inputs["words"], words[[3, 1]])
    assert torch.equal(taken.targets, targets[[3, 1]])
    twice = concatenate([records, records])
    assert torch.equal(twice.inputs["numbers"], torch.cat([numbers, numbers]))
    assert "inputs['words'] of torch.int64 and shape (5,)" in repr(records)
    items = [((numbers[i].numpy(), words[i]), int(targets[i])) for i in range(10)]
    assert torch.equal(Records.of(items).inputs[1], words)
    assert Records.of([((1.0, 2.0), 0)]).inputs.shape == (1, 2), "a tuple of numbers is one tensor"


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ((torch.zeros(3, 2), torch.zeros(2, 2)), r"2 inputs\[1\] but 3 targets"),
        ({"a": torch.zeros(2, 2)}, r"2 inputs\['a'\] but 3 targets"),
        ((torch.zeros(3), 5), r"inputs\[1\] must be a tensor with one row per record, not an object of type int"),
        ({"not a name": torch.zeros(3)}, "must be a name in Python"),
        ((), "an empty tuple"),
        ([torch.zeros(3)], "a tuple or dictionary of such tensors, not an object of type list"),
    ],
)
def test_inputs_that_do_not_belong_together_are_refused(inputs, said):
    with pytest.raises(DataError, match=said):
        Records(inputs, torch.zeros(3))


def test_parts_of_other_inputs_are_refused():
    one, other = Records.of(several(5, "dict")), Records.of(several(5, "tuple"))
    with pytest.raises(DataError, match=r"inputs of part 1 are inputs\[0\] of torch.float32"):
        concatenate([one, other])
    with pytest.raises(DataError, match="has several inputs, so it has no single shape"):
        dealt("dict").dataset.input_shape  # noqa: B018
    with pytest.raises(DataError, match="takes records with one input"):
        one.table  # noqa: B018


@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_a_schema_has_a_field_for_each_input(kind):
    data = dealt(kind)
    drafted = Schema.draft(data.dataset, Both())
    words = drafted.inputs["words"] if kind == "dict" else drafted.inputs[1]
    assert (words.low, words.high) == (0, WORDS - 1)
    assert Schema.of(drafted.to_dict()) == drafted
    assert hash(Schema.of(drafted.to_dict())) == hash(drafted)
    sampled = drafted.sample(20, torch.Generator().manual_seed(0))
    assert drafted.fits(sampled).all()
    name = r"inputs\['words'\]" if kind == "dict" else r"inputs\[1\]"
    inputs = sampled.inputs
    wrong = {**inputs, "words": inputs["words"].float()} if kind == "dict" else (inputs[0], inputs[1].float())
    with pytest.raises(DataError, match=f"{name} of these records are float32"):
        drafted.check_kind(Records(wrong, sampled.targets), "these records")
    with pytest.raises(DataError, match="make them match"):
        drafted.check_kind(Records.of(several(4, "one")), "these records")


def test_records_that_do_not_fit_are_refused_with_the_name_of_the_input():
    (numbers, words), targets = several(30, "tuple")
    words[4, 2], numbers[7, 1] = WORDS, math.nan
    data = AgentData.from_parts([((numbers, words), targets)], name="odd", classes=CLASSES, owners=["north"])
    with pytest.raises(DataError) as error:
        Session(tacit.Training(algorithm=tacit.Local(), **settings("tuple", data=data, graph=None)))
    assert "agent 0 (north): inputs[0] that are not finite, inputs[1]" in str(error.value)


def by_numpy(inputs):
    """Code that no `vmap` can take."""
    return {**inputs, "numbers": torch.from_numpy(np.tanh(inputs["numbers"].numpy()))}


def halved(inputs):
    return {**inputs, "numbers": inputs["numbers"] / 2}


@pytest.mark.parametrize("prepare", [halved, by_numpy])
def test_every_record_is_prepared_by_itself(prepare):
    inputs, _ = several(9, "dict")
    alone = isolate(prepare, inputs)
    assert alone.in_loop == (prepare is by_numpy)
    for name, table in alone(inputs).items():
        assert torch.equal(table, prepare(inputs)[name])
    check_isolated(prepare, inputs)
    result = tacit.train(tacit.DSGD(), **settings("dict", data=dealt("dict", prepare=prepare)))
    assert result.theta.isfinite().all()


class RunningScale:
    """Divides by the largest number so far."""

    largest = 0.0

    def __call__(self, inputs):
        self.largest = max(self.largest, float(inputs.abs().max()))
        return inputs / self.largest


@pytest.mark.parametrize("numbers", [(1.0, 2.0, 3.0), (3.0, 2.0, 1.0), (2.0, 3.0, 1.0)])
def test_a_preparation_that_remembers_a_record_is_refused_wherever_that_stands(numbers):
    with pytest.raises(DataError, match="keeps state"):
        check_isolated(RunningScale(), torch.tensor(numbers)[:, None])


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda inputs: {**inputs, "numbers": inputs["numbers"] - inputs["numbers"].mean(0)}, "prepare mixes records"),
        (lambda inputs: {**inputs, "words": inputs["words"].flip(0)}, "prepare mixes records"),
        (lambda inputs: {**inputs, "numbers": torch.rand(len(inputs["words"]), 4)}, "random numbers"),
        (lambda inputs: {**inputs, "numbers": 5}, "prepare returns a int"),
        (lambda inputs: list(inputs.values()), "prepare returns a list"),
        (tacit.data.Normalise(mean=(0.5,), std=(1.0,)), "Normalise reads one tensor of images"),
    ],
)
def test_a_preparation_that_mixes_one_of_several_inputs_is_refused(prepare, said):
    with pytest.raises(DataError, match=said):
        Session(tacit.Training(algorithm=tacit.DSGD(), **settings("dict", data=dealt("dict", prepare=prepare))))


class Mixes(Both):
    def forward(self, numbers, words):
        return super().forward(numbers - numbers.mean(0), words)


class MixesWords(Both):
    def forward(self, numbers, words):
        return super().forward(numbers, words.roll(1, 0))


@pytest.mark.parametrize("kind", ["tuple", "dict"])
@pytest.mark.parametrize("model", [Mixes, MixesWords])
def test_a_model_that_mixes_records_by_one_of_several_inputs_is_refused(kind, model):
    with pytest.raises(ModelError, match="mixes samples"):
        Session(tacit.Training(algorithm=tacit.DSGD(), **settings(kind, model)))


def test_a_model_that_takes_other_arguments_is_refused_with_what_it_was_given():
    class Other(Both):
        def forward(self, image, words):
            return super().forward(image, words)

    with pytest.raises(
        ModelError, match=r"fails on a batch of inputs\['numbers'\].*unexpected keyword argument 'numbers'"
    ):
        Session(tacit.Training(algorithm=tacit.DSGD(), **settings("dict", Other)))


def test_units_are_protected_as_wholes_with_several_inputs():
    """All records of a person as one: the sum of their gradients, clipped, against autograd in float64."""
    inputs, targets = several(60, "dict")
    people = torch.arange(60) // 3
    data = AgentData.from_parts([Records(inputs, targets).of_units(people)], name="people", classes=CLASSES)
    privacy = tacit.Privacy(noise_multiplier=1.0, delta=1e-5, clip=0.5, lot_size=20, unit=tacit.Unit("person", most=3))
    training = settings("dict", lambda: Both().double(), data=data, graph=None, privacy=privacy)
    with Session(tacit.Training(algorithm=tacit.Local(), **training)) as session:
        (piece,) = session.real_oracle._drawer.pieces([np.arange(60).reshape(20, 3)], 10**6)
        theta = session.state.theta
        found = session.chosen.engine.clipped_sums(theta, piece.lot, torch.tensor([0.5], dtype=torch.float64))
        model = session.model.module(theta[0])
    expected = torch.zeros(theta.shape[1], dtype=torch.float64)
    numbers, words, targets = columns(60)
    for person in range(20):
        rows = slice(3 * person, 3 * person + 3)
        model.zero_grad()
        nn.functional.cross_entropy(
            model(numbers[rows].double(), words[rows]), targets[rows], reduction="sum"
        ).backward()
        gradient = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
        expected += gradient * min(1.0, 0.5 / float(gradient.norm()))
    torch.testing.assert_close(found.sums[0], expected, rtol=0, atol=1e-3 * 0.5)


def test_per_sample_functions_see_all_inputs_of_a_record():
    class Asks:
        def init(self, theta):
            return tacit.DSGD().init(theta)

        def round(self, state, at):
            seen = at.query(
                lambda record, theta: torch.stack([record.input["numbers"].sum(), record.input["words"].float().sum()]),
                state.theta,
                width=2,
            )
            self.seen = seen
            return state

    rule = Asks()
    tacit.train(rule, **settings("dict", privacy=tacit.NoPrivacy(lot_size=40), rounds=1, graph=None))
    numbers, words, _ = columns(120)
    data = dealt("dict")
    for agent, rows in enumerate(data.indices):
        expected = torch.stack([numbers[rows].sum(), words[rows].float().sum()]) / 40
        torch.testing.assert_close(rule.seen[agent], expected)


@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_the_check_of_settings_tries_odd_values_in_each_input(kind):
    training = use_made_up_records(tacit.Training(algorithm=tacit.DSGD(), **settings(kind)))
    told = [words for words, _, _ in hostile_records(training.data.dataset, torch.Generator().manual_seed(0))]
    for name in ("inputs['numbers']", "inputs['words']") if kind == "dict" else ("inputs[0]", "inputs[1]"):
        assert any(words.endswith(name) for words in told)
    with Session(training) as session:
        outcomes = {finding.name: finding.outcome for finding in check_influence(session)}
    assert set(outcomes.values()) == {"pass"}, outcomes


@given(st.permutations(["b", "a", "c"]))
def test_the_order_of_names_means_nothing(order):
    tables = {name: torch.full((2, 1), float(place)) for place, name in enumerate("abc")}
    records = Records({name: tables[name] for name in order}, torch.zeros(2))
    assert list(records.inputs) == ["a", "b", "c"]
    fields = {name: Field(shape=(1,), dtype=torch.float32) for name in order}
    schema = Schema(inputs=fields, targets=Field(shape=(), dtype=torch.float32))
    assert schema.fits(records).all()
    assert schema.fingerprint == Schema(inputs=dict(sorted(fields.items())), targets=schema.targets).fingerprint


def test_floats_are_cast_and_whole_numbers_are_not():
    model = FlatModel(Both().double())
    numbers, words = model.cast((torch.zeros(1, 4), torch.zeros(1, 5, dtype=torch.int64)))
    assert (numbers.dtype, words.dtype) == (torch.float64, torch.int64)
