import json
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
import pytest
import torch

from tacit.algorithms import DSGD, DSGT
from tacit.audit.attacks.one_run import OneRun, dirac_canaries
from tacit.audit.attacks.one_run_scores import OneRunScores, TargetRecorder, _separate, likelihoods
from tacit.audit.attacks.world import World
from tacit.audit.linear.responses import Responses
from tacit.data import AgentData, Records, load
from tacit.errors import DataError, InvalidInput
from tacit.graphs import complete
from tacit.models import FlatModel, mlp
from tacit.privacy import Event, Fast, Privacy
from tacit.privacy.gradients.clipping import HAIR
from tacit.training.session import Session
from tacit.training.settings import Training

CANARIES, RECORDS = 300, 10


@dataclass(frozen=True)
class Scaled:
    """Fast sources whose noise has another size."""

    seed: int
    size: float
    secret = False

    def make(self, agents, trial=0):
        return [ScaledSource(source, self.size) for source in Fast(self.seed).make(agents, trial)]


class ScaledSource:
    def __init__(self, source, size):
        self.source, self.size, self.position = source, size, 0

    def next(self):
        return ScaledStream(self.source.next(), self.size)


class ScaledStream:
    def __init__(self, stream, size):
        self.words, self.stream, self.size = stream.words, stream, size

    def normals(self, width):
        return self.size * self.stream.normals(width)


