"""Teachers and their votes: the door to the data for PATE. Teachers are trained here and never leave.

`VoteOracle.vote(inputs)` labels public records by noisy votes and charges the ledger before it returns. What an agent's students then learn
from the labels, and tell each other, costs nothing more. A teacher is trained by itself, on its own records, in the order in which the agent
holds them: nothing of it depends on another teacher's records, not even the rounding.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import grad

from tacit.data import AgentData, DataSet
from tacit.data.drafting import settle
from tacit.data.guards import chance_state, restore_chance
from tacit.data.inputs import Inputs, parts
from tacit.data.prepare import check_isolated, isolate
from tacit.data.records import Records
from tacit.data.schema import check_records
from tacit.errors import InvalidInput, PrivacyError
from tacit.models.checks import check_module
from tacit.models.functional import FlatModel, Loss, cross_entropy
from tacit.models.seeding import seeded
from tacit.privacy.accounts import Account
from tacit.privacy.gradients.arithmetic import own_arithmetic
from tacit.privacy.groups import group_key, group_records
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import vote_mechanism
from tacit.privacy.noise import GridNoise
from tacit.privacy.oracle_checks import answer_one_at_a_time
from tacit.privacy.randomness import Secret, Source, Sources, Stream
from tacit.privacy.votes import Votes, Voting, first_that_pass

NO_ANSWER = -1
"""The label of a public record on which teachers did not agree, or that came too late."""


class Teachers:
    """Every agent's teachers, who are trained here and do not leave, and noisy answers to what they vote for."""

    def __init__(
        self,
        data: AgentData,
        model: FlatModel,
        votes: Votes,
        *,
        steps: int,
        lr: float,
        momentum: float,
        seed: int,
    ) -> None:
        if data.dataset.classes is None:
            raise InvalidInput("teachers vote for classes, but these targets are not class labels")
        self._data, self._model, self.votes = data, model, votes
        self._steps, self._lr, self._momentum, self._seed = steps, lr, momentum, seed
        self._teachers: list[list[Tensor]] | None = None

    def _answer(
        self,
        inputs: Inputs,
        agents: Sequence[int],
        starts: Sequence[Tensor],
        votes: Sequence[Votes],
        sources: Sequence[Source],
        accounts: Sequence[Account],
    ) -> Int[Tensor, "agents records"]:
        """Return the labels of one query. As for gradients, it is charged after computing and before returning; so are failures and Ctrl-C."""
        with answer_one_at_a_time(accounts):
            for account in accounts:
                account.check()
            labels = self._attempt(inputs, agents, starts, votes, sources)
            try:
                for account in accounts:
                    account.check()  # all of them, before any is charged
                for account in accounts:
                    account.spend()
            except BaseException:
                del labels  # they were not charged, and the traceback must not lead to them
                raise
        if isinstance(labels, Exception | KeyboardInterrupt):
            raise labels
        return labels

    def _attempt(
        self,
        inputs: Inputs,
        agents: Sequence[int],
        starts: Sequence[Tensor],
        votes: Sequence[Votes],
        sources: Sequence[Source],
    ) -> Int[Tensor, "agents records"] | Exception | KeyboardInterrupt:
        """Return the labels, or a new error from which no reference leads to the records."""
        streams = [source.next() for source in sources]
        try:
            with own_arithmetic(self._model.dtype, torch.get_num_threads()):
                if self._teachers is None:
                    self._teachers = [
                        self._train_agent(agent, start) for agent, start in zip(agents, starts, strict=True)
                    ]
                ready = self._data.dataset.prepare(inputs)
                self._choose(
                    starts[0], ready
                )  # a model that fails on public records at its start fails without a teacher
                counts = [self._count(teachers, ready) for teachers in self._teachers]
                each = zip(counts, votes, streams, strict=True)
                return torch.stack([answer(own, noise, stream) for own, noise, stream in each])
        except KeyboardInterrupt:
            return KeyboardInterrupt()
        except BaseException:  # nothing of the error is kept: it may reveal records
            pass
        return PrivacyError(
            "the computation failed on private records; the query is spent. The cause is withheld, since it could reveal them. Try the "
            "model on public records of the same kind"
        )

    def _train_agent(self, agent: int, start: Float[Tensor, " params"]) -> list[Tensor]:
        train, rows = self._data.dataset.train, self._data.indices[agent]
        part = group_records(train.inputs, train.targets, rows.numpy(), self.votes.teachers, group_key(self._seed))
        return [
            self._train(train.take(rows[torch.from_numpy(np.flatnonzero(part == k))]), start)
            for k in range(self.votes.teachers)
        ]

    def _train(self, own: Records, start: Float[Tensor, " params"]) -> Float[Tensor, " params"]:
        """Train one teacher; one without records, or whose records cannot be computed, stays where it starts."""
        if not len(own):
            return start
        try:
            inputs = isolate(self._data.dataset.prepare, own.inputs)(own.inputs)
            # As in evaluation: what a model draws or remembers while it trains would lead from one teacher to another.
            with self._own_model() as model:
                slope = grad(lambda theta: model.losses(theta, inputs, own.targets).mean())
                theta, speed = start, torch.zeros_like(start)
                for _ in range(self._steps):
                    speed = self._momentum * speed + slope(theta)
                    theta = theta - self._lr * speed
        except KeyboardInterrupt:
            raise
        except BaseException:
            return start
        return theta if bool(theta.isfinite().all()) else start

    def _count(self, teachers: Sequence[Tensor], ready: Inputs) -> Int[Tensor, "records classes"]:
        """Return how many teachers vote for each class of each public record; one that fails votes for class 0 throughout."""
        classes = self._data.dataset.classes
        assert classes is not None
        votes = []
        for theta in teachers:
            try:
                votes.append(self._choose(theta, ready))
            except KeyboardInterrupt:
                raise
            except BaseException:  # an error for the whole query would reveal one teacher's records without noise
                votes.append(torch.zeros(self.votes.records, dtype=torch.int64))
        return nn.functional.one_hot(torch.stack(votes, dim=1), classes).sum(1)

    def _choose(self, theta: Float[Tensor, " params"], ready: Inputs) -> Int[Tensor, " records"]:
        """Return the class that the model with these parameters chooses for each public record."""
        with torch.no_grad(), self._own_model() as model:
            chosen = model.outputs(theta, ready)[:, : self._data.dataset.classes].argmax(1)
        if chosen.shape != (self.votes.records,):
            raise InvalidInput("the model does not give every record one row of scores")
        return chosen

    @contextmanager
    def _own_model(self) -> Iterator[FlatModel]:
        """Yield a copy of the model for one teacher, with random numbers that start again: nothing passes from one teacher to the next."""
        before = chance_state()
        try:
            with seeded(0):
                yield copy.deepcopy(self._model)
        finally:
            restore_chance(before)


