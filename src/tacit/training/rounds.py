"""One way to play a round: training a run, counting it and following its messages differ only in the oracle and the network."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from tacit.algorithms import Algorithm
from tacit.algorithms.averaged import name_of, rule_of
from tacit.errors import InvalidInput, RuleError, TacitError
from tacit.io.tracebacks import failure
from tacit.networks import DENSE, Codec, Inbox, Network
from tacit.networks.codecs import drawn
from tacit.privacy.votes import Ballot
from tacit.training.absences import Absences, keep_rows
from tacit.training.chance import chance, shared_chance
from tacit.training.schedules import Schedule, step_size

PublicLoss = Callable[[Tensor], Tensor]
LabelledGradient = Callable[[Tensor, Tensor], Tensor]


class Asked(Protocol):
    """What answers a rule's queries."""

    def gradient(self, theta: Tensor) -> Tensor:
        """Return every row's gradient at its θ."""

    def query(self, per_sample: Any, *public: Tensor, width: int | None = None) -> Tensor:
        """Return every row's mean of a per-sample vector."""

    def vote(self, theta: Tensor, ballot: Ballot) -> Tensor:
        """Return every row's labels of public records."""


class Round:
    """What an algorithm sees of one round; see `tacit.algorithms.At`. Everything else is out of its reach."""

    def __init__(self, play: "Play", lr: float | Tensor, theta: Tensor) -> None:
        self.round, self.lr, self.agents = play.round, lr, play.network.hosted
        self.__play, self.__theta, self.__draws = play, theta, 0

    def gradient(self, theta: Tensor) -> Tensor:
        """Ask the oracle for every agent's gradient."""
        return self.__play.oracle.gradient(theta)

    def query(self, per_sample: Any, *public: Tensor, width: int | None = None) -> Tensor:
        """Ask the oracle for the mean of any per-sample vector."""
        return self.__play.oracle.query(per_sample, *public, width=width)

    def public_loss(self, theta: Tensor) -> Tensor:
        """Return every agent's mean loss on public records."""
        return self.__play.public_loss(theta)

    def vote(self, theta: Tensor, **asked: Any) -> Tensor:
        """Ask every agent's teachers for labels of public records."""
        play, labels = self.__play, self.__play.oracle.vote(theta, Ballot(**asked))
        given = (labels >= 0).sum(1)
        play.labels = given if play.labels is None else play.labels + given
        return labels

    def labelled_gradient(self, theta: Tensor, labels: Tensor) -> Tensor:
        """Return every agent's gradient on the public records that it has labels of."""
        return self.__play.labelled_gradient(theta, labels)

    def exchange(self, *tensors: Tensor, codec: Codec = DENSE) -> Inbox:
        """Send one message to every neighbour and return theirs."""
        play = self.__play
        play.messages += 1
        play.vectors += len(tensors)
        return play.network.exchange(self.round, *tensors, codec=drawn(codec, self, tensors))

    def chance(self, *shape: int) -> Tensor:
        """Return public numbers from [0, 1), a row of this shape for each agent."""
        play, like = self.__play, self.__theta
        draw = self.__next_draw()
        if like.is_meta:
            return like.new_empty(len(like), *shape)
        agents = self.agents.reshape(play.network.trials, -1).tolist()
        rows = [
            chance(play.seed + trial, own, self.round, draw, shape, like.dtype)
            for trial, own in enumerate(agents, play.first_trial)
        ]
        return torch.cat(rows).to(like.device)

    def shared_chance(self, *shape: int) -> Tensor:
        """Return public numbers from [0, 1) that all agents have in common."""
        play, like = self.__play, self.__theta
        draw = self.__next_draw()
        if like.is_meta:
            return like.new_empty(shape)
        return shared_chance(play.seed, self.round, draw, shape, like.dtype).to(like.device)

    def __next_draw(self) -> int:
        self.__draws += 1
        self.__play.draws += 1
        return self.__draws - 1


def _no_public_loss(theta: Tensor) -> Tensor:
    raise InvalidInput("the rule asks for the loss on public records, but the data has no validation records")


