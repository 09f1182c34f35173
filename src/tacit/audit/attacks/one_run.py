"""Many canaries in one run: each is in the target's data or not by its own coin, and an attacker guesses the coins.

A bound from one run is weaker than one from thousands (Steinke, Nasr & Jagielski 2023 say by how much), but it costs only one
training. q follows from a declared size that does not depend on the coins: the records that are always there plus half of the
canaries, which is what the target holds on average.
"""

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal, Unpack

import numpy as np
import torch

from tacit.algorithms import Algorithm
from tacit.audit.attacks.one_run_scores import OneRunScores, TargetRecorder, likelihoods
from tacit.audit.attacks.world import World
from tacit.audit.attacks.worlds import DiracSettings, dirac, linear_data, linear_model
from tacit.audit.bounds.findings import Claim, Refutation, roc_curve
from tacit.audit.bounds.one_run import Guesses, guess, one_run_bound, one_run_fdp_bound
from tacit.audit.bounds.rates import Bound, Terms
from tacit.data import Records
from tacit.errors import InvalidInput, choose
from tacit.privacy import Sources
from tacit.training.session import Session
from tacit.training.settings import Training

Sees = Literal["answers", "models"]

_GUESSED = 3  # one canary in three is guessed
_LENGTH = 10.0  # of a dirac canary, in clipping norms


@dataclass(frozen=True, kw_only=True)
class OneRunFindings(Refutation):
    """What the guesses prove. `one_run` holds whatever is wrong, `one_run_fdp` if only the noise may be wrong.

    Both bounds rest on the same number of right guesses, so the larger one also holds with the stated confidence.
    """

    outcome: Guesses
    bounds: tuple[Bound, Bound]
    played: OneRunScores

    @property
    def epsilon(self) -> float:
        """The larger lower bound."""
        return max(bound.epsilon for bound in self.bounds)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data. There is no ROC curve where all coins fell alike."""
        scores, included = self.played.scores, self.played.included
        alike = included.all() or not included.any()
        return {
            "claimed": self.claim.to_json(),
            "verdict": self.verdict,
            "lower_bound": self.epsilon,
            "outcome": asdict(self.outcome),
            "bounds": [bound.to_json() for bound in self.bounds],
            "scores": scores.tolist(),
            "included": included.tolist(),
            "roc": {} if alike else {"score": roc_curve(scores[~included], scores[included])},
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class OneRun:
    """An attack on one run of a world, whose own canary is left out.

    canaries: the records to include or leave out, before `prepare`.
    sees: `answers`, all noisy gradients of the target, as an observer with an exact view reconstructs them (for a rule that sends
        its model after every step, from the messages of the closed neighbourhood); or `models`, everyone's final ones.
    sources: where lots and noise come from; secret by default. The coins come from the seed of `play`.
    """

    world: World
    canaries: Records
    sees: Sees = "answers"
    sources: Sources | None = None

    def __post_init__(self) -> None:
        choose("view", self.sees, ("answers", "models"))
        if len(self.canaries) < 2:
            raise InvalidInput(f"{len(self.canaries)} canaries are too few for an audit of one run; give hundreds")

    @property
    def guesses(self) -> int:
        """How many canaries are guessed by default: a third, those with the clearest scores.

        Fewer guesses give larger bounds on a sound system: about 3·√canaries is best for ε up to 8. But so few cannot prove a
        large ε even if all are right, so they could not show that a claim of ε=8 is broken.
        """
        return max(2, len(self.canaries) // _GUESSED)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many records the agents declare; the target's include half of the canaries."""
        sizes = list(self.world.data.sizes)
        sizes[self.world.target] += len(self.canaries) // 2
        return tuple(sizes)

    def play(self, seed: int = 0) -> OneRunScores:
        """Toss the coins, train one system and score every canary."""
        world, target = self.world, self.world.target
        included = np.random.default_rng(seed).random(len(self.canaries)) < 0.5
        data = world.data_with(self.canaries.take(torch.from_numpy(included).nonzero().flatten()))
        training = Training(data=data, sizes=self.sizes, seed=seed, sources=self.sources, **world.settings)
        with Session(training) as session:
            recording = TargetRecorder(session.real_oracle, target, keep=self.sees == "answers")
            session.wrap_oracle(lambda _: recording)
            while not session.finished:
                session.advance()
            plan, model, theta = session.plan, session.model, session.state.theta
        held = world.data.dataset.train.take(world.data.indices[target])
        canaries, others = world.prepared(self.canaries), world.prepared(held)
        if self.sees == "answers":
            scores = likelihoods(model, canaries, others, recording.seen, plan, target)
        else:
            with torch.no_grad():
                losses = [model.losses(each, canaries.inputs, canaries.targets) for each in theta]
            scores = -torch.stack(losses).double().mean(dim=0)
        delta = world.privacy.delta
        return OneRunScores(scores=scores.numpy(), included=included, event=plan.event(target), delta=delta)

    def judge(self, played: OneRunScores, *, guesses: int | None = None, confidence: float = 0.95) -> OneRunFindings:
        """Guess the canaries with the clearest scores and return what that proves.

        `guesses` must be chosen before the scores are seen. Adjacency is add-remove, whatever the claim is for.
        """
        outcome = guess(played.scores, played.included, guesses=self.guesses if guesses is None else guesses)
        at: Terms = {"delta": played.delta, "confidence": confidence}
        bounds = one_run_bound(outcome, **at), one_run_fdp_bound(outcome, **at, event=played.event)
        claim = Claim.of(played.event, played.delta)
        return OneRunFindings(claim=claim, outcome=outcome, bounds=bounds, played=played)


def dirac_canaries(
    algorithm: Algorithm[Any],
    *,
    canaries: int,
    records: int = 10,
    sources: Sources | None = None,
    **settings: Unpack[DiracSettings],
) -> OneRun:
    """Return the worst case: every canary's gradient lies along its own axis, far longer than the clipping norm.

    The other records lie along further axes, so no canary hides another: each is covered by noise alone. For the settings see
    `dirac`.
    """
    world = dirac(algorithm, records=records, **settings)
    ordinary = world.data.dataset.train.table
    width = canaries + ordinary.shape[1]
    inputs = torch.cat([torch.zeros(len(ordinary), canaries), ordinary], dim=1)
    clip = float(np.broadcast_to(world.privacy.clip, world.data.agents)[world.target])
    known = Records(_LENGTH * clip * torch.eye(canaries, width), torch.zeros(canaries))
    data = linear_data(inputs, records, "dirac canaries")
    world = replace(world, model=linear_model(width), data=data, canary=known.take(torch.tensor([0])))
    return OneRun(world=world, canaries=known, sources=sources)
