"""The oracle's answers since the last checkpoint, on disk, so that no query is ever made twice.

Answers are public: the noise is in them. Each is appended and synced before the algorithm sees it. After a crash the
rounds since the checkpoint are replayed from here; only an answer that was charged but not yet on disk is lost. Masks and noise of
answers that are replayed are not drawn again.
"""

import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from tacit.errors import StorageError
from tacit.privacy import Oracle, PerSample
from tacit.privacy.votes import Ballot

_HEADER = struct.Struct("<4s8sIIII")  # magic, token of the run, rows, columns, kind, checksum of what follows
_MAGIC = b"TACh"
_KINDS = {torch.float32: 4, torch.float64: 8}


class AnswerLog:
    """An append-only file of the answers to one run, identified by its token. A last answer that a crash cut off is dropped."""

    def __init__(self, path: Path, token: str) -> None:
        self.path = path
        self._token = bytes.fromhex(token)
        self._file: BinaryIO | None = None
        self._end: int | None = None

    def read(self, device: torch.device) -> list[Tensor]:
        """Return all whole answers. Nothing is changed on disk before the first new one is written."""
        if not self.path.exists():
            return []
        content = self.path.read_bytes()
        answers, place = [], 0
        while place < len(content):
            end = self._end_of(content, place)
            if end is None:
                break
            answers.append(_decode(content[place:end]).to(device))
            place = end
        self._end = place
        return answers

    def append(self, answer: Tensor) -> None:
        """Write one answer and wait until it is on disk."""
        try:
            if self._file is None:
                self._file = self.path.open("ab")
                if self._end is not None:
                    self._file.truncate(self._end)
            self._file.write(_encode(answer, self._token))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be written: {error.strerror or error}") from error

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _end_of(self, content: bytes, place: int) -> int | None:
        """Return where the answer at `place` ends, or None if a crash cut it off; refuse what is not a log of this run."""
        if place + _HEADER.size > len(content):
            return None
        magic, token, rows, columns, kind, checksum = _HEADER.unpack_from(content, place)
        end = place + _HEADER.size + rows * columns * kind
        if magic != _MAGIC or kind not in _KINDS.values():
            raise StorageError(f"{self.path} is broken at byte {place}; it was left alone")
        if token != self._token:
            raise StorageError(f"{self.path} belongs to another run; it was left alone")
        if end > len(content):
            return None
        if zlib.crc32(content[place + _HEADER.size : end]) != checksum:
            if end == len(content):
                return None  # its room was made on disk, and the crash came before its content
            raise StorageError(f"{self.path} is broken at byte {place}; it was left alone")
        return end


class RecordingOracle:
    """Replays answers that are on record, then asks the real oracle and puts its answers on record."""

    def __init__(self, oracle: Oracle, log: AnswerLog, replay: list[Tensor], answered: int) -> None:
        self._oracle, self.log, self._replay = oracle, log, list(replay)
        self.queries = answered

    @property
    def on_record(self) -> int:
        """How many answers there are in all: those that went into the state, and those still to be replayed."""
        return self.queries + len(self._replay)

    def gradient(self, theta: Tensor) -> Tensor:
        """Return the gradient on record, or ask for it."""
        self.queries += 1
        return self._replay.pop(0) if self._replay else self._recorded(self._oracle.gradient(theta))

    def query(self, per_sample: PerSample, *public: Tensor, width: int | None = None) -> Tensor:
        """Return the answer on record, or ask for it."""
        self.queries += 1
        if self._replay:
            return self._replay.pop(0)
        return self._recorded(self._oracle.query(per_sample, *public, width=width))

    def vote(self, theta: Tensor, ballot: Ballot) -> Tensor:
        """Return the labels on record, or ask for them."""
        self.queries += 1
        return self._replay.pop(0) if self._replay else self._recorded(self._oracle.vote(theta, ballot))

    def _recorded(self, answer: Tensor) -> Tensor:
        self.log.append(answer)
        return answer


def _encode(answer: Tensor, token: bytes) -> bytes:
    body = answer.detach().cpu().contiguous().numpy().tobytes()
    rows, columns = answer.shape
    return _HEADER.pack(_MAGIC, token, rows, columns, _KINDS[answer.dtype], zlib.crc32(body)) + body


def _decode(record: bytes) -> Tensor:
    _, _, rows, columns, kind, _ = _HEADER.unpack_from(record)
    dtype = {size: dtype for dtype, size in _KINDS.items()}[kind]
    return torch.frombuffer(bytearray(record[_HEADER.size :]), dtype=dtype).reshape(rows, columns)