def no_labelled_gradient(theta: Tensor, labels: Tensor) -> Tensor:
    """Refuse: nobody has labelled any public record."""
    raise InvalidInput("the rule learns from labelled public records, but this run has none")


class Play:
    """A rule between two rounds, with the queries and bytes so far. `first_trial` is the number of the first of its trials."""

    def __init__(
        self,
        algorithm: Algorithm[Any],
        theta: Float[Tensor, "rows params"],
        *,
        rounds: int,
        schedule: Schedule,
        network: Network,
        oracle: Asked,
        seed: int,
        first_trial: int = 0,
        public_loss: PublicLoss = _no_public_loss,
        labelled_gradient: LabelledGradient = no_labelled_gradient,
        gossip_rounds: int = 0,
        absences: Absences | None = None,
    ) -> None:
        self.algorithm, self.rounds, self._schedule = algorithm, rounds, schedule
        self.network, self.oracle, self.seed, self.public_loss = network, oracle, seed, public_loss
        self.first_trial, self.labelled_gradient = first_trial, labelled_gradient
        self.gossip_rounds, self._absences = gossip_rounds, absences
        self.round = self.messages = self.vectors = self.draws = 0
        self.labels: Tensor | None = None  # that each row's teachers gave so far; None before they are asked
        with torch.no_grad(), self._blaming("init", ""):
            self.state: Any = algorithm.init(theta)
        self._check(self.state, theta.shape, "init")

    @property
    def finished(self) -> bool:
        """Whether all rounds are played, also those in which models are only mixed."""
        return self.round >= self.rounds + self.gossip_rounds

    def advance(self) -> None:
        """Play one round: of the rule or, after its last one, of gossip."""
        before, labels = self.state, self.labels
        with torch.no_grad():
            try:
                state = self._rule_round() if self.round < self.rounds else self._gossip()
            except BaseException:
                self.labels = labels  # between peers this round is played again, with the same answer
                raise
            self._check(state, before.theta.shape, "round")
            if self._absences is not None and (away := self._absences.away(self.round)):
                gone = torch.tensor(
                    [agent in away for agent in self.network.hosted.tolist()], device=before.theta.device
                )
                state = keep_rows(before, state, gone)
        self.state, self.round = state, self.round + 1

    def _rule_round(self) -> Any:
        before = self.state.theta
        where = f" in round {self.round + 1} of {self.rounds} (at.round is {self.round})"
        lr = step_size(self._schedule, self.round, self.rounds, before)
        with self._blaming("round", where):
            return self.algorithm.round(self.state, Round(self, lr, before))

    def _gossip(self) -> Any:
        """Mix the models and nothing else; without a query, this costs no privacy."""
        if not hasattr(self.state, "_replace"):
            raise InvalidInput(
                f"gossip_rounds mix the models in the state of {name_of(self.algorithm)}, which must be a NamedTuple for that"
            )
        self.messages += 1
        self.vectors += 1
        return self.state._replace(theta=self.network.exchange(self.round, self.state.theta).mix())

    @contextmanager
    def _blaming(self, method: str, where: str) -> Iterator[None]:
        """Turn what a rule of the user's own raises into an error that says where; what Tacit raises on purpose stays as it is."""
        try:
            yield
        except (TacitError, MemoryError):
            raise
        except Exception as error:
            rule = rule_of(self.algorithm)
            if type(rule).__module__.startswith("tacit."):
                raise
            raise RuleError(f"{name_of(rule)}.{method} failed{where}: {failure(error)}") from error

    def _check(self, state: Any, shape: torch.Size, made_by: str) -> None:
        theta = getattr(state, "theta", None)
        if not isinstance(theta, Tensor) or theta.shape != shape:
            found = f"a theta of shape {tuple(theta.shape)}" if isinstance(theta, Tensor) else "a state without theta"
            raise InvalidInput(
                f"{type(self.algorithm).__name__}.{made_by} must return a state whose theta is [agents, params], as it was "
                f"given, {tuple(shape)}; it returned {found}"
            )
