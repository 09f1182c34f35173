"""The door to the data of a run that asks teachers: labels of public records by noisy votes, charged before they are returned."""

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tacit.data import AgentData
from tacit.data.inputs import Inputs, parts
from tacit.errors import InvalidInput, PrivacyError
from tacit.models.functional import FlatModel
from tacit.privacy.accounts import Account
from tacit.privacy.gradients.clipping import PerSample
from tacit.privacy.oracle_checks import check_accounts
from tacit.privacy.plans import Plan
from tacit.privacy.randomness import Source
from tacit.privacy.teachers import Teachers
from tacit.privacy.votes import Ballot, Votes

MOMENTUM = 0.9
"""Of the gradient descent by which a teacher is trained."""


class TeacherOracle(Teachers):
    """The teachers of the agents hosted here, of one or more trials side by side; it answers nothing but votes.

    Data, plan, sources and accounts are as for `PrivateOracle`. `pool` are the public records that teachers are asked about.
    """

    def __init__(
        self,
        *,
        model: FlatModel,
        data: AgentData,
        plan: Plan,
        sources: Sequence[Source],
        accounts: Sequence[Account],
        pool: Inputs,
        seed: int,
    ) -> None:
        if plan.ballot is None:
            raise PrivacyError("the plan is not for votes of teachers")
        if len(parts(pool)[0]) != plan.ballot.records:
            raise InvalidInput(
                f"{len(parts(pool)[0])} public records were given, but the plan is for {plan.ballot.records}"
            )
        check_accounts(accounts, data, plan)
        self._noise = [_votes_of(mechanism.noise) for mechanism in plan.mechanisms]
        steps, lr = plan.ballot.steps, plan.ballot.lr
        super().__init__(data, model, self._noise[0], steps=steps, lr=lr, momentum=MOMENTUM, seed=seed)
        self._plan, self._sources, self._accounts, self._pool = plan, sources, tuple(accounts), pool
        self.queries = 0

    def vote(self, theta: Float[Tensor, "agents params"], ballot: Ballot) -> Float[Tensor, "agents records"]:
        """Return every agent's labels of the public records, by teachers who start at its θ; negative where it has none."""
        if ballot != self._plan.ballot:
            raise PrivacyError(
                "the rule asks teachers something other than what was counted, which is what its noise was planned for"
            )
        agents = [row % self._data.agents for row in range(self._plan.agents)]
        return self._answer(self._pool, agents, list(theta), self._noise, self._sources, self._accounts).to(theta)

    def _attempt(self, *asked: Any) -> Int[Tensor, "agents records"] | Exception | KeyboardInterrupt:
        self.queries += 1  # failures count too
        return super()._attempt(*asked)

    def gradient(self, theta: Float[Tensor, "agents params"]) -> NoReturn:
        """Refuse: the noise is that of votes."""
        raise PrivacyError("this run was planned for votes of teachers; it has no noise for anything else")

    def query(self, per_sample: PerSample, *public: Float[Tensor, "agents ..."], width: int | None = None) -> NoReturn:
        """Refuse: the noise is that of votes."""
        self.gradient(torch.empty(0, 0))

    def skip(self, queries: int) -> None:
        """Continue after queries that an earlier process answered."""
        for source in self._sources:
            source.position = queries
        self.queries = queries

    def forget(self) -> None:
        """Drop the teachers."""
        self._teachers = None


def _votes_of(noise: object) -> Votes:
    assert isinstance(noise, Votes)
    return noise
