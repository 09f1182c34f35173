"""A journal is changed by its one writer alone, and whatever goes wrong there, finished pieces stay."""

import errno
import os

import pytest
from full_disk import files_end_at

from tacit.errors import StorageError
from tacit.io import journal

FACTS = {"work": "counting"}


def numbers(file):
    return journal.read(file, FACTS, lambda line: line["number"], pieces="numbers", work="count")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "deep" / "numbers.jsonl"
    for number in range(2):
        journal.append(path, FACTS, {"number": number})
    return path


@pytest.mark.parametrize("half", [b"{", b'{"number": 2', b'{"number": 2}'])
def test_reading_leaves_a_line_alone_that_is_being_written(file, half):
    with file.open("ab") as writer:
        writer.write(half)
        writer.flush()
        before = file.read_bytes()
        assert numbers(file) == [0, 1]
        assert file.read_bytes() == before
        writer.write(b'{"number": 2}'[len(half) :] + b"\n")
    assert numbers(file) == [0, 1, 2]


def test_the_writer_cuts_off_what_a_crash_left(file):
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"num')
    journal.append(file, FACTS, {"number": 2})
    assert file.read_bytes() == whole + b'{"number": 2}\n'


def test_a_crash_in_the_first_line_leaves_nothing_behind(tmp_path, file):
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(b'{"facts"')
    for number in range(2):
        journal.append(torn, FACTS, {"number": number})
    assert torn.read_bytes() == file.read_bytes()


@pytest.mark.parametrize("room", [0, 7])
def test_a_full_disk_is_reported_with_the_file_and_loses_nothing(file, room):
    before = file.read_bytes()
    with (
        files_end_at(len(before) + room),
        pytest.raises(StorageError, match=rf"numbers\.jsonl: cannot be written: {os.strerror(errno.EFBIG)}"),
    ):
        journal.append(file, FACTS, {"number": 2})
    assert file.read_bytes() == before + b'{"number": 2}'[:room]
    assert numbers(file) == [0, 1]
    journal.append(file, FACTS, {"number": 2})
    assert numbers(file) == [0, 1, 2]
