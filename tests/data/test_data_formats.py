import gzip
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from tacit.data.formats import _Unpickler, read_cifar, read_idx
from tacit.errors import DataError


@pytest.mark.parametrize("name", ["a-idx3-ubyte", "a-idx3-ubyte.gz"])
def test_idx_is_read_packed_and_plain(tmp_path, write_idx, name):
    array = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    assert read_idx(write_idx(tmp_path / name, array), 3).tolist() == array.tolist()


def test_an_idx_file_with_other_dimensions_is_refused(tmp_path, write_idx):
    path = write_idx(tmp_path / "labels", np.arange(5))
    with pytest.raises(
        DataError, match="labels is not an IDX file of bytes with 3 dimensions: it starts with 00 00 08 01"
    ):
        read_idx(path, 3)


@pytest.mark.parametrize(
    "content", [b"", b"\x00\x00", b"\x00\x00\x08\x01\x00", b"\x00\x00\x0d\x01" + bytes(8), b"<html>"]
)
def test_what_is_no_idx_file_is_refused(tmp_path, content):
    path = tmp_path / "x-idx1-ubyte"
    path.write_bytes(content)
    with pytest.raises(DataError, match="x-idx1-ubyte is not an IDX file"):
        read_idx(path, 1)


@pytest.mark.parametrize("change", [lambda c: c[:-1], lambda c: c + b"\x00"])
def test_an_idx_file_of_the_wrong_length_is_refused(tmp_path, write_idx, change):
    path = write_idx(tmp_path / "x-idx2-ubyte", np.zeros((3, 4)))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=r"x-idx2-ubyte is broken: its header says 3 x 4 = 12 bytes, but 1[13]"):
        read_idx(path, 2)


@pytest.mark.parametrize("keep", [12, 40])
def test_a_truncated_gzip_file_is_refused(tmp_path, keep):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(os.urandom(500))[:keep])
    with pytest.raises(DataError, match=r"cannot read .*x\.gz: .*download it again"):
        read_idx(path, 1)


def test_a_damaged_gzip_file_is_refused(tmp_path):
    content = bytearray(gzip.compress(os.urandom(500)))
    content[100:110] = bytes(10)
    path = tmp_path / "x.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot read .*x\.gz"):
        read_idx(path, 1)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*absent"):
        read_idx(tmp_path / "absent", 1)


def test_cifar_is_read_as_channels_rows_columns(tmp_path, write_cifar):
    images = write_cifar(tmp_path / "batch", {"fine_labels": [7, 1, 4], "coarse_labels": [0, 0, 0]})
    got, labels = read_cifar(tmp_path / "batch", "fine_labels")
    assert (got.numpy() == images).all()
    assert labels.tolist() == [7, 1, 4]


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_cifar_is_read_whatever_protocol_and_layout_it_was_written_in(tmp_path, protocol, order):
    images = np.random.default_rng(0).integers(256, size=(2, 3072), dtype=np.uint8)
    batch = {"data": np.array(images, order=order), "labels": [0, 1]}
    (tmp_path / "batch").write_bytes(pickle.dumps(batch, protocol=protocol))
    assert (read_cifar(tmp_path / "batch", "labels")[0].numpy().reshape(2, -1) == images).all()


def test_the_official_file_of_python_2_is_read(real_data):
    images, labels = read_cifar(real_data / "cifar-100-python" / "test", "fine_labels")
    assert images.shape == (10_000, 3, 32, 32)
    assert np.bincount(labels.numpy()).tolist() == [100] * 100


class Runs:
    """A pickle of this calls what it was made with."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("payload", "asked"),
    [
        (Runs(os.system, "touch {marker}"), "posix.system|nt.system"),
        (Runs(eval, "open({marker!r}, 'w')"), "__builtin__.eval"),
        (Runs(open, "{marker}", "w"), "io.open"),
        (Runs(getattr, "x", "join"), "__builtin__.getattr"),
        (Path("x"), "pathlib"),
        (np.float64(1), "scalar"),
    ],
)
def test_a_pickle_that_asks_for_code_is_refused_and_runs_nothing(tmp_path, payload, asked):
    marker = tmp_path / "ran"
    if isinstance(payload, Runs):
        function, arguments = payload.call
        payload = Runs(function, *(argument.format(marker=str(marker)) for argument in arguments))
    (tmp_path / "evil").write_bytes(pickle.dumps({b"data": payload}, protocol=2))
    with pytest.raises(DataError, match=f"refused to read .*evil: it asks for .*({asked})"):
        read_cifar(tmp_path / "evil", "labels")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([None], dtype=object), "array of 'O8', but CIFAR has bytes"),
        (np.zeros((1, 3072)), "array of 'f8'"),
    ],
)
def test_arrays_of_anything_but_bytes_are_refused(tmp_path, array, message):
    (tmp_path / "x").write_bytes(pickle.dumps({"data": array, "labels": [0]}, protocol=2))
    with pytest.raises(DataError, match=message):
        read_cifar(tmp_path / "x", "labels")


def test_an_encoding_other_than_latin1_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x04\x00\x00\x00zlib\x86R.")
    with pytest.raises(DataError, match="it encodes text as 'zlib'"):
        read_cifar(tmp_path / "x", "labels")


def test_a_pickle_cannot_change_how_the_next_one_is_read(tmp_path, write_cifar):
    # BUILD with a pair as its state sets any attribute of what it is applied to: here, dtype's stand-in.
    attack = b"\x80\x02cnumpy\ndtype\nN}X\x0c\x00\x00\x00__defaults__)s\x86b."
    (tmp_path / "attack").write_bytes(attack)
    with pytest.raises(DataError, match="not CIFAR's dict"):
        read_cifar(tmp_path / "attack", "labels")
    write_cifar(tmp_path / "batch", {"labels": [1, 2]})
    assert read_cifar(tmp_path / "batch", "labels")[1].tolist() == [1, 2]


def test_the_stand_ins_are_made_afresh(tmp_path):
    with (tmp_path / "empty").open("w+b") as file:
        reader = _Unpickler(file)
        assert reader.find_class("numpy", "dtype") is not reader.find_class("numpy", "dtype")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot read .*x as a pickle"),
        (pickle.dumps({"data": 1})[:-3], "cannot read .*x as a pickle"),
        (b"<html>not found</html>", "cannot read .*x as a pickle"),
        (pickle.dumps([1, 2]), "x holds an object of type list"),
        (pickle.dumps({"labels": [1]}), r"x has no data; it holds \['labels'\]"),
        (pickle.dumps({"data": 3, "labels": [1]}), "data in .*x is no array"),
        (
            pickle.dumps({"data": np.zeros((2, 9), dtype=np.uint8), "labels": [1, 2]}, protocol=2),
            r"array of shape \(2, 9\); CIFAR has one row of 3072",
        ),
        (
            pickle.dumps({"data": np.zeros((2, 3072), dtype=np.uint8), "labels": [1]}, protocol=2),
            "labels in .*x is not a list of 2 whole numbers",
        ),
    ],
)
def test_what_is_no_cifar_file_is_refused(tmp_path, content, message):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_cifar(tmp_path / "x", "labels")
