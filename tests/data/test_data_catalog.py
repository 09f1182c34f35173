import hashlib

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from tacit.data import IID, ByClass, DataSet, catalog, load, synthetic
from tacit.data.official import FASHION_MNIST, MNIST
from tacit.errors import DataError, InvalidInput


@pytest.fixture(scope="module")
def mnist(real_data) -> DataSet:
    return load("mnist", real_data)


def positions_of(data: DataSet, images: np.ndarray) -> tuple[list[int], list[int]]:
    """Where the validation and the test records stand among `images`."""
    where = {image.tobytes(): i for i, image in enumerate(images)}
    return tuple([where[x.numpy().tobytes()] for x in part.inputs] for part in (data.validation, data.test))


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InvalidInput, match="unknown data set 'fashon-mnist'; did you mean 'fashion-mnist'"):
        load("fashon-mnist")


def test_digits_are_those_of_scikit_learn():
    whole, known = catalog._read_digits(), load_digits()
    assert torch.equal(whole.table[:, 0].double(), torch.from_numpy(known.images))
    assert torch.equal(whole.targets, torch.from_numpy(known.target))


def test_digits_need_no_file(tmp_path):
    data = load("digits", tmp_path)
    assert len(data.train) + len(data.validation) + len(data.test) == 1_797
    assert data.train.inputs.dtype == torch.uint8
    assert (data.classes, data.input_shape) == (10, (1, 8, 8))
    prepared = data.prepare(data.train.inputs)
    assert (prepared.min(), prepared.max()) == (0, 1)


