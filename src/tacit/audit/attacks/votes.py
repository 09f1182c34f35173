"""Votes of teachers under attack: does a record show in the labels more than is claimed?

This is the worst case: the record is its teacher's only one, so that this teacher votes for class 1 with it and for class 0 without it, on all
public records, and the other teachers are divided evenly. Records are dealt to teachers, and these are trained and asked, as in a run. The attacker
knows all of this, sees the labels of one query and which records get none, and scores a run by its log-likelihood ratio.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.stats import norm
from torch import Tensor, nn

from tacit.audit.attacks.collection import Scores
from tacit.audit.bounds.findings import Claim
from tacit.data import AgentData, DataSet, Records
from tacit.data.inputs import Inputs
from tacit.errors import InvalidInput
from tacit.models.functional import FlatModel, cross_entropy
from tacit.privacy import Secret, Sources
from tacit.privacy.groups import group_key, group_records
from tacit.privacy.mechanisms import vote_mechanism
from tacit.privacy.randomness import Source
from tacit.privacy.teachers import NO_ANSWER, Teachers
from tacit.privacy.votes import Votes, Voting

_STEPS, _LR = 1, 1.0
_SEED = 0  # of the dealing of records


class FirstNumber(nn.Module):
    """Two classes by the first of two numbers; undecided at its start, which is class 0."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 2, bias=False)
        nn.init.zeros_(self.layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return two scores for each row."""
        scores: Tensor = self.layer(x[:, :1])
        return scores


@dataclass(frozen=True, kw_only=True, eq=False)
class VoteAttack:
    """An attack on one query of one agent's teachers.

    records: how many public records the query asks about.
    sources: where noise comes from; secret unless given.
    """

    voting: Voting
    records: int
    sources: Sources | None = None

    def __post_init__(self) -> None:
        if self.voting.teachers < 2:
            raise InvalidInput(
                f"teachers is {self.voting.teachers}; the record is one teacher's, and another is needed to vote against it"
            )

    @cached_property
    def votes(self) -> Votes:
        """The noise of the query."""
        return self.voting.votes(self.records)

    @property
    def claim(self) -> Claim:
        """What is charged for the query."""
        return Claim.of(vote_mechanism(self.votes).event(1), self.voting.delta)

    @cached_property
    def _numbers(self) -> tuple[list[int], int]:
        """The second numbers of the other records, one each for half of the teachers, and of the canary, which has a teacher to itself."""
        wanted, number = (self.votes.teachers + 1) // 2 + 1, 0
        numbers: dict[int, int] = {}
        while len(numbers) < wanted:  # the first number that goes to each teacher
            record = torch.tensor([[1.0, float(number)]])
            rows = np.zeros(1, dtype=np.int64)
            (teacher,) = group_records(record, torch.tensor([1]), rows, self.votes.teachers, group_key(_SEED))
            numbers.setdefault(int(teacher), number)
            number += 1
        *others, canary = numbers.values()
        return others, canary

    def data(self, *, present: bool) -> AgentData:
        """Return what the agent holds, with the canary or without it."""
        others, canary = self._numbers
        second = torch.tensor([*others, canary] if present else others, dtype=torch.float32)
        held = Records(
            torch.stack([torch.ones_like(second), second], dim=1), torch.ones(len(second), dtype=torch.int64)
        )
        made = DataSet(name="votes", train=held, validation=None, test=None, classes=2)
        return AgentData(dataset=made, indices=(torch.arange(len(held)),), owners=("target",), partition="one agent")

    def scores(self, trials: int, *, present: bool, seed: int) -> Scores:
        """Ask `trials` times, with fresh noise, and score each run."""
        sources = (self.sources or Secret()).make(trials, 2 * seed + present)
        labels = _TeachersRoom(self.data(present=present), self.votes).ask(sources)
        return {"likelihood": self._log_ratio(labels.numpy(), without=len(self._numbers[0]))}

    def _log_ratio(self, labels: Int[np.ndarray, "runs records"], *, without: int) -> Float[np.ndarray, " runs"]:
        votes, passed = self.votes, labels != NO_ANSWER
        # Once the allowed number of answers is given, nothing is seen of the rest.
        seen = np.cumsum(passed, axis=1) - passed < votes.answers
        sides = []
        for ones in (without, without + 1):
            zeros = votes.teachers - ones
            check = norm.logcdf((max(ones, zeros) - votes.threshold) / votes.threshold_noise)
            fail = norm.logsf((max(ones, zeros) - votes.threshold) / votes.threshold_noise)
            gap = (ones - zeros) / (votes.answer_noise * np.sqrt(2))
            label = np.where(labels == 1, norm.logcdf(gap), norm.logsf(gap))
            sides.append((np.where(passed, check + label, fail) * seen).sum(axis=1))
        ratio: Float[np.ndarray, " runs"] = sides[1] - sides[0]
        return ratio


class _TeachersRoom(Teachers):
    """One agent's teachers in the oracle, asked again and again; nothing is charged, since all records are made up."""

    def __init__(self, data: AgentData, votes: Votes) -> None:
        model = FlatModel(FirstNumber(), cross_entropy)
        super().__init__(data, model, votes, steps=_STEPS, lr=_LR, momentum=0.0, seed=_SEED)
        self._start = model.flatten(FirstNumber())
        self._counted: Int[Tensor, "records classes"] | None = None

    def _count(self, teachers: Sequence[Tensor], ready: Inputs) -> Int[Tensor, "records classes"]:
        """Count once: the same teachers are asked about the same records, and only the noise is new."""
        if self._counted is None:
            self._counted = super()._count(teachers, ready)
        return self._counted

    def ask(self, sources: Sequence[Source]) -> Int[Tensor, "times records"]:
        """Return the labels of one query for each of the sources of noise."""
        times = len(sources)
        self._teachers = [self._train_agent(0, self._start)] * times
        inputs = torch.tensor([[1.0, -1.0]]).expand(self.votes.records, 2)
        labels = self._attempt(inputs, [0] * times, [self._start], [self.votes] * times, sources)
        if isinstance(labels, BaseException):
            raise labels
        return labels