def worst_case(epsilon, sources, *, rounds=1, rate=1.0, canaries=CANARIES):
    """Lots of everything, or of a share, from what the target declares."""
    lots = [rate * (RECORDS + canaries // 2), RECORDS, RECORDS]
    privacy = Privacy(epsilon=epsilon, delta=1e-5, clip=2.0, lot_size=lots)
    return dirac_canaries(
        DSGD(),
        canaries=canaries,
        privacy=privacy,
        rounds=rounds,
        graph=complete(3),
        records=RECORDS,
        sources=sources,
    )


def digits(sees, *, epsilon=8.0, canaries=60, records=20, rounds=2, sources=None):
    data_set = load("digits")
    parts = [data_set.train.take(torch.arange(i * records, (i + 1) * records)) for i in range(3)]
    data = AgentData.from_parts(parts, name="digits", classes=10, prepare=data_set.prepare)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 17, (canaries, 1, 8, 8), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 10, (canaries,), generator=generator)
    made_up = Records(images, labels)
    privacy = Privacy(epsilon=epsilon, delta=1e-5, clip=1.0, lot_size=[records + canaries // 2, records, records])
    world = World(
        algorithm=DSGD(),
        model=lambda: mlp((1, 8, 8), 10, hidden=(16,)),
        data=data,
        canary=made_up.take(torch.tensor([0])),
        target=0,
        privacy=privacy,
        rounds=rounds,
        lr=0.5,
        graph=complete(3),
        compile=False,
    )
    return OneRun(world=world, canaries=made_up, sees=sees, sources=sources)


@pytest.mark.parametrize(("rate", "rounds", "runs"), [(1.0, 1, 8), (0.3, 3, 4)])
def test_a_sound_system_stays_below_its_claim(rate, rounds, runs):
    """Twelve seeded runs; each may pass the claim with a probability of 5 % at most, and comes nowhere near."""
    found = []
    for seed in range(runs):
        attack = worst_case(8.0, Fast(seed), rate=rate, rounds=rounds)
        findings = attack.judge(attack.play(seed))
        assert findings.verdict == "no violation found"
        assert findings.claim.epsilon == pytest.approx(8.0, rel=1e-3)
        found.append(findings.epsilon)
    assert np.mean(found) > (3.0 if rate == 1 else 1.0)  # the attack is not blind


@pytest.mark.parametrize(("epsilon", "size"), [(1.0, 0.3), (4.0, 0.3), (4.0, 0.0)])
def test_too_little_noise_is_found_in_one_run(epsilon, size):
    attack = worst_case(epsilon, Scaled(0, size))
    assert attack.judge(attack.play(0)).verdict == "broken"


def test_without_noise_every_guess_is_right():
    attack = worst_case(4.0, Scaled(0, 0.0))
    outcome = attack.judge(attack.play(1)).outcome
    assert (outcome.canaries, outcome.guesses, outcome.correct) == (300, 100, 100)


def test_a_play_can_be_repeated_and_its_coins_are_fair():
    played, again, other = (worst_case(4.0, Fast(3)).play(seed) for seed in (5, 5, 6))
    assert np.array_equal(played.scores, again.scores)
    assert np.array_equal(played.included, again.included)
    assert not np.array_equal(played.included, other.included)
    assert 110 < played.included.sum() < 190  # five standard deviations


def test_q_is_the_same_whatever_the_coins_say():
    attack = worst_case(4.0, Fast(0), rate=0.5, rounds=2)
    assert attack.sizes == (RECORDS + CANARIES // 2, RECORDS, RECORDS)
    first, second = attack.play(0), attack.play(1)
    assert first.included.sum() != second.included.sum()
    assert first.event == second.event
    assert first.event.sample_rate == 0.5


def test_scores_of_dirac_canaries_are_the_likelihood_ratios():
    """log(1 - q + q·exp((2s - 1)/2σ²)) per query, s the answer along the canary's axis in clipping norms."""
    attack = worst_case(4.0, Fast(0), rate=0.5, rounds=1, canaries=20)
    answer, plan = torch.randn(28, generator=torch.Generator().manual_seed(0)), plan_of_one(attack)
    watched = TargetRecorder(None, 0)
    watched.seen.append((torch.zeros(28), answer))
    model = FlatModel(attack.world.model, attack.world.loss)
    others = attack.world.data.dataset.train.take(attack.world.data.indices[0])
    found = likelihoods(model, attack.canaries, others, watched.seen, plan, 0)
    sigma, rate, hair = plan.noise_multipliers[0], plan.sample_rates[0], 1 - HAIR
    along = answer[:20].double().numpy() * plan.lot_sizes[0] / plan.clips[0]
    expected = np.log(1 - rate + rate * np.exp((2 * hair * along - hair**2) / (2 * sigma**2)))
    assert np.allclose(found.numpy(), expected, rtol=1e-5, atol=1e-9)


def plan_of_one(attack):
    return attack.world.privacy.plan(attack.sizes, 1)


def test_gradients_that_are_alike_are_distinguished_as_by_the_dense_formula():
    generator = torch.Generator().manual_seed(1)
    gradients = torch.randn(9, 6, generator=generator, dtype=torch.float64) + 1
    y = torch.randn(6, generator=generator, dtype=torch.float64)
    chance, noise = torch.tensor([0.2] * 5 + [0.4] * 4, dtype=torch.float64), 0.7
    z, h = _separate(gradients, y, chance, noise, 5)
    for i in range(5):
        rest = torch.arange(9) != i
        spread = (chance * (1 - chance))[rest]
        covariance = noise**2 * torch.eye(6, dtype=torch.float64) + gradients[rest].T @ (
            spread[:, None] * gradients[rest]
        )
        weights = torch.linalg.solve(covariance, gradients[i])
        assert torch.isclose(h[i], weights @ gradients[i], rtol=1e-9)
        assert torch.isclose(z[i], weights @ (y - chance[rest] @ gradients[rest]), rtol=1e-9)


@pytest.mark.parametrize("rule", [DSGD(), DSGT()])
def test_what_is_watched_is_what_an_exact_view_reconstructs(rule):
    attack = worst_case(8.0, Fast(0), rounds=3, canaries=10)
    world, sent = attack.world, []
    training = Training(
        algorithm=rule,
        model=world.model,
        loss=world.loss,
        data=world.data,
        privacy=replace(world.privacy, lot_size=5),
        rounds=3,
        lr=world.lr,
        graph=world.graph,
        sources=Fast(0),
        taps=[sent.append],
    )
    with Session(training) as session:
        watched = TargetRecorder(session.oracle, 0)
        session.wrap_oracle(lambda _: watched)
        while not session.finished:
            session.advance()
    view = Responses.of(rule, world.graph, rounds=3, lr=world.lr).view([1])
    assert view.exact(0).all()
    seen = view.arrange(sent, torch.zeros(3, 18), models=session.state.theta)[0]
    answers = torch.stack([answer for _, answer in watched.seen]).double()
    assert torch.allclose(view.recover(0) @ seen, answers, atol=1e-4 * float(answers.abs().max()))
    if isinstance(rule, DSGD):
        assert all(torch.equal(point, message[0][0]) for (point, _), message in zip(watched.seen, sent, strict=True))


@pytest.mark.parametrize("sees", ["answers", "models"])
def test_it_runs_on_a_network(sees):
    attack = digits(sees, sources=Fast(0))
    played = attack.play(0)
    findings = attack.judge(played)
    assert played.scores.shape == played.included.shape == (60,)
    assert findings.outcome.guesses == 20
    assert findings.verdict == "no violation found"
    assert 0 <= findings.epsilon < 8


def test_a_network_without_noise_is_given_away_by_its_answers():
    attack = digits("answers", sources=Scaled(0, 0.0), epsilon=1.0)
    assert attack.judge(attack.play(0), guesses=60).verdict == "broken"


def test_a_network_that_is_fitted_without_noise_is_given_away_by_its_losses():
    attack = digits("models", sources=Scaled(0, 0.0), rounds=150)
    played = attack.play(0)
    assert played.scores[played.included].mean() > played.scores[~played.included].mean() + 0.5


def test_findings_are_plain_data():
    attack = worst_case(4.0, Fast(0))
    findings = attack.judge(attack.play(0), guesses=50, confidence=0.9)
    plain = json.loads(json.dumps(findings.to_json(), allow_nan=False))
    assert plain["outcome"]["guesses"] == 50
    assert [bound["method"] for bound in plain["bounds"]] == ["one_run", "one_run_fdp"]
    assert {bound["confidence"] for bound in plain["bounds"]} == {0.9}
    assert plain["lower_bound"] == max(bound["epsilon"] for bound in plain["bounds"])


def test_a_rule_that_asks_for_more_than_gradients_is_refused():
    class Asking(DSGD):
        def round(self, state, at):
            at.query(lambda record, theta: record.gradient(theta), state.theta)
            return super().round(state, at)

    attack = worst_case(4.0, Fast(0), canaries=10)
    attack = replace(attack, world=replace(attack.world, algorithm=Asking()))
    with pytest.raises(InvalidInput, match="models only"):
        attack.play(0)
    assert len(replace(attack, sees="models").play(0).scores) == 10


def test_bad_inputs_are_refused():
    attack = worst_case(4.0, Fast(0), canaries=10)
    with pytest.raises(InvalidInput, match="did you mean 'models'"):
        replace(attack, sees="model")
    with pytest.raises(InvalidInput, match="too few"):
        replace(attack, canaries=attack.canaries.take(torch.tensor([0])))
    with pytest.raises(DataError, match="must be alike"):
        replace(attack, canaries=Records(torch.zeros(4, 3), torch.zeros(4))).play(0)
    event = Event(sample_rate=1.0, noise_multiplier=1.0)
    played = OneRunScores(scores=np.zeros(10), included=np.zeros(10, dtype=bool), event=event, delta=1e-5)
    with pytest.raises(InvalidInput, match="guesses is 11"):
        attack.judge(played, guesses=11)
    with pytest.raises(InvalidInput, match="confidence is 1"):
        attack.judge(played, confidence=1.0)


def test_a_graph_with_one_node_needs_no_neighbours():
    privacy = Privacy(noise_multiplier=1.0, delta=1e-5, clip=1.0, lot_size=5)
    attack = dirac_canaries(DSGD(), canaries=10, privacy=privacy, rounds=2, graph=nx.complete_graph(1), records=5)
    assert np.isfinite(attack.play(0).scores).all()
