"""What linear messages show exactly where noise is correlated, and where that number must not be taken for a guarantee."""

from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

from tacit.algorithms import DSGD, DSGT
from tacit.audit.attacks.coalition import worst_coalition
from tacit.audit.attacks.known_masks import hidden_covariance, known_pairs
from tacit.audit.linear.distance import leaks
from tacit.audit.linear.responses import Responses
from tacit.errors import InvalidInput
from tacit.graphs import path, ring
from tacit.privacy import Cancelling
from tacit.privacy.cancelling import masks_for
from tacit.privacy.keys import Keys
from tacit.privacy.noise_kinds import Masks
from tacit.privacy.observers import Observer

OWN, SIZE = (0.5, 0.3, 0.4, 0.6, 0.2, 0.5), 0.9
MASKS = Masks(OWN, SIZE, Keys.of(nx.cycle_graph(6)))


@pytest.mark.parametrize("rule", [DSGD(), DSGT()], ids=["dsgd", "dsgt"])
@pytest.mark.parametrize("observers", [[0], [0, 3]])
def test_information_is_that_of_the_whole_covariance(rule: Any, observers: list[int]) -> None:
    """H = a²·Bᵀ(BSBᵀ)⁺B by the pseudo-inverse; R·seen has mean H and covariance a²H."""
    queries, covariance = 4, hidden_covariance(MASKS, known_pairs(MASKS, observers))
    view = Responses.of(rule, ring(6), rounds=queries, lr=0.3).view(observers, noise=OWN, covariance=covariance)
    whole = torch.kron(covariance, torch.eye(queries, dtype=torch.float64))
    seen = view.matrix @ whole @ view.matrix.T
    inverse = torch.linalg.pinv(seen, rtol=1e-12, hermitian=True)
    for target in range(6):
        mine, h = view.matrix[:, queries * target : queries * (target + 1)], view.information(target)
        torch.testing.assert_close(OWN[target] ** 2 * mine.T @ inverse @ mine, h, atol=1e-6, rtol=1e-6)
        weights = view.recover(target)
        torch.testing.assert_close(weights @ mine, h, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(weights @ seen @ weights.T, OWN[target] ** 2 * h, atol=1e-6, rtol=1e-6)
        assert torch.linalg.eigvalsh(torch.eye(queries) - h).min() > -1e-9


@pytest.mark.parametrize("curious", [1, 2, 3])
def test_whoever_hears_everybody_learns_what_the_accounting_says(curious: int) -> None:
    responses = Responses.of(DSGD(), ring(6), rounds=3, lr=0.3)
    for target, stated in enumerate(MASKS.deviations(Observer(curious))):
        coalition = worst_coalition(MASKS, target, curious)
        covariance = hidden_covariance(MASKS, known_pairs(MASKS, coalition))
        h = responses.view(coalition, noise=OWN, covariance=covariance, hears="all").information(target)
        torch.testing.assert_close(h, float(h[0, 0]) * torch.eye(3, dtype=torch.float64), atol=1e-6, rtol=1e-6)
        assert OWN[target] / float(h[0, 0]) ** 0.5 == pytest.approx(stated, rel=1e-6)


def test_between_two_curious_neighbours_own_noise_is_all_that_is_left() -> None:
    covariance = hidden_covariance(MASKS, known_pairs(MASKS, [0, 2]))
    view = Responses.of(DSGD(), ring(6), rounds=2, lr=0.3).view([0, 2], noise=OWN, covariance=covariance)
    assert float(view.information(1)[0, 0]) == pytest.approx(1.0, abs=1e-6)
    assert worst_coalition(MASKS, 1, 2) == [0, 2]


@pytest.mark.parametrize(("agents", "ratio"), [(4, 2.0), (5, 2.0), (8, 5.0), (10, 10.0), (10, 990.0)])
@pytest.mark.parametrize("seed", [None, *range(5)])
def test_of_coalitions_that_are_equal_but_for_rounding_the_lowest_is_named(
    agents: int, ratio: float, seed: int | None
) -> None:
    """Own noise is moved by some units in the last place, as on another processor. Agents on both sides of agent 0 are mirror images."""
    steps = [0] * agents if seed is None else np.random.default_rng(seed).integers(-4, 5, agents).tolist()
    own = tuple(0.6 + step * 2.0**-53 for step in steps)
    on_ring = Masks(own, 0.6 * ratio, Keys.of(nx.cycle_graph(agents)))
    with_all = Masks(own, 0.6 * ratio, Keys(agents))
    assert [worst_coalition(on_ring, 0, curious) for curious in (1, 2)] == [[1], [1, agents - 1]]
    assert worst_coalition(on_ring, 2, 1) == [1]
    assert [worst_coalition(with_all, 0, curious) for curious in (1, 2)] == [[1], [1, 2]]


def test_a_covariance_that_is_none_is_refused() -> None:
    responses = Responses.of(DSGD(), ring(6), rounds=2, lr=0.3)
    for wrong in (torch.eye(5), -torch.eye(6), torch.ones(6, 6)):
        with pytest.raises(InvalidInput, match="positive definite matrix for 6 agents"):
            responses.view([0], covariance=wrong)


def test_with_masks_nobody_at_any_distance_sees_more_than_is_stated() -> None:
    settings = {"rounds": 8, "lr": 0.1, "runs": 200}
    local = leaks(DSGT(), ring(6), [0], **settings)
    for curious in (1, 2):
        masked = leaks(DSGT(), ring(6), [0], noise=Cancelling(curious=curious, keys="graph", ratio=2.0), **settings)
        assert all(each.share <= 1 + 1e-9 for each in masked)
        assert [each.exact for each in masked] == [each.exact for each in local]
    alone = masks_for([1.0] * 6, Keys.of(nx.cycle_graph(6)), 1, ratio=2.0)
    covariance = hidden_covariance(alone, known_pairs(alone, [0]))
    responses = Responses.of(DSGT(), ring(6), rounds=8, lr=0.1)
    expected = responses.view([0], covariance=covariance).share(3)
    found = leaks(DSGT(), ring(6), [0], targets=[3], noise=Cancelling(curious=1, keys="graph", ratio=2.0), **settings)
    assert found[0].share == pytest.approx(expected)


@dataclass(frozen=True)
class Gossip:
    """One noised value for each agent, then nothing but averaging."""

    def init(self, theta: Any) -> Any:
        return DSGD().init(theta)

    def round(self, state: Any, at: Any) -> Any:
        if at.round == 0:
            return state._replace(theta=at.gradient(state.theta))
        return state._replace(theta=at.exchange(state.theta).mix())


def test_gossip_of_one_noised_value_shows_all_of_it_at_the_far_end_of_a_path() -> None:
    """Muffliato's formula, Σ_t (Wᵗ)²_uw/‖(Wᵗ)_w‖² over what the neighbour w of v says, gives a third of local μ²."""
    view = Responses.of(Gossip(), path(3), rounds=2, lr=0.1).view([2])
    assert float(view.information(0)[0, 0]) == pytest.approx(1.0, abs=1e-6)
    steps = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
    said = [np.linalg.matrix_power(steps, power) for power in (0, 1)]
    assert sum(each[0, 1] ** 2 / (each[1] @ each[1]) for each in said) == pytest.approx(1 / 3)


@dataclass(frozen=True)
class MixFirst:
    """DSGD that asks at the mixed model, which is never sent. Agent 1's gradient has a slope, which everybody knows."""

    slope: float

    def init(self, theta: Any) -> Any:
        return DSGD().init(theta)

    def round(self, state: Any, at: Any) -> Any:
        mixed = at.exchange(state.theta).mix()
        slopes = torch.zeros(len(mixed), 1, dtype=mixed.dtype)
        if len(mixed) > 1:
            slopes[1] = self.slope
        return state._replace(theta=mixed - at.lr * (at.gradient(mixed) + slopes * mixed))


def test_a_steep_gradient_on_the_way_undoes_what_mixing_seems_to_hide() -> None:
    """On a path u–w–v: linear accounting gives v 0.316 of local μ on u's first answer; with a steep gradient of w it has 0.965."""

    def seen(slope: float) -> float:
        view = Responses.of(MixFirst(slope), path(3), rounds=2, lr=0.1).view([2])
        return float(view.information(0)[0, 0]) ** 0.5

    assert seen(0.0) == pytest.approx(0.316, abs=5e-4)
    assert seen(120.0) == pytest.approx(0.965, abs=5e-4)


@dataclass(frozen=True)
class Steep:
    """DSGD where the gradients of agents whom the observer does not hear are steep."""

    slope: float

    def init(self, theta: Any) -> Any:
        return DSGD().init(theta)

    def round(self, state: Any, at: Any) -> Any:
        slopes = torch.zeros(len(state.theta), 1, dtype=state.theta.dtype)
        slopes[:1] = self.slope
        gradient = at.gradient(state.theta) + slopes * state.theta
        return state._replace(theta=at.exchange(state.theta).mix() - at.lr * gradient)


def test_the_same_holds_for_dsgd_itself() -> None:
    """It asks at models that are sent, but not to v."""
    shares = [
        float(Responses.of(Steep(slope), path(3), rounds=4, lr=0.1).view([2]).information(0)[0, 0]) ** 0.5
        for slope in (0.0, 120.0)
    ]
    print(shares)
    assert shares[0] < 0.45
    assert shares[1] > 0.9