def test_a_fifth_of_each_digit_is_held_out_in_equal_halves():
    data = load("digits")
    train, validation, test = (torch.bincount(part.targets) for part in (data.train, data.validation, data.test))
    held_out = validation + test
    assert (held_out == (train + held_out + 4) // 5).all()
    assert (validation - test).abs().max() <= 1


def test_an_official_test_set_is_halved_by_even_and_odd_positions(tmp_path, write_cifar):
    write_cifar(tmp_path / "cifar-100-python/train", {"fine_labels": [0, 99]}, seed=1)
    images = write_cifar(tmp_path / "cifar-100-python/test", {"fine_labels": [5] * 7}, seed=2)
    data = load("cifar100", tmp_path)
    assert positions_of(data, images) == ([0, 2, 4, 6], [1, 3, 5])


def test_cifar10_joins_its_five_batches_in_order(tmp_path, write_cifar):
    folder = tmp_path / "cifar-10-batches-py"
    batches = [write_cifar(folder / f"data_batch_{i}", {"labels": [i, 0]}, seed=i) for i in range(1, 6)]
    write_cifar(folder / "test_batch", {"labels": [9, 8]}, seed=9)
    data = load("cifar10", tmp_path)
    assert data.train.targets.tolist() == [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]
    assert (data.train.inputs.numpy() == np.concatenate(batches)).all()
    assert (data.classes, data.input_shape) == (10, (3, 32, 32))


def test_the_small_cifar100_is_the_first_hundred_of_each_class(tmp_path, write_cifar):
    labels = ([0] * 3 + [1]) * 60
    images = write_cifar(tmp_path / "cifar-100-python/train", {"fine_labels": labels}, seed=1)
    write_cifar(tmp_path / "cifar-100-python/test", {"fine_labels": [0, 1]}, seed=2)
    data = load("cifar100-small", tmp_path)
    first = [i for i, label in enumerate(labels) if labels[:i].count(label) < 100]
    assert (data.train.inputs.numpy() == images[first]).all()
    assert (data.name, data.classes) == ("cifar100-small", 100)


def test_the_small_cifar100_needs_no_more_than_its_own_file_and_the_test_set(tmp_path, write_cifar):
    write_cifar(tmp_path / "cifar-100-small/train", {"fine_labels": [3, 4]})
    write_cifar(tmp_path / "cifar-100-python/test", {"fine_labels": [0, 1]})
    assert load("cifar100-small", tmp_path).train.targets.tolist() == [3, 4]


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")])
def test_idx_images_are_enlarged_once_and_stay_bytes(tmp_path, write_idx, name, folder):
    rng = np.random.default_rng(0)
    raw = tmp_path / folder / "raw"
    train = rng.integers(256, size=(5, 28, 28))
    write_idx(raw / "train-images-idx3-ubyte.gz", train)
    write_idx(raw / "train-labels-idx1-ubyte", np.arange(5))
    write_idx(raw / "t10k-images-idx3-ubyte", rng.integers(256, size=(4, 28, 28)))
    write_idx(raw / "t10k-labels-idx1-ubyte.gz", np.arange(4))
    data = load(name, tmp_path)
    assert data.train.inputs.dtype == torch.uint8
    assert data.input_shape == (1, 32, 32)
    assert data.train.targets.tolist() == [0, 1, 2, 3, 4]
    assert (data.validation.targets.tolist(), data.test.targets.tolist()) == ([0, 2], [1, 3])
    assert np.abs(data.train.inputs[0, 0].double().numpy() - bilinear(train[0], 32)).max() <= 0.5 + 1e-3


def bilinear(image: np.ndarray, size: int) -> np.ndarray:
    """Pixel centres of the new grid, looked up between those of the old one."""
    old = image.shape[0]
    out = np.zeros((size, size))
    for r in range(size):
        for c in range(size):
            y, x = (min(max((k + 0.5) * old / size - 0.5, 0), old - 1) for k in (r, c))
            y0, x0 = int(y), int(x)
            y1, x1 = min(y0 + 1, old - 1), min(x0 + 1, old - 1)
            top = image[y0, x0] * (1 - x + x0) + image[y0, x1] * (x - x0)
            bottom = image[y1, x0] * (1 - x + x0) + image[y1, x1] * (x - x0)
            out[r, c] = top * (1 - y + y0) + bottom * (y - y0)
    return out


def test_labels_that_a_data_set_cannot_have_are_refused(tmp_path, write_idx):
    for part in ("train", "t10k"):
        write_idx(tmp_path / f"MNIST/raw/{part}-images-idx3-ubyte", np.zeros((2, 28, 28)))
        write_idx(tmp_path / f"MNIST/raw/{part}-labels-idx1-ubyte", np.array([0, 12]))
    with pytest.raises(DataError, match="not all training targets of mnist lie between 0 and 9"):
        load("mnist", tmp_path)


def test_the_data_folder_may_come_from_the_environment(tmp_path, monkeypatch, write_cifar):
    write_cifar(tmp_path / "cifar-100-small/train", {"fine_labels": [3, 4]})
    write_cifar(tmp_path / "cifar-100-python/test", {"fine_labels": [0, 1]})
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    assert len(load("cifar100-small").train) == 2


@pytest.mark.parametrize("file", [*MNIST, *FASHION_MNIST], ids=lambda file: file.path)
def test_checksums_are_those_of_the_published_files(real_data, file):
    path = real_data / file.path
    if not path.is_file():
        pytest.skip(f"no {path}")
    assert file.checksum == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_mnist_is_the_published_one(mnist):
    assert (len(mnist.train), len(mnist.validation), len(mnist.test)) == (60_000, 5_000, 5_000)
    assert mnist.train.inputs.shape == (60_000, 1, 32, 32)
    assert mnist.train.targets[:5].tolist() == [5, 0, 4, 1, 9]
    prepared = mnist.prepare(mnist.train.inputs[:5_000])
    assert prepared.mean().abs() < 0.05
    assert 0.9 < prepared.std() < 1.1


def test_mnist_by_class_gives_each_of_ten_agents_one_digit(mnist):
    split = mnist.split(10, ByClass(t=1))
    assert (min(split.sizes), max(split.sizes), sum(split.sizes)) == (5_421, 6_742, 60_000)
    assert np.count_nonzero(split.counts) == 10
    assert (split.counts.diagonal() == split.sizes).all()


def test_mnist_spread_evenly_gives_each_agent_all_digits(mnist):
    split = mnist.split(10, ByClass(t=0))
    assert set(split.sizes) == {6_000}
    assert (np.ptp(split.counts, axis=0) <= 1).all()


def test_mnist_can_be_split_over_a_thousand_agents(mnist):
    for rule in (ByClass(t=1), ByClass(t=0.5), IID()):
        split = mnist.split(1_000, rule)
        assert sum(split.sizes) == 60_000
        assert min(split.sizes) >= 54


def test_fashion_and_small_cifar_are_the_published_ones(real_data):
    fashion = load("fashion-mnist", real_data)
    assert torch.bincount(fashion.train.targets).tolist() == [6_000] * 10
    small = load("cifar100-small", real_data)
    assert torch.bincount(small.train.targets).tolist() == [100] * 100
    assert (len(small.validation), len(small.test), small.input_shape) == (5_000, 5_000, (3, 32, 32))
    prepared = small.prepare(small.train.inputs)
    assert (prepared.mean(dim=(0, 2, 3)).abs() < 0.1).all()


@pytest.mark.parametrize(("features", "classes"), [(20, 10), (2, 2), (200, 5)])
def test_synthetic_clusters_can_be_learned_but_not_perfectly(features, classes):
    data = synthetic(4_000, features=features, classes=classes, held_out=2_000)
    means = torch.stack([data.train.inputs[data.train.targets == c].mean(dim=0) for c in range(classes)])
    nearest = torch.cdist(data.test.inputs, means).argmin(dim=1)
    accuracy = (nearest == data.test.targets).float().mean()
    assert 0.7 < accuracy < 0.99


def test_synthetic_data_follow_their_seed_and_name_it():
    one, same, other = (synthetic(50, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.train.inputs, same.train.inputs)
    assert not torch.equal(one.train.inputs, other.train.inputs)
    assert one.name == "synthetic 50x20, 10 classes, distance 4, seed 1"
    assert one.train.inputs.dtype == torch.float32
    assert (len(one.validation), len(one.test)) == (1_000, 1_000)


def test_synthetic_data_without_records_are_refused():
    with pytest.raises(InvalidInput, match="0 records of 20 features"):
        synthetic(0)


def test_synthetic_records_are_the_same_on_processors_that_round_differently(monkeypatch):
    here, exact = synthetic(50, seed=1), torch.cdist
    monkeypatch.setattr(torch, "cdist", lambda *given: exact(*given) * (1 + torch.finfo(given[0].dtype).eps))
    assert torch.equal(synthetic(50, seed=1).train.table, here.train.table)
