"""What a schema admits, draws and refuses; and that a record which does not fit stops a session before it begins."""

import hashlib
import json
import tomllib
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import tomli_w
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

import tacit
from tacit.data import AgentData, DataSet, Field, Records, Schema, scattered
from tacit.data.drafting import settle
from tacit.data.schema import check_records
from tacit.errors import DataError, InvalidInput
from tacit.training.preparation import example, public_lot

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
OTHERS = (torch.bool, torch.complex64, torch.complex128)
LABEL = Field(shape=(), dtype=torch.int64, low=0, high=9)
TOKENS = Field(shape=(4,), dtype=torch.int64, low=0, high=19)

shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@st.composite
def fields(draw, dtypes=INTEGERS + FLOATS + OTHERS):
    dtype = draw(st.sampled_from(dtypes))
    bounds = (None, None)
    if dtype in INTEGERS:
        limits = torch.iinfo(dtype)
        numbers = st.integers(limits.min, limits.max) | st.sampled_from([limits.min, 0, 1, limits.max])
        bounds = draw(st.tuples(st.none() | numbers, st.none() | numbers))
    elif dtype in FLOATS:
        top = torch.finfo(dtype).max
        numbers = st.floats(-top, top) | st.sampled_from([-top, -1e-3, -0.0, 0.1, 1.0, 100.0, top])
        bounds = draw(st.tuples(st.none() | numbers, st.none() | numbers))
    if None not in bounds:
        bounds = sorted(bounds)
    finite = draw(st.booleans()) if dtype in (*FLOATS, torch.complex64, torch.complex128) else True
    return Field(shape=draw(shapes), dtype=dtype, low=bounds[0], high=bounds[1], finite=finite)


def drawn(field, count, seed=0):
    return field.sample(count, torch.Generator().manual_seed(seed))


def obvious_misfits(field, table):
    """Value by value in Python, as a slow and plain reading of what a field says."""
    rows = set()
    for row, values in enumerate(table.reshape(len(table), int(np.prod(field.shape))).tolist()):
        for value in values:
            if field.finite and not np.isfinite(value):
                rows.add(row)
            if field.low is not None and (value < field.low or np.isneginf(value)):
                rows.add(row)
            if field.high is not None and (value > field.high or np.isposinf(value)):
                rows.add(row)
    return rows


def found(field, table):
    return {int(row) for rows in field.misfits(table).values() for row in rows}


@given(fields(), fields(), st.integers(0, 9), st.integers(0, 2**31))
@settings(deadline=None)
def test_whatever_is_sampled_fits(inputs, targets, count, seed):
    schema = Schema(inputs=inputs, targets=targets)
    records = schema.sample(count, torch.Generator().manual_seed(seed))
    schema.check_kind(records, "made up")
    assert schema.fits(records).tolist() == [True] * count
    assert not obvious_misfits(inputs, records.inputs)
    again = schema.sample(count, torch.Generator().manual_seed(seed))
    assert torch.equal(records.inputs, again.inputs)
    assert torch.equal(records.targets, again.targets)


@given(fields(INTEGERS + FLOATS), st.integers(1, 6), st.data())
@settings(deadline=None)
def test_whatever_is_outside_is_found_and_nothing_else(field, count, data):
    assume(0 not in field.shape)
    table = drawn(field, count)
    limits = torch.finfo(field.dtype) if field.dtype in FLOATS else torch.iinfo(field.dtype)
    values = [limits.min, limits.max, 0, 1]
    if field.dtype in FLOATS:
        values += [np.nan, np.inf, -np.inf, -0.0, limits.tiny]
    for row in data.draw(st.sets(st.integers(0, count - 1))):
        flat = table[row].view(-1)
        place = data.draw(st.integers(0, len(flat) - 1))
        flat[place] = torch.tensor(data.draw(st.sampled_from(values)), dtype=field.dtype)
    assert found(field, table) == obvious_misfits(field, table)
    schema = Schema(inputs=field, targets=LABEL)
    records = Records(table, torch.zeros(count, dtype=torch.int64))
    assert int((~schema.fits(records)).sum()) == len(obvious_misfits(field, table))


