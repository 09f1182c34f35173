"""Records against a schema: what does not fit is an error before anything is asked, missing numbers, declared ranges."""

from dataclasses import replace

import networkx as nx
import pytest
import torch
from schema_tables import DIRECT, LABEL, TOKENS, Reads, data_of, parties, parts
from torch import nn

import tacit
from tacit.data import AgentData, DataSet, Field, Records, Schema, scattered
from tacit.data.drafting import settle
from tacit.data.schema import check_records
from tacit.errors import DataError


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
    assert "agent 1 (south): inputs above 19. Drop them" in message
    assert "777" not in message
    assert "north" not in message
    assert "do not forward it" in message
    assert "schema.fits(records)" in message


def test_the_error_says_what_is_wrong_and_not_with_how_many_records():
    bad = [(0, 1, 0, -1), (0, 1, 1, -5), (0, 2, 0, -1), (0, 3, 0, 20), (2, 0, 0, 99)]
    message = refusal(parties(*bad))
    assert "agent 0 (north): inputs below 0, inputs above 19; agent 2 (west): inputs above 19. Drop them" in message
    assert refusal(parties(*bad[1:])) == message


def test_of_many_agents_some_are_named_and_the_others_counted():
    words = torch.full((6, 4), 50)
    data = AgentData.from_parts([(words[i : i + 1], torch.tensor([i])) for i in range(6)], name="words", classes=10)
    message = refusal(data, graph=nx.path_graph(6), privacy=tacit.NoPrivacy(lot_size=1), ledger=None)
    assert message.count("): inputs above 19") == 3
    assert "and 3 more agents" in message


def test_records_that_fit_are_trained_on_and_the_result_has_the_schema():
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
    assert "agent 0): inputs that are not finite, targets that are not finite. Drop" in message
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
    assert "than the share of 0.1 that allow_missing lets in: agent 1 (south). Drop" in message
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
    with pytest.raises(DataError, match=r"than the share of 0.1 that allow_missing lets in: training records. Drop"):
        DataSet.from_records(name="line", train=quarter_missing(), allow_missing=0.1)
    assert DataSet.from_records(name="line", train=quarter_missing(), allow_missing=0.25).most_missing == 0.25


def test_missing_records_are_reported_when_they_are_loaded_and_no_share_is_stated(caplog):
    DataSet.from_records(name="line", train=quarter_missing())
    said = caplog.text
    assert "training records of line hold NaN or infinity, and no run will start with them" in said
    caplog.clear()
    inputs, targets = quarter_missing()
    DataSet.from_records(name="line", train=(inputs[3:], targets[3:]))
    assert caplog.text == said  # how many hold NaN, and of how many, is private
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
    with pytest.raises(DataError, match=r"\): inputs below 0\. Drop"):
        check_records(data, schema)


def test_features_keep_what_was_declared_of_the_targets():
    images = torch.zeros(4, 1, 16, 16, dtype=torch.uint8)
    declared = Schema(inputs=Field(shape=(1, 16, 16), dtype=torch.uint8), targets=LABEL)
    schema = scattered(data_of(images, torch.arange(4), schema=declared)).schema
    assert schema.targets == LABEL
    assert schema.inputs.dtype == torch.float32
