import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from tacit.data import Records
from tacit.errors import DataError


def images(count: int = 4) -> torch.Tensor:
    return torch.arange(count * 6, dtype=torch.uint8).view(count, 1, 2, 3)


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Torn(Dataset):
    """Three of nine items cannot be read."""

    def __len__(self):
        return 9

    def __getitem__(self, index):
        if index in (2, 4, 8):
            raise ValueError(f"scan {index} is torn")
        return torch.zeros(2), 0


def test_tensors_are_kept_as_given():
    inputs, targets = images(), torch.tensor([0, 1, 2, 3], dtype=torch.int16)
    records = Records.of((inputs, targets))
    assert records.inputs.data_ptr() == inputs.data_ptr()
    assert records.targets.dtype == torch.int16
    assert len(records) == 4


def test_a_table_of_records_is_taken_as_it_is():
    records = Records(images(), torch.arange(4))
    assert Records.of(records) is records


def test_numpy_arrays_become_tensors():
    records = Records.of((np.ones((3, 2), dtype=np.uint8), np.array([0.5, 1.5, 2.5])))
    assert records.inputs.dtype == torch.uint8
    assert records.targets.tolist() == [0.5, 1.5, 2.5]


def test_read_only_and_reversed_arrays_are_copied(recwarn):
    frozen = np.arange(6.0).reshape(3, 2)
    frozen.flags.writeable = False
    records = Records.of((frozen, np.arange(3)[::-1]))
    assert records.inputs.tolist() == frozen.tolist()
    assert records.targets.tolist() == [2, 1, 0]
    assert not recwarn


def test_take_keeps_the_order_of_indices():
    records = Records(images(), torch.tensor([10, 11, 12, 13]))
    taken = records.take(torch.tensor([3, 0]))
    assert taken.targets.tolist() == [13, 10]
    assert torch.equal(taken.inputs, images()[[3, 0]])


def test_a_map_style_data_set_is_stacked():
    source = TensorDataset(images(), torch.tensor([3, 2, 1, 0]))
    records = Records.of(source)
    assert torch.equal(records.inputs, images())
    assert records.inputs.dtype == torch.uint8
    assert records.targets.tolist() == [3, 2, 1, 0]


def test_items_may_hold_arrays_and_plain_numbers():
    records = Records.of(Items([(np.zeros((2, 2), dtype=np.uint8), 1), (np.ones((2, 2), dtype=np.uint8), 0)]))
    assert records.inputs.dtype == torch.uint8
    assert records.targets.dtype == torch.int64
    assert records.targets.tolist() == [1, 0]


def test_a_list_of_two_items_is_a_data_set_not_a_pair_of_arrays():
    records = Records.of([(torch.zeros(2), 0), (torch.ones(2), 1)])
    assert records.inputs.tolist() == [[0, 0], [1, 1]]
    assert records.targets.tolist() == [0, 1]


@pytest.mark.parametrize(
    "source",
    [
        ([[0.0, 1.0], [2.0, 3.0]], [1, 0]),
        (torch.tensor([[0.0, 1.0], [2.0, 3.0]]), [1, 0]),
        ([[0.0, 1.0], [2.0, 3.0]], torch.tensor([1, 0])),
        Items([([0.0, 1.0], 1), ([2.0, 3.0], 0)]),
    ],
    ids=["lists", "targets", "inputs", "items"],
)
def test_lists_of_numbers_become_tensors_of_the_kind_that_models_read(source):
    records = Records.of(source)
    assert (records.inputs.dtype, records.targets.dtype) == (torch.float32, torch.int64)
    assert records.inputs.tolist() == [[0, 1], [2, 3]]
    assert records.targets.tolist() == [1, 0]


def test_several_inputs_may_be_lists_by_name():
    records = Records.of(({"age": [[1.0], [2.0]], "code": [[3, 4], [5, 6]]}, [0, 1]))
    assert {name: table.dtype for name, table in records.inputs.items()} == {"age": torch.float32, "code": torch.int64}


def test_each_item_of_a_data_set_is_read_once():
    class Counting(Items):
        reads = 0

        def __getitem__(self, index):
            self.reads += 1
            return super().__getitem__(index)

    source = Counting([(torch.zeros(1), 0)] * 7)
    Records.of(source)
    assert source.reads == 7


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            Items([(torch.zeros(2), 0), (torch.zeros(3), 1)]),
            r"input of item 1 has shape \(3,\).*item 0 has \(2,\)",
        ),
        (
            Items([(torch.zeros(2), torch.zeros(2)), (torch.zeros(2), torch.zeros(1))]),
            "target of item 1 has shape",
        ),
        (
            Items([None, (torch.zeros(2), 0), (torch.zeros(3), 1), (torch.zeros(2), 0)]),
            "2 of 4 records cannot be used. The first: item 0 is an object of type NoneType",
        ),
        (Items([torch.zeros(2)]), "item 0 is a tensor.*not an \\(input, target\\) pair"),
        (Items([{"image": 1, "label": 2}]), "item 0 is an object of type dict"),
        (Items([(1, 2, 3)]), "item 0 is a tuple of length 3"),
        (Items([("text", 0)]), "input of item 0 cannot be turned into a tensor"),
        (
            Items([(torch.zeros(2), 0), ("text", 0), ("text", 1)]),
            "2 of 3 records cannot be used. The first: input of item 1 cannot be turned into a tensor",
        ),
        (
            Torn(),
            r"3 of 9 records cannot be used. The first: item 2 cannot be read: ValueError: scan 2 is torn",
        ),
        (Items([]), "holds no records"),
        (torch.zeros(3, 2), r"cannot read records from a tensor of torch.float32 and shape \(3, 2\)"),
        ((np.array(["a", "b"]), np.arange(2)), "inputs cannot be turned into a tensor: an array of <U1"),
        ((torch.zeros(2, 2), np.array(["a", "b"])), "labels are text; number the classes from 0"),
        ((torch.zeros(2, 2), ["a", "b"]), "targets cannot be turned into a tensor, since labels are text"),
        (Items([(torch.zeros(2), "a")]), "target of item 0 cannot be turned into a tensor, since labels are text"),
        ((torch.zeros(3, 2), torch.zeros(2)), "3 inputs but 2 targets"),
        (
            ([[1.0, 2.0], [3.0]], [0, 1]),
            r"inputs cannot be turned into a tensor: a list of length 2 \(expected sequence of len",
        ),
        (([["a"]], [0]), "inputs cannot be turned into a tensor: a list of length 1"),
        ((torch.zeros(3, 2), torch.tensor(1)), "targets must be a tensor with one row per record"),
    ],
)
def test_what_is_no_table_of_records_is_refused(source, message):
    with pytest.raises(DataError, match=message):
        Records.of(source)


def test_a_stream_is_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([])

    with pytest.raises(DataError, match="type Stream; give Records"):
        Records.of(Stream())
