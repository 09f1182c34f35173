"""What leaks falls with the distance, is bounded by the claim, and agrees with attacks on real runs."""

import networkx as nx
import numpy as np
import pytest
import torch

from tacit import DSGD, DSGT, Privacy
from tacit.audit.attacks.collection import collect
from tacit.audit.attacks.neighbor import Neighbor
from tacit.audit.attacks.worlds import dirac
from tacit.audit.bounds.findings import Claim, judge
from tacit.audit.linear import distance
from tacit.audit.linear.distance import leaks, nearest_at_each_distance
from tacit.errors import InvalidInput
from tacit.privacy import Fast
from tacit.privacy.event import Event

SETTINGS = {"rounds": 20, "lr": 0.05, "runs": 2000}


def test_share_falls_with_distance_on_a_ring() -> None:
    graph = nx.cycle_graph(8)
    found = leaks(DSGD(), graph, [0], targets=nearest_at_each_distance(graph, [0]), **SETTINGS)
    assert [each.distance for each in found] == [1, 2, 3, 4]
    shares = [each.share for each in found]
    assert shares == sorted(shares, reverse=True)
    assert all(each.epsilon < 1.0 for each in found)


def test_whole_neighbourhood_shows_everything() -> None:
    found = leaks(DSGT(), nx.complete_graph(4), [2], **SETTINGS)
    assert [each.target for each in found] == [0, 1, 3]
    assert all(each.exact == each.queries == 20 for each in found)
    assert min(each.epsilon for each in found) > 0.3


def test_a_coalition_learns_more() -> None:
    graph = nx.cycle_graph(8)
    alone = leaks(DSGD(), graph, [0], targets=[2], **SETTINGS)[0]
    together = leaks(DSGD(), graph, [0, 4], targets=[2], **SETTINGS)[0]
    assert together.share > alone.share


@pytest.mark.slow
def test_played_scores_are_those_of_real_runs() -> None:
    """A partial view: the bound from drawn reconstructions and the one from trained systems are of one size."""
    graph, rounds, runs = nx.path_graph(3), 10, 1000
    (played,) = leaks(DSGD(), graph, [0], targets=[1], rounds=rounds, lr=0.05, runs=runs, epsilon=4.0)
    privacy = Privacy(epsilon=4.0, delta=1e-2, clip=1.0, lot_size=1)
    world = dirac(DSGD(), privacy=privacy, rounds=rounds, lr=0.05, graph=graph, target=1, records=10)
    attack = Neighbor(world=world, observers=[0], sources=Fast(0))
    scores = collect(attack, runs, batch=runs)
    real = judge(scores, Claim.of(attack.event, 1e-2), confidence=0.95)
    assert 0.3 < played.share < 0.999
    assert real.epsilon == pytest.approx(played.epsilon, rel=0.25)


def test_unreachable_target_is_refused() -> None:
    with pytest.raises(InvalidInput, match="agent 9"):
        leaks(DSGD(), nx.cycle_graph(4), [0], targets=[9], **SETTINGS)


def test_simulated_runs_do_not_depend_on_the_signs_and_bases_that_linear_algebra_chooses(monkeypatch) -> None:
    """A ring's information has equal eigenvalues, of which any rotation of the vectors is as good."""
    information = torch.eye(4, dtype=torch.float64) * 3 + 1
    event, exact = Event(sample_rate=0.5, noise_multiplier=2.0), torch.linalg.eigh

    def simulate() -> np.ndarray:
        return distance._simulate(information, event, 50, True, torch.Generator().manual_seed(0))

    def elsewhere(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, vectors = exact(matrix)
        turned = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))[0]
        return values, torch.cat([vectors[:, :3] @ turned, -vectors[:, 3:]], 1)

    here = simulate()
    monkeypatch.setattr(torch.linalg, "eigh", elsewhere)
    assert simulate() == pytest.approx(here, rel=1e-9)