@given(fields(), fields())
@settings(deadline=None)
def test_a_schema_is_the_same_after_json_and_toml(inputs, targets):
    schema = Schema(inputs=inputs, targets=targets)
    for back in (json.loads(json.dumps(schema.to_dict())), tomllib.loads(tomli_w.dumps(schema.to_dict()))):
        assert Schema.of(back) == schema
        assert Schema.of(back).fingerprint == schema.fingerprint
        assert hash(Schema.of(back)) == hash(schema)


def test_the_fingerprint_is_stable_and_tells_schemas_apart():
    schema = Schema(inputs=TOKENS, targets=LABEL)
    text = (
        b'{"inputs":{"dtype":"int64","finite":true,"high":19,"low":0,"shape":[4]},'
        b'"targets":{"dtype":"int64","finite":true,"high":9,"low":0,"shape":[]}}'
    )
    assert schema.fingerprint == hashlib.sha256(text).hexdigest()
    wider = Schema(inputs=Field(shape=(4,), dtype=torch.int64, low=0, high=20), targets=LABEL)
    assert wider != schema
    assert wider.fingerprint != schema.fingerprint
    zero, negative = (Field(shape=(), dtype=torch.float32, low=low) for low in (0, -0.0))
    assert Schema(inputs=zero, targets=zero).fingerprint == Schema(inputs=negative, targets=negative).fingerprint


def test_a_schema_reads_as_a_sentence():
    schema = Schema(inputs=TOKENS, targets=Field(shape=(), dtype=torch.float32))
    assert str(schema) == "inputs: int64 [4], 0 to 19; targets: float32, finite"
    assert str(Field(shape=(1, 2), dtype=torch.uint8)) == "uint8 [1, 2], 0 to 255"
    assert str(Field(shape=(), dtype=torch.bool)) == "bool"
    assert str(Field(shape=(), dtype=torch.float64, low=0.5)) == "float64, at least 0.5, finite"
    assert str(Field(shape=(2,), dtype=torch.int16, high=3)) == "int16 [2], at most 3"
    assert str(Field(shape=(), dtype=torch.float32, finite=False)) == "float32, NaN and infinity allowed"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"shape": (-1,)}, "whole numbers of one record's shape"),
        ({"shape": 3}, "whole numbers of one record's shape"),
        ({"shape": (1.5,)}, "whole numbers of one record's shape"),
        ({"dtype": torch.uint64}, "must be one of torch's bool, uint8"),
        ({"dtype": "int64"}, "must be one of torch's bool, uint8"),
        ({"low": 3, "high": 2}, "no value lies between them"),
        ({"low": 0.5}, "for int64 it must be a whole number"),
        ({"high": True}, "for int64 it must be a whole number"),
        ({"dtype": torch.int8, "high": 128}, "int8 holds -128 to 127"),
        ({"dtype": torch.float32, "high": float("inf")}, "Leave it out for none"),
        ({"dtype": torch.float32, "low": float("nan")}, "Leave it out for none"),
        ({"dtype": torch.float16, "high": 1e6}, "a number that float16 can hold"),
        ({"dtype": torch.float32, "low": "0"}, "a number that float32 can hold"),
        ({"dtype": torch.bool, "low": 0}, "bool has no order"),
        ({"dtype": torch.complex64, "high": 1}, "complex64 has no order"),
        ({"finite": False}, "has no effect on int64"),
        ({"dtype": torch.float32, "finite": 1}, "must be True or False"),
    ],
)
def test_a_field_that_makes_no_sense_is_refused(wrong, message):
    with pytest.raises(DataError, match=message):
        Field(**({"shape": (), "dtype": torch.int64} | wrong))


