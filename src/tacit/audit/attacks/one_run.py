"""Many canaries in a single run: each is in the target's data or not by a coin of its own, and an attacker guesses the coins.

A bound from one run is weaker than one from thousands (Steinke, Nasr & Jagielski 2023 say by how much), but it can be
had of any model for the price of training it. q follows from a declared size that is the same whatever the coins say:
the records that are always there and half of the canaries, which is what the target holds on average.
"""

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

import networkx as nx
import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from tacit.algorithms import Algorithm
from tacit.audit.attacks.one_run_scores import OneRunScores, Watched, likelihoods
from tacit.audit.attacks.worlds import World, dirac, linear_model
from tacit.audit.bounds.findings import Claim, Verdict, roc_curve
from tacit.audit.bounds.one_run import Guesses, guess, one_run_bound, one_run_fdp_bound
from tacit.audit.bounds.rates import Bound
from tacit.data import AgentData, Records
from tacit.data.records import concatenate
from tacit.errors import InvalidInput, choose
from tacit.privacy import Privacy, Sources
from tacit.privacy.accounting import Event
from tacit.training.schedules import Schedule
from tacit.training.session import Session
from tacit.training.settings import Training

Sees = Literal["answers", "models"]

_GUESSED = 3  # one canary in so many is guessed
_LENGTH = 10.0  # of a dirac canary, in clipping norms


@dataclass(frozen=True, kw_only=True)
class OneRunFindings:
    """What the guesses prove. `one_run` holds whatever is wrong, `one_run_fdp` if the noise alone may be too little.

    Both are bounds on the same number of right guesses, so the larger one holds with the stated confidence, too.
    """

    claim: Claim
    outcome: Guesses
    bounds: tuple[Bound, Bound]
    played: OneRunScores

    @property
    def epsilon(self) -> float:
        """The larger lower bound."""
        return max(bound.epsilon for bound in self.bounds)

    @property
    def verdict(self) -> Verdict:
        """Broken, where a lower bound passes the claim."""
        return "broken" if self.epsilon > self.claim.epsilon else "no violation found"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        bounds = [{key: value for key, value in asdict(bound).items() if value is not None} for bound in self.bounds]
        return {
            "claimed": asdict(self.claim),
            "verdict": self.verdict,
            "lower_bound": self.epsilon,
            "outcome": asdict(self.outcome),
            "bounds": bounds,
            "scores": self.played.scores.tolist(),
            "included": self.played.included.tolist(),
            "roc": self._roc(),
        }

    def _roc(self) -> dict[str, dict[str, list[float]]]:
        """Return hits against false alarms over all canaries; nothing where all coins fell alike."""
        scores, included = self.played.scores, self.played.included
        return {} if included.all() or not included.any() else {"score": roc_curve(scores[~included], scores[included])}