class VoteOracle(Teachers):
    """Every agent's teachers, and noisy answers to what they vote for.

    model: a module, whose parameters are where every teacher starts. All teachers take `steps` steps of gradient descent of size `lr`, with
        momentum, on the mean loss of all their records.
    records: how many public records a query asks about; `queries` how many queries there are.
    seed: makes the public key by which records are assigned to teachers.
    """

    def __init__(
        self,
        *,
        data: AgentData,
        model: nn.Module,
        voting: Voting,
        records: int,
        queries: int = 1,
        ledger: Ledger,
        name: str,
        loss: Loss = cross_entropy,
        steps: int = 100,
        lr: float = 0.5,
        momentum: float = 0.9,
        sources: Sources | None = None,
        seed: int = 0,
    ) -> None:
        schema = settle(data.dataset, model)
        check_records(data, schema)
        made_up = schema.sample(3, torch.Generator().manual_seed(0)).inputs
        check_isolated(data.dataset.prepare, made_up)  # what it remembers of a record would reach every other teacher
        check_module(model, data.dataset.prepare(made_up))
        flat = FlatModel(model, loss)
        super().__init__(
            data,
            flat,
            voting.votes(records, queries),
            steps=steps,
            lr=lr,
            momentum=momentum,
            seed=seed,
        )
        self._start = flat.flatten(model)
        chosen = Secret() if sources is None else sources
        self._sources: Sequence[Source] = chosen.make(data.agents)
        self.account: Account = ledger.open(
            run=name,
            owners=data.owners,
            mechanisms=[vote_mechanism(self.votes)] * data.agents,
            queries=queries,
            release=chosen.secret,
            records=data.dataset.name,
            partition=data.partition,
        )

    def vote(self, inputs: Inputs) -> Int[Tensor, "agents records"]:
        """Return every agent's labels of these public records, NO_ANSWER where it has none: one query of each agent."""
        given = len(parts(inputs)[0])
        if given != self.votes.records:
            raise InvalidInput(f"{given} records were given to a query that was planned for {self.votes.records}")
        agents = range(self._data.agents)
        starts, votes = [self._start for _ in agents], [self.votes for _ in agents]
        try:
            return self._answer(inputs, agents, starts, votes, self._sources, [self.account])
        finally:
            if self.account.spent == self.account.allowed:
                self.account.close(finished=True)


def answer(counts: Int[Tensor, "records classes"], votes: Votes, stream: Stream) -> Int[Tensor, " records"]:
    """Return the labels by Confident-GNMax: thresholds first, then the classes of those that pass."""
    most = _noisy(counts.max(1).values[None].double(), votes.threshold_noise, stream)[0]
    labels = torch.full((len(counts),), NO_ANSWER)
    passed = first_that_pass(most.tolist(), votes.threshold, votes.answers)
    if passed:
        noisy = _noisy(counts[passed].double().reshape(1, -1), votes.answer_noise, stream)
        labels[passed] = noisy.reshape(len(passed), -1).argmax(1)
    return labels


def _noisy(values: Float[Tensor, "1 numbers"], deviation: float, stream: Stream) -> Float[Tensor, "1 numbers"]:
    noise = GridNoise(clips=[1.0], noise_multipliers=[deviation], lot_sizes=[1.0], device=values.device)
    out = torch.empty_like(values)
    noise.release(values.clone(), [stream], [], slice(0, 1), out)
    return out


def students_data(labels: Int[Tensor, "agents records"], inputs: Inputs, like: DataSet, **settings: Any) -> AgentData:
    """Return what students learn from: every agent's labelled public records. An agent without any label is refused."""
    labelled = []
    for agent, own in enumerate(labels):
        rows = torch.nonzero(own != NO_ANSWER).flatten()
        if not len(rows):
            raise InvalidInput(
                f"agent {agent} has no label: its teachers never agreed, as far as their noisy votes show. Use more teachers, fewer "
                "answers or a lower threshold"
            )
        labelled.append(Records(inputs, own).take(rows))
    return AgentData.from_parts(
        labelled, name=f"{like.name} by votes", classes=like.classes, prepare=like.prepare, **settings
    )
