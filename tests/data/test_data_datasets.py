import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from tacit.data import IID, AgentData, ByClass, DataSet, Normalise, Records
from tacit.errors import DataError


def table(labels: list[int]) -> Records:
    return Records(torch.arange(len(labels) * 2.0).view(-1, 2), torch.tensor(labels))


def dataset(labels: list[int], **settings) -> DataSet:
    return DataSet.from_records(name="mine", train=table(labels), **settings)


def held(data: DataSet, *rows: list[int], owners: tuple[str, ...] | None = None) -> AgentData:
    indices = tuple(torch.tensor(row, dtype=torch.int64) for row in rows)
    return AgentData(dataset=data, indices=indices, owners=owners or tuple(f"o{i}" for i in range(len(rows))))


def test_classes_are_read_off_all_integer_targets():
    assert dataset([0, 2, 1], test=table([4, 0])).classes == 5


def test_a_declared_number_of_classes_wins():
    assert dataset([0, 1], classes=7).classes == 7


@pytest.mark.parametrize("targets", [torch.zeros(4), torch.zeros(4, 3, dtype=torch.int64)])
def test_other_targets_make_no_classification(targets):
    assert DataSet.from_records(name="x", train=(torch.zeros(4, 2), targets)).classes is None


def test_labels_are_widened_and_inputs_are_not():
    images = np.zeros((3, 1, 4, 4), dtype=np.uint8)
    data = DataSet.from_records(name="x", train=(images, np.array([0, 1, 1], dtype=np.uint8)))
    assert data.train.targets.dtype == torch.int64
    assert data.train.inputs.dtype == torch.uint8


def test_a_torch_data_set_can_be_brought():
    data = DataSet.from_records(name="x", train=TensorDataset(torch.rand(5, 3), torch.tensor([0, 1, 0, 1, 2])))
    assert (len(data.train), data.classes, data.input_shape) == (5, 3, (3,))


def test_bytes_are_prepared_to_the_unit_interval_and_floats_are_left_alone():
    data = DataSet.from_records(name="x", train=(torch.tensor([[0], [255]], dtype=torch.uint8), torch.arange(2)))
    assert data.prepare(data.train.inputs).tolist() == [[0.0], [1.0]]
    floats = torch.tensor([[300.0]])
    assert data.prepare(floats) is floats


def test_input_shape_is_that_of_a_prepared_record():
    data = dataset([0, 1], prepare=lambda inputs: inputs.view(len(inputs), 1, 2, 1))
    assert data.input_shape == (1, 2, 1)


def test_a_preparation_that_drops_the_first_axis_is_refused():
    with pytest.raises(DataError, match="turned 1 record into 2; it must keep the first axis"):
        _ = dataset([0, 1], prepare=torch.flatten).input_shape


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_normalising_follows_its_formula_and_leaves_its_input(dtype):
    inputs = torch.arange(24, dtype=dtype).view(2, 3, 2, 2)
    before = inputs.clone()
    mean, std = (0.1, 0.2, 0.3), (0.5, 1.0, 2.0)
    got = Normalise(mean=mean, std=std, top=16)(inputs)
    for c in range(3):
        expected = (inputs[:, c].double() / 16 - mean[c]) / std[c]
        torch.testing.assert_close(got[:, c].double(), expected, rtol=0, atol=1e-6)
    assert got.dtype == torch.float32
    assert torch.equal(inputs, before)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": (torch.zeros(0, 2), torch.zeros(0))}, "the training set of x has no records"),
        ({"validation": (torch.zeros(0, 2), torch.zeros(0))}, "the validation set of x has no records"),
        ({"test": (torch.zeros(1, 3), torch.zeros(1))}, r"test inputs of x have shape \(3,\).*have \(2,\)"),
        ({"classes": 3}, "training targets of x are torch.float32 of shape"),
        (
            {"train": (torch.zeros(2, 2), torch.tensor([0, 5])), "classes": 3},
            "not all training targets of x lie between 0 and 2",
        ),
        (
            {"train": (torch.zeros(2, 2), torch.tensor([0, -1]))},
            "not all training targets of x lie between 0 and",
        ),
    ],
)
def test_a_data_set_that_cannot_be_used_is_refused(settings, message):
    usual = {"name": "x", "train": (torch.zeros(2, 2), torch.zeros(2))}
    with pytest.raises(DataError, match=message):
        DataSet.from_records(**usual | settings)


def test_the_same_seed_divides_the_same_way():
    data = dataset([i % 3 for i in range(50)])
    first, same, other = (data.split(4, IID(), seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first.indices, same.indices, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.indices, other.indices, strict=True))


def test_owners_are_named_by_public_facts_only():
    one = dataset([0, 1] * 5).split(2, ByClass(t=0.5), seed=7)
    assert one.owners == ("mine/A(t=0.5)/seed 7/2 agents/agent 0", "mine/A(t=0.5)/seed 7/2 agents/agent 1")
    assert dataset([1, 0] * 9).split(2, ByClass(t=0.5), seed=7).owners == one.owners