@dataclass(frozen=True, kw_only=True, eq=False)
class OneRun:
    """An attack on one run of a world, whose own canary is left out.

    canaries: the records to put in or leave out, as the world's data hold them before they are prepared.
    sees: `answers`, all noisy gradients of the target, as an observer with an exact view reconstructs them (of a rule that
        sends its model after every step, from its closed neighbourhood's messages); or `models`, everyone's at the end.
    sources: where lots and noise come from; secret unless given. The coins come from the seed of `play`.
    """

    world: World
    canaries: Records
    sees: Sees = "answers"
    sources: Sources | None = None

    def __post_init__(self) -> None:
        choose("view", self.sees, ("answers", "models"))
        if len(self.canaries) < 2:
            raise InvalidInput(f"{len(self.canaries)} canaries are too few to audit one run with; give hundreds")

    @property
    def guesses(self) -> int:
        """How many canaries are guessed unless told otherwise: a third, the surest ones.

        Fewer prove more of a sound system: about 3·√canaries are best for ε up to 8. But so few cannot prove a large ε even
        where all are right, and so cannot show that a promise of ε=8 is broken.
        """
        return max(2, len(self.canaries) // _GUESSED)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many records the agents declare, the target half of the canaries among them."""
        sizes = list(self.world.data.sizes)
        sizes[self.world.target] += len(self.canaries) // 2
        return tuple(sizes)

    def play(self, seed: int = 0) -> OneRunScores:
        """Toss the coins, train one system and score every canary."""
        world, target = self.world, self.world.target
        included = np.random.default_rng(seed).random(len(self.canaries)) < 0.5
        training = Training(
            algorithm=world.algorithm,
            model=world.model,
            loss=world.loss,
            data=self._data(torch.from_numpy(included)),
            sizes=self.sizes,
            privacy=world.privacy,
            rounds=world.rounds,
            lr=world.lr,
            graph=world.graph,
            seed=seed,
            sources=self.sources,
            evaluate_every=world.rounds,
            compile=world.compile,
        )
        with Session(training) as session:
            watched = Watched(session.real_oracle, target, keep=self.sees == "answers")
            session.wrap_oracle(lambda _: watched)
            while not session.finished:
                session.advance()
            plan, model, theta = session.plan, session.model, session.state.theta
        canaries, others = map(
            self._prepared, (self.canaries, world.data.dataset.train.take(world.data.indices[target]))
        )
        if self.sees == "answers":
            scores = likelihoods(model, canaries, others, watched.seen, plan, target)
        else:
            with torch.no_grad():
                losses = [model.losses(each, canaries.inputs, canaries.targets) for each in theta]
            scores = -torch.stack(losses).double().mean(dim=0)
        event = Event(
            sample_rate=plan.sample_rates[target],
            noise_multiplier=plan.noise_multipliers[target],
            count=plan.queries,
        )
        return OneRunScores(scores=scores.numpy(), included=included, event=event, delta=world.privacy.delta)

    def judge(self, played: OneRunScores, *, guesses: int | None = None, confidence: float = 0.95) -> OneRunFindings:
        """Guess the surest canaries and return what that proves.

        `guesses` must be chosen before the scores are seen. Adjacency is add-remove, whatever the promise was made for.
        """
        outcome = guess(played.scores, played.included, guesses=self.guesses if guesses is None else guesses)
        at = {"delta": played.delta, "confidence": confidence}
        bounds = one_run_bound(outcome, **at), one_run_fdp_bound(outcome, **at, event=played.event)
        claim = Claim.of(played.event, played.delta)
        return OneRunFindings(claim=claim, outcome=outcome, bounds=bounds, played=played)

    def _prepared(self, records: Records) -> Records:
        return Records(self.world.data.dataset.prepare(records.inputs), records.targets)

    def _data(self, included: Bool[Tensor, " canaries"]) -> AgentData:
        """Return what the agents hold, with these canaries in the target's hands."""
        held, target = self.world.data, self.world.target
        chosen = self.canaries.take(included.nonzero().flatten())
        train = concatenate([held.dataset.train, chosen])
        indices = list(held.indices)
        added = torch.arange(len(held.dataset.train), len(train))
        indices[target] = torch.cat([indices[target], added])
        return replace(held, dataset=replace(held.dataset, train=train), indices=tuple(indices))


def dirac_canaries(
    algorithm: Algorithm[Any],
    *,
    canaries: int,
    privacy: Privacy,
    rounds: int,
    lr: float | Schedule = 0.1,
    graph: nx.Graph,
    target: int = 0,
    records: int = 10,
    sources: Sources | None = None,
) -> OneRun:
    """Return the worst case: every canary's gradient lies along an axis of its own, far longer than the clipping norm.

    The other records lie along further axes. No canary stands in another's way, so each faces the noise alone.
    """
    world = dirac(algorithm, privacy=privacy, rounds=rounds, lr=lr, graph=graph, target=target, records=records)
    ordinary = world.data.dataset.train.table
    width = canaries + ordinary.shape[1]
    inputs = torch.cat([torch.zeros(len(ordinary), canaries), ordinary], dim=1)
    parts = [(part, torch.zeros(len(part))) for part in inputs.split(records)]
    clip = float(np.broadcast_to(privacy.clip, len(graph))[target])
    known = Records(_LENGTH * clip * torch.eye(canaries, width), torch.zeros(canaries))
    data = AgentData.from_parts(parts, name="dirac canaries")
    world = replace(world, model=linear_model(width), data=data, canary=known.take(torch.tensor([0])))
    return OneRun(world=world, canaries=known, sources=sources)