def test_a_schema_in_a_file_that_makes_no_sense_is_refused():
    plain = Schema(inputs=TOKENS, targets=LABEL).to_dict()
    with pytest.raises(DataError, match="has inputs and targets"):
        Schema.of({"inputs": plain["inputs"]})
    with pytest.raises(InvalidInput, match="did you mean 'high'"):
        Schema.of({**plain, "inputs": {**plain["inputs"], "hihg": 3}})
    with pytest.raises(InvalidInput, match="did you mean 'int64'"):
        Schema.of({**plain, "targets": {**plain["targets"], "dtype": "int46"}})
    with pytest.raises(DataError, match="at least shape and dtype"):
        Schema.of({**plain, "targets": {"dtype": "int64"}})
    with pytest.raises(DataError, match="give a Field"):
        Schema(inputs="int64", targets=LABEL)


def test_bounds_are_rounded_to_the_type_of_the_records():
    field = Field(shape=(), dtype=torch.float32, high=0.1)
    assert not field.misfits(torch.tensor([0.1]))
    assert field.misfits(torch.tensor([0.10000002]))


def test_made_up_records_cover_their_range_and_differ():
    labels = drawn(LABEL, 10)
    assert sorted(labels.tolist()) == list(range(10))
    assert sorted(drawn(Field(shape=(), dtype=torch.int64, low=0, high=1), 2).tolist()) == [0, 1]
    assert set(drawn(Field(shape=(3,), dtype=torch.int64), 8).unique().tolist()) == {0, 1}
    assert drawn(Field(shape=(), dtype=torch.uint8), 256).sort().values.tolist() == list(range(256))
    wide = drawn(Field(shape=(), dtype=torch.int64, low=-(2**63), high=2**63 - 1), 64)
    for quarter in range(4):
        low = -(2**63) + quarter * 2**62
        assert any(low <= value < low + 2**62 for value in wide.tolist())
    for low, high in ((100.0, 200.0), (0.0, 1e-6), (1e9, 2e9), (-3e38, 3e38)):
        values = drawn(Field(shape=(), dtype=torch.float32, low=low, high=high), 50)
        assert len(values.unique()) > 10, (low, high)
    assert drawn(Field(shape=(), dtype=torch.float32, low=2.0, high=2.0), 3).tolist() == [2.0] * 3


def test_large_tables_are_looked_at_in_parts_and_rows_keep_their_numbers(monkeypatch):
    table = torch.zeros(3_000_000, 3)
    wrong = [0, 1_398_101, 1_398_102, 2_999_999]  # at the ends, and on both sides of a boundary between parts
    table[wrong, 1] = torch.tensor([float("nan"), float("inf"), 7.0, -7.0])
    field = Field(shape=(3,), dtype=torch.float32, low=-5, high=5)
    parts = []
    looked = Field._holds_all
    monkeypatch.setattr(Field, "_holds_all", lambda self, part: parts.append(len(part)) or looked(self, part))
    rows = {words: which.tolist() for words, which in field.misfits(table).items()}
    assert rows == {"that are not finite": wrong[:2], "above 5.0": [wrong[2]], "below -5.0": [wrong[3]]}
    assert len(parts) == 3
    assert max(parts) * 3 <= 1 << 22


def data_of(inputs, targets, **more):
    return DataSet.from_records(name="mine", train=(inputs, targets), **more)


def test_a_draft_takes_kinds_and_classes_and_looks_at_no_training_value():
    train = Records(torch.zeros(5, 2, device="meta"), torch.zeros(5, dtype=torch.int64, device="meta"))
    with pytest.raises(NotImplementedError):
        train.inputs.tolist()  # a tensor that has a shape and a type, and no values
    images = Schema.draft(data_of(torch.zeros(5, 1, 8, 8, dtype=torch.uint8), torch.arange(5), classes=7))
    assert str(images) == "inputs: uint8 [1, 8, 8], 0 to 255; targets: int64, 0 to 6"
    table = data_of(torch.zeros(5, 2), torch.zeros(5, dtype=torch.int64), classes=3)
    object.__setattr__(table, "train", train)
    assert str(Schema.draft(table, nn.Linear(2, 3))) == "inputs: float32 [2], finite; targets: int64, 0 to 2"
    line = Schema.draft(data_of(torch.zeros(5, 2, dtype=torch.float64), torch.zeros(5, 3)))
    assert str(line) == "inputs: float64 [2], finite; targets: float32 [3], finite"


