"""Schemas that are drafted: from tables and from the embedding that reads them, without a look at training values."""

import pytest
import torch
from schema_tables import DIRECT, LABEL, TOKENS, Reads, data_of, parties
from torch import nn

from tacit.data import Records, Schema
from tacit.training.preparation import example, public_lot


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


def read_in_place(model, x):
    x = x.clone() if x.requires_grad else x
    return model.words(x.clamp_(0, 19))


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
