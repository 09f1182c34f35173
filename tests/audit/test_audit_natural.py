"""With a natural record, the neighbour reconstructs answers and points, and its scores follow the formula."""

from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import pytest
import torch
from torch import Tensor

from tacit import DSGD, DSGT, DiNNO, Privacy
from tacit.algorithms import Plain
from tacit.audit.attacks.membership import Membership, paper_attack
from tacit.audit.attacks.natural import NaturalNeighbor
from tacit.audit.attacks.worlds import images
from tacit.data import load
from tacit.errors import InvalidInput
from tacit.privacy import Fast

PRIVACY = Privacy(epsilon=2.0, delta=1e-2, clip=1.0, lot_size=10)


@dataclass(frozen=True)
class Recording:
    """A rule that notes where it asked and what was answered."""

    rule: Any
    asked: list[Tensor] = field(default_factory=list)
    answered: list[Tensor] = field(default_factory=list)

    def init(self, theta: Tensor) -> Any:
        return self.rule.init(theta)

    def round(self, state: Any, at: Any) -> Any:
        return self.rule.round(state, _Noting(at, self))


class _Noting:
    def __init__(self, at: Any, notes: Recording) -> None:
        self._at, self._notes = at, notes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._at, name)

    def gradient(self, theta: Tensor) -> Tensor:
        answer = self._at.gradient(theta)
        self._notes.asked.append(theta.clone())
        self._notes.answered.append(answer.clone())
        return answer


@pytest.mark.parametrize(
    "rule", [DSGD(), DSGT(), DiNNO(step=Plain(), rho=0.1, inner_steps=1)], ids=lambda r: type(r).__name__
)
def test_answers_and_points_are_those_of_the_run(rule: Any) -> None:
    notes = Recording(rule)
    world = images(load("digits"), notes, privacy=PRIVACY, rounds=6, lr=0.05, compile=False)
    attack = NaturalNeighbor(world=world, observers=[1], sources=Fast(0))
    sent: list[tuple[Tensor, ...]] = []
    for kept in (notes.asked, notes.answered):
        kept.clear()  # the rule was played with impulses, too
    (result,) = world.play(1, present=True, seed=0, sources=Fast(0), taps=[sent.append])
    asked = torch.stack(notes.asked[-6:])[:, world.target].double()
    answered = torch.stack(notes.answered[-6:])[:, world.target].double()
    begun = world.starts(result.model, 1, 0)
    seen = attack.view.arrange(sent, begun, models=result.theta)[0]
    weights, from_starts = attack._points
    assert torch.allclose(weights @ seen + from_starts @ begun.double(), asked, atol=1e-5)
    assert torch.allclose(attack.weights @ seen, answered, rtol=1e-4, atol=1e-4 * float(answered.std()))


@pytest.mark.slow
def test_scores_show_where_the_noise_is_small() -> None:
    privacy = Privacy(noise_multiplier=0.05, delta=1e-2, clip=1.0, lot_size=10)
    world = images(load("digits"), DSGD(), privacy=privacy, rounds=10, lr=0.05, compile=False)
    attack = NaturalNeighbor(world=world, observers=[1], sources=Fast(0))
    absent, present = (attack.scores(6, present=side, seed=0)["likelihood"] for side in (False, True))
    assert present.mean() > 0 > absent.mean()


def test_partial_view_is_refused() -> None:
    world = images(
        load("digits"), DSGD(), privacy=PRIVACY, rounds=3, lr=0.05, agents=5, graph=nx.cycle_graph(5), compile=False
    )
    with pytest.raises(InvalidInput, match="do not see all of agent 0's answers"):
        NaturalNeighbor(world=world, observers=[1])
    with pytest.raises(InvalidInput, match="cannot be an observer of itself"):
        NaturalNeighbor(world=world, observers=[0])


@pytest.mark.parametrize("rule", ["sgd", "dsgd", "dsgt", "dinno"])
def test_published_attack_scores_final_models(rule: str) -> None:
    attack = paper_attack(load("digits"), rule, epsilon=1.0, delta=1e-2, rounds=3)
    world = images(load("digits"), attack.world.algorithm, privacy=PRIVACY, rounds=3, lr=0.05, compile=False)
    scores = Membership(world=world, sources=Fast(0)).scores(3, present=True, seed=0)["loss"]
    results = world.play(3, present=True, seed=0, sources=Fast(0))
    blank = torch.zeros(1, *world.data.dataset.train.inputs.shape[1:])
    with torch.no_grad():
        expected = [
            -sum(
                float(torch.nn.functional.cross_entropy(result.module(agent)(blank), torch.tensor([0])))
                for agent in range(result.data.agents)
            )
            / result.data.agents
            for result in results
        ]
    assert scores.tolist() == pytest.approx(expected, rel=1e-5)
    assert attack.world.plan.sample_rates[0] == pytest.approx(0.1)
    assert attack.event.count == 3