class Reads(nn.Module):
    """Reads tokens in one of several ways."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.words, self.few = nn.Embedding(20, 8), nn.Embedding(5, 8)
        self.positions = nn.Embedding(4, 8)
        self.out = nn.Linear(8, 10)

    def forward(self, x):
        return self.out(self.how(self, x).mean(dim=1))


def read_in_place(model, x):
    x = x.clone() if x.requires_grad else x
    return model.words(x.clamp_(0, 19))


DIRECT = {
    "as they are": (lambda model, x: model.words(x), 19),
    "with positions": (lambda model, x: model.words(x) + model.positions(torch.arange(4)), 19),
    "by function": (lambda model, x: nn.functional.embedding(x, model.words.weight), 19),
    "turned": (lambda model, x: model.words(x.T).transpose(0, 1), 19),
    "by column": (
        lambda model, x: torch.stack([model.few(x[:, 0]), *(model.words(x[:, i]) for i in (1, 2, 3))], 1),
        19,
    ),
    "few": (lambda model, x: model.few(x), 4),
}
UNSURE = {
    "clamped": lambda model, x: model.words(x.clamp(0, 19)),
    "clamped in place": read_in_place,
    "modulo": lambda model, x: model.words(x % 20),
    "shifted": lambda model, x: model.words(x + 1),
    "only some columns": lambda model, x: model.words(x[:, :3]) + x[:, 3:, None],
    "by no table": lambda model, x: x[:, :, None].float().expand(-1, -1, 8),
    "in an unknown way": lambda model, x: model.words(x) @ torch.zeros(3, 3),
}


def tokens(**more):
    return data_of(torch.zeros(12, 4, dtype=torch.int64), torch.arange(12) % 10, classes=10, **more)


@pytest.mark.parametrize("how", DIRECT)
def test_an_embedding_that_reads_the_inputs_gives_their_range(how):
    read, high = DIRECT[how]
    drafted = Schema.draft(tokens(), Reads(read)).inputs
    assert (drafted.low, drafted.high) == (0, high)


@pytest.mark.parametrize("how", UNSURE)
def test_where_it_is_not_certain_what_an_embedding_reads_no_range_is_written(how):
    drafted = Schema.draft(tokens(), Reads(UNSURE[how])).inputs
    assert (drafted.low, drafted.high) == (None, None)


def test_another_prepare_leaves_inputs_without_the_models_range():
    model = Reads(DIRECT["as they are"][0])
    drafted = Schema.draft(tokens(prepare=lambda x: x.clamp(0, 19)), model).inputs
    assert (drafted.low, drafted.high) == (None, None)


def test_drafting_leaves_the_model_and_the_global_generator_as_they_were():
    model = Reads(lambda self, x: self.words(x) + torch.rand(1)).eval()
    before, state = {k: v.clone() for k, v in model.state_dict().items()}, torch.random.get_rng_state()
    Schema.draft(tokens(), model)
    assert not model.training
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())


def parts(*bad):
    """Three parties with ten sequences each; `bad` holds (party, record, place, token)."""
    tables = [torch.randint(0, 20, (10, 4), generator=torch.Generator().manual_seed(i)) for i in range(3)]
    for party, record, place, token in bad:
        tables[party][record, place] = token
    return [(table, torch.arange(10)) for table in tables]


def parties(*bad, owners=("north", "south", "west"), **more):
    return AgentData.from_parts(parts(*bad), name="words", owners=owners, classes=10, **more)


def run(data, **more):
    ledger = tacit.privacy.Ledger()
    usual = {
        "algorithm": tacit.DSGD(),
        "model": lambda: Reads(DIRECT["as they are"][0]),
        "data": data,
        "graph": nx.path_graph(3),
        "privacy": tacit.Privacy(noise_multiplier=2.0, delta=1e-3, clip=1.0, lot_size=4),
        "rounds": 2,
        "lr": 0.1,
        "ledger": ledger,
        "compile": False,
    }
    return tacit.Training(**usual | more), ledger


def refusal(data, **more):
    training, ledger = run(data, **more)
    sent = []
    training = tacit.Training(**{**vars(training), "taps": [lambda *seen: sent.append(seen)]})
    with pytest.raises(DataError) as caught:
        tacit.Session(training)
    assert not ledger.entries()
    assert not sent
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return str(caught.value)


def test_a_token_that_the_model_cannot_look_up_is_an_error_before_anything_is_asked():
    message = refusal(parties((1, 7, 2, 777)))
    assert "agent 1 (south): 1 with inputs above 19" in message
    assert "777" not in message
    assert "north" not in message
    assert "do not forward it" in message
    assert "schema.fits(records)" in message


def test_the_error_counts_records_by_what_is_wrong_with_them():
    bad = [(0, 1, 0, -1), (0, 1, 1, -5), (0, 2, 0, -1), (0, 3, 0, 20), (2, 0, 0, 99)]
    message = refusal(parties(*bad))
    assert (
        "agent 0 (north): 2 with inputs below 0, 1 with inputs above 19; agent 2 (west): 1 with inputs above 19"
        in message
    )


def test_of_many_agents_some_are_named_and_the_others_counted():
    words = torch.full((6, 4), 50)
    data = AgentData.from_parts([(words[i : i + 1], torch.tensor([i])) for i in range(6)], name="words", classes=10)
    message = refusal(data, graph=nx.path_graph(6), privacy=tacit.NoPrivacy(lot_size=1), ledger=None)
    assert message.count("with inputs above 19") == 3
    assert "and 3 more agents" in message


def test_records_that_fit_are_trained_on_and_the_result_tells_the_schema():
    training, ledger = run(parties())
    with tacit.Session(training) as session:
        session.advance()
        assert str(session.results()[0].schema) == "inputs: int64 [4], 0 to 19; targets: int64, 0 to 9"
    assert ledger.entries()


def test_dropping_what_does_not_fit_mends_it():
    data = parties((1, 7, 2, 777))
    schema = Schema(inputs=TOKENS, targets=LABEL)
    mended = [Records(*part).take(torch.nonzero(schema.fits(Records(*part)))[:, 0]) for part in parts((1, 7, 2, 777))]
    kept = AgentData.from_parts(mended, name="words", schema=schema)
    assert kept.sizes == (10, 9, 10)
    check_records(kept, schema)
    with pytest.raises(DataError, match="do not fit"):
        check_records(data, schema)


def test_rows_that_nobody_holds_do_not_matter():
    held = parties((1, 0, 0, -3))
    rows = (held.indices[0], held.indices[1][1:], held.indices[2])
    check_records(
        AgentData(dataset=held.dataset, indices=rows, owners=held.owners), Schema(inputs=TOKENS, targets=LABEL)
    )


def test_infinite_and_missing_numbers_are_refused_unless_declared():
    inputs, targets = torch.zeros(12, 2), torch.zeros(12)
    inputs[3, 1], inputs[4, 0], targets[5] = float("nan"), float("inf"), float("-inf")
    line = {
        "model": nn.Linear(2, 1),
        "loss": lambda out, y: (out[:, 0] - y) ** 2,
        "graph": None,
        "algorithm": tacit.SGD(),
    }

    def one(**more):
        return AgentData.from_parts([(inputs, targets)], name="line", **more)

    message = refusal(one(), **line)
    assert "2 with inputs that are not finite, 1 with targets that are not finite" in message
    assert "allow_missing=0.05 lets in a share of what is not finite" in message
    declared = Schema(
        inputs=Field(shape=(2,), dtype=torch.float32, finite=False),
        targets=Field(shape=(), dtype=torch.float32, finite=False),
    )
    training, _ = run(one(schema=declared), **line)
    with tacit.Session(training) as session:
        assert session.schema == declared
    training, _ = run(one(allow_missing=True), **line)
    with tacit.Session(training) as session:
        assert session.schema == declared
    finite = Schema(inputs=Field(shape=(2,), dtype=torch.float32), targets=Field(shape=(), dtype=torch.float32))
    with pytest.raises(DataError, match="set finite=False in its fields"):
        one(schema=finite, allow_missing=True)


@pytest.mark.parametrize("declared", [False, True])
def test_no_agent_may_miss_more_than_the_share_that_is_let_in(declared):
    """Two of ten records of the second agent: a tenth is too little, a fifth is enough, whoever holds the others."""
    inputs = torch.zeros(10, 2)
    inputs[3, 1], inputs[7, 0] = float("nan"), float("-inf")
    parts = [(torch.zeros(10, 2), torch.zeros(10)), (inputs, torch.zeros(10))]
    line = {"model": nn.Linear(2, 1), "loss": lambda out, y: (out[:, 0] - y) ** 2, "graph": nx.path_graph(2)}
    schema = Schema(
        inputs=Field(shape=(2,), dtype=torch.float32, finite=False), targets=Field(shape=(), dtype=torch.float32)
    )

    def held(share):
        more = {"schema": schema} if declared else {}
        return AgentData.from_parts(parts, name="line", owners=["north", "south"], allow_missing=share, **more)

    with pytest.raises(DataError) as refused:
        held(0.1)
    message = str(refused.value)
    assert "than the share of 0.1 that allow_missing lets in. agent 1 (south): 2 of 10." in message
    assert "north" not in message
    assert "do not forward it" in message
    for share in (0.2, 1, True):
        training, _ = run(held(share), **line)
        tacit.Session(training).close()
    assert refusal(replace(held(0.2), dataset=replace(held(0.2).dataset, most_missing=0.1)), **line) == message


def quarter_missing():
    inputs = torch.zeros(40, 2)
    inputs[::4, 1] = float("nan")
    return inputs, torch.zeros(40)


def test_more_missing_records_than_the_stated_share_are_refused_when_they_are_loaded():
    with pytest.raises(
        DataError, match=r"than the share of 0.1 that allow_missing lets in. training records: 10 of 40"
    ):
        DataSet.from_records(name="line", train=quarter_missing(), allow_missing=0.1)
    assert DataSet.from_records(name="line", train=quarter_missing(), allow_missing=0.25).most_missing == 0.25


def test_missing_records_are_reported_when_they_are_loaded_and_no_share_is_stated(caplog):
    DataSet.from_records(name="line", train=quarter_missing())
    assert "10 of 40 training records of line hold NaN or infinity, and no run will start with them" in caplog.text
    caplog.clear()
    DataSet.from_records(name="line", train=quarter_missing(), allow_missing=True)
    DataSet.from_records(name="line", train=(torch.zeros(4, 2), torch.zeros(4)))
    assert caplog.text == ""


@pytest.mark.parametrize("share", [-0.1, 1.5, "all", None, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(DataError, match="a share of records from 0 to 1"):
        AgentData.from_parts([(torch.zeros(2, 2), torch.zeros(2))], name="line", allow_missing=share)


def test_allow_missing_means_nothing_where_nothing_can_be_missing():
    whole = (torch.zeros(4, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]))
    with pytest.raises(DataError, match="allow_missing has no effect on bytes"):
        AgentData.from_parts([whole], name="bytes", allow_missing=True)


def test_a_declared_range_is_kept_and_one_wider_than_the_model_is_refused():
    narrow = Schema(inputs=Field(shape=(4,), dtype=torch.int64, low=1, high=18), targets=LABEL)
    assert "inputs above 18" in refusal(parties((0, 0, 0, 19), schema=narrow))
    wide = Schema(inputs=Field(shape=(4,), dtype=torch.int64, low=0, high=20), targets=LABEL)
    assert "embedding of 20 rows; declare 0 to 19, or less" in refusal(parties(schema=wide))
    training, _ = run(parties(schema=Schema(inputs=Field(shape=(4,), dtype=torch.int64), targets=LABEL)))
    with tacit.Session(training) as session:
        assert session.schema.inputs == TOKENS


def test_a_declared_schema_gives_the_classes_and_must_agree_with_them():
    schema = Schema(inputs=TOKENS, targets=LABEL)
    assert DataSet.from_records(name="x", train=parts()[0], schema=schema).classes == 10
    few = DataSet.from_records(name="x", train=(parts()[0][0], torch.zeros(10, dtype=torch.int64)), schema=schema)
    assert few.classes == 10
    data = DataSet.from_records(name="x", train=(parts()[0][0], torch.arange(10) % 5), classes=5, schema=schema)
    with pytest.raises(DataError, match="5 classes are numbered from 0; declare 0 to 4"):
        settle(data, nn.Identity())


def test_a_table_of_another_kind_than_declared_is_refused_when_it_is_given():
    schema = Schema(inputs=TOKENS, targets=LABEL)
    inputs, targets = parts()[0]
    with pytest.raises(DataError, match="inputs of the training set of mine are int32 of shape"):
        data_of(inputs.int(), targets, schema=schema)
    with pytest.raises(DataError, match=r"of shape \(3,\), but the schema says int64 \[4\]"):
        data_of(inputs[:, :3], targets, schema=schema)
    with pytest.raises(DataError, match="give a Schema"):
        data_of(inputs, targets, schema={"inputs": 1})


def test_held_out_records_are_checked_and_are_public():
    wrong = (torch.full((3, 4), 33), torch.arange(3))
    assert refusal(parties(test=wrong)) == "the test set does not fit its schema: 3 with inputs above 19"
    other = (torch.zeros(3, 4, dtype=torch.int32), torch.arange(3))
    assert "inputs of the validation set are int32" in refusal(parties(validation=other))


def test_a_table_is_read_once_for_a_schema_and_again_after_a_change(monkeypatch):
    data, schema = parties(), Schema(inputs=TOKENS, targets=LABEL)
    reads = []
    look = Schema.misfits
    monkeypatch.setattr(Schema, "misfits", lambda self, table: reads.append(table) or look(self, table))
    for _ in range(3):
        check_records(data, schema)
        check_records(data, Schema.of(schema.to_dict()))
        check_records(data.pooled(), schema)
    assert len(reads) == 1
    check_records(data, Schema(inputs=Field(shape=(4,), dtype=torch.int64), targets=LABEL))
    assert len(reads) == 2
    data.dataset.train.inputs[3, 0] = -1
    with pytest.raises(DataError, match="1 with inputs below 0"):
        check_records(data, schema)


def test_features_keep_what_was_declared_of_the_targets():
    images = torch.zeros(4, 1, 16, 16, dtype=torch.uint8)
    declared = Schema(inputs=Field(shape=(1, 16, 16), dtype=torch.uint8), targets=LABEL)
    schema = scattered(data_of(images, torch.arange(4), schema=declared)).schema
    assert schema.targets == LABEL
    assert schema.inputs.dtype == torch.float32


def test_the_shape_that_a_model_meets_is_found_without_a_training_record():
    given = []
    data = data_of(torch.full((3, 2), 5.0), torch.arange(3), prepare=lambda x: given.append(x) or x[:, :1])
    assert data.input_shape == (1,)
    assert not any((x == 5.0).any() for x in given)


def test_made_up_public_records_have_all_classes_and_held_out_ones_come_first():
    schema = Schema(inputs=TOKENS, targets=LABEL)
    lot = public_lot(parties(), schema, 20, torch.device("cpu"))
    assert torch.bincount(lot.targets).tolist() == [2] * 10
    for place in lot.inputs.T:
        assert sorted(place.tolist()) == list(range(20))
    words, labels = torch.full((5, 4), 3), torch.full((5,), 4)
    held_out = parties(test=(words, labels))
    assert torch.equal(example(held_out, schema, 5), words)
    assert torch.equal(public_lot(held_out, schema, 5, torch.device("cpu")).targets, labels)
    assert len(public_lot(held_out, schema, 10, torch.device("cpu")).targets.unique()) == 10