def test_counts_are_records_by_agent_and_class():
    split = held(dataset([0, 0, 1, 2, 2]), [0, 2, 3], [4, 1])
    assert split.counts.tolist() == [[1, 1, 1], [1, 0, 1]]
    assert split.counts.dtype == np.int64
    assert (split.agents, split.sizes) == (2, (3, 2))


def test_records_without_classes_cannot_be_counted_but_can_be_split():
    data = DataSet.from_records(name="regression", train=(torch.zeros(6, 2), torch.rand(6)))
    split = data.split(3, IID())
    assert split.sizes == (2, 2, 2)
    with pytest.raises(DataError, match="regression has no classes to count"):
        _ = split.counts


def test_pooling_gives_all_records_to_one_agent():
    pooled = dataset([0, 1, 2, 0, 1, 2]).split(3, ByClass(t=1)).pooled()
    assert pooled.indices[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert pooled.owners == ("mine/pooled",)


@pytest.mark.parametrize("agents", ["4", 4.0, True, None])
def test_a_number_of_agents_that_is_none_is_refused(agents):
    with pytest.raises(DataError, match=f"agents is {agents!r}; it must be a whole number"):
        dataset([0, 1, 0]).split(agents, IID())


def test_parts_and_names_of_another_kind_are_refused():
    with pytest.raises(DataError, match="parts is a dict; give a list with the records of each agent"):
        AgentData.from_parts({"north": ([[1.0]], [0])}, name="visits")
    with pytest.raises(DataError, match="name is 5; it must be a string"):
        DataSet.from_records(name=5, train=([[1.0]], [0]))


@pytest.mark.parametrize("agents", [0, -1, 4])
def test_more_agents_than_records_and_none_are_refused(agents):
    with pytest.raises(DataError, match=f"cannot divide 3 training records of mine among {agents} agents"):
        dataset([0, 1, 0]).split(agents, IID())


@pytest.mark.parametrize(
    ("rows", "owners", "message"),
    [
        (([0, 1], [], [2], []), None, r"2 of 4 agents hold no records \(agents 1, 3\)"),
        (([0, 1], [1, 2]), None, r"record 1 is held 2 times \(by agents \[0, 1\]\)"),
        (([0, 0], [2]), None, r"record 0 is held 2 times \(by agents \[0, 0\]\)"),
        (([0, 1], [3]), None, "index 3 points at no record: mine has 3"),
        (([0, -1], [2]), None, "index -1 points at no record"),
        (([0], [1]), ("a", "a"), "two agents are called 'a'"),
        (([0], [1]), ("a",), "1 owners for 2 agents"),
    ],
)
def test_a_division_that_is_none_is_refused(rows, owners, message):
    with pytest.raises(DataError, match=message):
        held(dataset([0, 1, 0]), *rows, owners=owners)


def test_indices_of_another_type_are_refused():
    with pytest.raises(DataError, match=r"indices of agent 0 are torch\.int32"):
        AgentData(dataset=dataset([0, 1]), indices=(torch.tensor([0], dtype=torch.int32),), owners=("a",))


def test_parts_are_taken_as_they_are_divided():
    parts = [table([0, 1]), (np.full((3, 2), 9, dtype=np.float32), np.array([2, 2, 0])), table([1])]
    split = AgentData.from_parts(parts, name="wards", test=table([0]))
    assert split.sizes == (2, 3, 1)
    assert [rows.tolist() for rows in split.indices] == [[0, 1], [2, 3, 4], [5]]
    assert split.counts.tolist() == [[1, 1, 0], [1, 0, 2], [0, 1, 0]]
    assert split.dataset.train.inputs[2].tolist() == [9, 9]
    assert split.owners == tuple(f"wards/3 agents/agent {i}" for i in range(3))


def test_owners_of_parts_can_be_named():
    split = AgentData.from_parts([table([0]), table([1])], name="wards", owners=["north", "south"])
    assert split.owners == ("north", "south")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "wards has no parts"),
        (
            [table([0]), (torch.zeros(1, 5), torch.tensor([1]))],
            r"inputs of part 1 are torch.float32 and shape \(5,\)",
        ),
        ([table([0]), (torch.zeros(1, 2), torch.tensor([1.0]))], "targets of part 1 are torch.float32"),
        (
            [table([0]), (torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))],
            "1 of 2 agents hold no records",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts, message):
    with pytest.raises(DataError, match=message):
        AgentData.from_parts(parts, name="wards")


def test_targets_that_are_no_classes_are_refused_with_whose_and_not_how_many():
    said = []
    for theirs in ([2, 7, -1], [2, 1, 0, 7]):
        with pytest.raises(DataError, match=r"not all targets of agent 1 \(south\) lie between 0 and 2") as error:
            AgentData.from_parts([table([0, 1]), table(theirs)], name="wards", classes=3, owners=["north", "south"])
        said.append(str(error.value))
    assert said[0] == said[1]
    assert "do not forward it" in said[0]
    assert "7" not in said[0]
