"""A schema by itself: what fits a field, samples, files, fingerprints."""

import hashlib
import json
import tomllib

import numpy as np
import pytest
import tomli_w
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from schema_tables import LABEL, TOKENS

from tacit.data import Field, Records, Schema
from tacit.errors import DataError, InvalidInput

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32)


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


OTHERS = (torch.bool, torch.complex64, torch.complex128)


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
