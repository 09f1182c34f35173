"""Queries whose answers survive a crash: each is announced in the journal before it is asked, and on record before anything leaves.

A query's number follows from its round, not from how many were asked, so that members that were away or crashed stay in step with
those with whom they share masks. Rounds need not make the same number of queries: how many each makes was counted and is public.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.peer.protocol.notes import Notes
from tacit.privacy import PerSample
from tacit.privacy.votes import Ballot


class Addressed(Protocol):
    """An oracle whose next query can be given a number."""

    def gradient(self, theta: Tensor) -> Tensor:
        """Answer with the gradient."""

    def query(self, per_sample: PerSample, *public: Tensor, width: int | None = None) -> Tensor:
        """Answer with the mean of a per-sample vector."""

    def vote(self, theta: Tensor, ballot: Ballot) -> Tensor:
        """Answer with labels of public records."""

    def skip(self, queries: int) -> None:
        """Give the next query this number."""


class JournaledOracle:
    """Answers from the journal, or asks and records.

    asked: how many queries each round makes, as they were counted.
    unshare: called with the number of a query that began before and whose answer was lost. Its masks count as used, so that it gets masks
        that nobody shares: they do not cancel, and hide as much.
    """

    def __init__(
        self,
        oracle: Addressed,
        notes: Notes,
        *,
        asked: Sequence[int],
        unshare: Callable[[int], None] = lambda number: None,
    ) -> None:
        self._oracle, self._notes, self._unshare = oracle, notes, unshare
        self._first = [0, *accumulate(asked)]  # the number of each round's first query and, at the end, of none
        self._round = self._asked = 0

    @property
    def queries(self) -> int:
        """The number of the next query."""
        return self._first_of(self._round) + self._asked

    def begin(self, round: int) -> None:
        """Begin a round, possibly again."""
        self._round, self._asked = round, 0

    def gradient(self, theta: Tensor) -> Tensor:
        """Return the gradient on record, or ask for it."""
        return self._answer(theta, lambda: self._oracle.gradient(theta))

    def query(self, per_sample: PerSample, *public: Tensor, width: int | None = None) -> Tensor:
        """Return the answer on record, or ask for it."""
        return self._answer(public[0], lambda: self._oracle.query(per_sample, *public, width=width))

    def vote(self, theta: Tensor, ballot: Ballot) -> Tensor:
        """Return the labels on record, or ask for them."""
        return self._answer(theta, lambda: self._oracle.vote(theta, ballot))

    def _answer(self, like: Tensor, ask: Callable[[], Tensor]) -> Tensor:
        counted = self._first_of(self._round + 1) - self._first_of(self._round)
        if self._asked >= counted:
            raise InvalidInput(
                f"the rule makes more than the {counted} queries that were counted for round {self._round + 1}"
            )
        number = self.queries

        def ask_anew(again: bool) -> bytes:
            self._oracle.skip(number)
            if again:
                self._unshare(number)
            return to_bytes(ask())

        recorded = self._notes.answer_once(number, self._round, ask_anew)
        self._asked += 1
        return from_bytes(recorded, like)

    def _first_of(self, round: int) -> int:
        return self._first[min(round, len(self._first) - 1)]


def to_bytes(answer: Tensor) -> bytes:
    """Return the numbers of an answer of one row."""
    return answer.detach().cpu().contiguous().numpy().tobytes()


def from_bytes(recorded: bytes, like: Tensor) -> Tensor:
    """Return an answer of one row, of the type and on the device of another tensor."""
    return torch.frombuffer(bytearray(recorded), dtype=like.dtype).reshape(1, -1).to(like.device)
