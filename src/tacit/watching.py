"""Looks at the agents' models while they are trained, at public records only, and keeps what it saw."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.data import AgentData
from tacit.errors import InvalidInput
from tacit.evaluation import consensus_distance, evaluate
from tacit.models import FlatModel
from tacit.networks import Network
from tacit.results import Snapshot


class Watch:
    """Takes a snapshot of the hosted agents of every trial at each look; `histories` holds them, trial by trial.

    `gather` returns all agents' models, or None where nobody has them: then how far they are apart is unknown, NaN.
    """

    def __init__(
        self, model: FlatModel, data: AgentData, network: Network, gather: Callable[[Tensor], Tensor | None]
    ) -> None:
        self._model, self._data, self._network, self._gather = model, data.data, network, gather
        self.histories: list[list[Snapshot]] = [[] for _ in range(network.trials)]

    def public_loss(self, theta: Float[Tensor, "agents params"]) -> Float[Tensor, " agents"]:
        """Return every model's mean loss on the validation records, which are public: the same wherever it is hosted."""
        if self._data.validation is None:
            raise InvalidInput("the rule asks for the loss on public records, and the data has no validation records")
        score = evaluate(
            self._model, theta, self._data.validation, self._data.prepare, classification=False, one_by_one=True
        )
        return torch.from_numpy(score.loss).to(theta)

    def look(self, theta: Float[Tensor, "agents params"], round: int, queries: int) -> None:
        """Score all models on the validation records and measure how far they are apart."""
        trials = len(self.histories)
        loss = accuracy = None
        if self._data.validation is not None:
            classification = self._data.classes is not None
            score = evaluate(
                self._model, theta, self._data.validation, self._data.prepare, classification=classification
            )
            loss = score.loss.reshape(trials, -1)
            accuracy = None if score.accuracy is None else score.accuracy.reshape(trials, -1)
        with torch.no_grad():
            everyone = self._gather(theta)
            apart = np.full(trials, np.nan)
            if everyone is not None:
                apart = consensus_distance(everyone.unflatten(0, (trials, -1)))
        sent = self._network.bytes_sent.reshape(trials, -1).copy()
        for trial, history in enumerate(self.histories):
            history.append(
                Snapshot(
                    round=round,
                    queries=queries,
                    loss=None if loss is None else loss[trial],
                    accuracy=None if accuracy is None else accuracy[trial],
                    consensus_distance=float(apart[trial]),
                    bytes_sent=sent[trial],
                )
            )
