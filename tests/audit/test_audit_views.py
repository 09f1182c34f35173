"""What observers can reconstruct of other agents' answers from messages, by linear algebra; and which rules and runs have no such view."""

from dataclasses import dataclass, field, replace
from typing import Any

import networkx as nx
import pytest
import reference
import torch
from viewing import same

import tacit
from tacit.algorithms import DSGD, DSGT, Adam, DiNNO, Local, Momentum, Plain
from tacit.audit.linear import responses
from tacit.audit.linear.responses import NotLinear, Responses
from tacit.audit.linear.views import ViewRow
from tacit.errors import InvalidInput
from tacit.graphs import complete, erdos_renyi, path, ring, torus
from tacit.networks import StackedNetwork, as_topology
from tacit.training import rounds as playing
from tacit.training.preparation import starts as make_starts
from tacit.training.schedules import LogSpaced, as_schedule

IRREGULAR = erdos_renyi(7, 0.4, seed=3)
LR = LogSpaced(0.2, 0.05)


@dataclass
class Play:
    """A run in float64 with random answers and starts, and everything that was said in it."""

    rule: Any
    graph: nx.Graph
    rounds: int = 6
    lr: Any = LR
    trials: int = 1
    messages: list = field(default_factory=list)
    answers: list = field(default_factory=list)

    def __post_init__(self):
        rows = self.trials * len(self.graph)
        network = StackedNetwork(
            as_topology(self.graph), trials=self.trials, dtype=torch.float64, taps=[self.messages.append]
        )
        self.random = torch.Generator().manual_seed(1)
        self.starts = self.draw(rows)
        schedule = as_schedule(self.lr)
        play = playing.Play(
            self.rule, self.starts, rounds=self.rounds, schedule=schedule, network=network, oracle=self, seed=0
        )
        while play.round < self.rounds:
            play.advance()
        self.models = play.state.theta

    def gradient(self, theta):
        self.answers.append(self.draw(len(theta)))
        return self.answers[-1]

    def draw(self, rows):
        return torch.randn(rows, 3, dtype=torch.float64, generator=self.random)

    def responses(self):
        return Responses.of(self.rule, self.graph, rounds=self.rounds, lr=self.lr)

    def arranged(self, view):
        models = self.models if view.final else None
        return view.arrange(self.messages, self.starts, models=models, answers=self.answers if view.answers else None)

    def of(self, target, trial=0):
        return torch.stack(self.answers)[:, trial * len(self.graph) + target]


def closed(graph, target):
    return [target, *graph.neighbors(target)]


# What is reconstructed


@pytest.mark.parametrize(
    ("graph", "observers", "target"),
    [(complete(5), [0], 3), (ring(6), [0, 2], 1), (IRREGULAR, closed(IRREGULAR, 2), 2)],
    ids=["complete", "ring", "irregular"],
)
@pytest.mark.parametrize("step", [Plain(), Momentum(0.9)], ids=repr)
def test_dsgd_shows_a_gradient_to_whoever_sees_all_that_went_into_a_model(graph, observers, target, step):
    play = Play(DSGD(step=step), graph)
    view = play.responses().view(observers)
    assert set(closed(graph, target)) <= set(view.members)
    found = (view.recover(target) @ play.arranged(view))[0]
    assert view.exact(target).all()
    same(found, play.of(target))
    same(view.information(target), torch.eye(play.rounds, dtype=torch.float64))
    if step == Plain():
        thetas = [sent[0] for sent in play.messages] + [play.models]
        weights = reference.metropolis(graph)[target]
        for k in range(play.rounds):
            mixed = sum(weight * thetas[k][agent] for agent, weight in enumerate(weights))
            same(found[k], (mixed - thetas[k + 1][target]) / LR(k, play.rounds))


def test_dsgt_shows_gradients_by_a_telescoping_sum_of_trackers():
    play = Play(DSGT(), IRREGULAR)
    view = play.responses().view(closed(IRREGULAR, 2), final=False)
    found = (view.recover(2) @ play.arranged(view))[0]
    same(found, play.of(2))
    weights, total = reference.metropolis(IRREGULAR)[2], 0.0
    trackers = [torch.zeros_like(play.starts)] + [sent[1] for sent in play.messages]
    for k in range(play.rounds):
        mixed = sum(weight * trackers[k][agent] for agent, weight in enumerate(weights))
        total = total + trackers[k + 1][2] - mixed
        same(found[k], total)


@pytest.mark.parametrize(
    ("graph", "target"), [(path(3), 2), (ring(4), 2), (ring(5), 2)], ids=["path", "ring4", "ring5"]
)
def test_dsgt_shows_two_hop_agents_where_everything_else_near_them_is_seen(graph, target):
    """A seen agent's next θ less all else in it is the hidden message; the target's θ less its message is its tracker."""
    assert nx.shortest_path_length(graph, 0, target) == 2
    play = Play(DSGT(), graph)
    view = play.responses().view([0])
    assert view.exact(target).all()
    same((view.recover(target) @ play.arranged(view))[0], play.of(target), 1e-6)


@pytest.mark.parametrize(
    ("rule", "graph"), [(DSGT(), ring(6)), (DSGT(), torus(16)), (DSGD(), path(3)), (DSGD(), ring(4))]
)
def test_elsewhere_two_hop_agents_are_seen_in_part(rule, graph):
    view = Play(rule, graph, rounds=12).responses().view([0])
    two_hops = [agent for agent in graph if nx.shortest_path_length(graph, 0, agent) == 2]
    for target in two_hops:
        assert 0.02 < view.share(target) < 0.9
        assert not view.exact(target).all()


def test_dinno_with_one_plain_step_shows_gradients():
    play = Play(DiNNO(step=Plain(), rho=0.3, rho_growth=1.1), IRREGULAR)
    view = play.responses().view(closed(IRREGULAR, 2))
    assert view.exact(2).all()
    same((view.recover(2) @ play.arranged(view))[0], play.of(2))


def test_dinno_with_two_plain_steps_shows_one_sum_of_each_round():
    rule = DiNNO(step=Plain(), inner_steps=2, rho=0.3, rho_growth=1.1)
    play = Play(rule, IRREGULAR, rounds=4)
    view, target = play.responses().view(closed(IRREGULAR, 2)), 2
    found, true, h = (view.recover(target) @ play.arranged(view))[0], play.of(target), view.information(target)
    expected = torch.zeros(8, 8, dtype=torch.float64)
    for k in range(4):
        earlier = 1 - 2 * LR(k, 4) * rule.rho * rule.rho_growth**k * IRREGULAR.degree[target]
        weights, block = torch.tensor([earlier, 1.0], dtype=torch.float64), slice(2 * k, 2 * k + 2)
        expected[block, block] = torch.outer(weights, weights) / weights.square().sum()
        same(weights @ found[block], weights @ true[block])
    same(h, expected)
    assert view.share(target) == pytest.approx(0.5)
    assert not view.exact(target).any()


def test_without_the_models_at_the_end_the_last_answer_never_shows():
    view = Play(DSGD(), complete(4)).responses().view([0], final=False)
    assert view.exact(2).tolist() == [True] * 5 + [False]
    assert view.information(2)[-1].abs().max() < 1e-12
    silent = Play(Local(), ring(4)).responses()
    assert silent.view([0]).share(1) == pytest.approx(1 / 6)  # the sum of all steps
    assert torch.linalg.matrix_rank(silent.view([0]).information(1)) == 1


# What information is


@pytest.mark.parametrize(
    "rule", [DSGD(), DSGT(), DiNNO(step=Plain(), inner_steps=2, rho=0.1)], ids=["dsgd", "dsgt", "dinno"]
)
def test_information_lies_between_none_and_all_and_grows_with_the_coalition(rule):
    found = Play(rule, erdos_renyi(9, 0.3, seed=1), rounds=10).responses()
    alone, other, both = (found.view(observers) for observers in ([0], [5], [0, 5]))
    for target in range(9):
        h = both.information(target)
        more = [h, torch.eye(len(h)) - h, h - alone.information(target), h - other.information(target)]
        assert all(torch.linalg.eigvalsh(part).min() > -1e-9 for part in more)


def test_information_is_that_of_the_covariance_of_all_noise():
    """H = Bᵀ Σ⁺ B by another way, with agents whose noise differs; R·seen has mean H and covariance H."""
    sizes = [0.5, 1.0, 2.0, 1.0, 3.0, 1.0]
    view = Play(DSGT(), ring(6), rounds=5).responses().view([0], noise=sizes)
    noise = torch.tensor(sizes, dtype=torch.float64).repeat_interleave(5)
    for target in range(6):
        mine, weights, h = view.matrix[:, 5 * target : 5 * target + 5], view.recover(target), view.information(target)
        covariance = (view.matrix * noise) @ (view.matrix * noise).T
        same(sizes[target] ** 2 * mine.T @ torch.linalg.pinv(covariance, rtol=1e-12, hermitian=True) @ mine, h, 1e-6)
        same(weights @ mine, h)
        same(weights @ covariance @ weights.T, sizes[target] ** 2 * h)


@pytest.mark.parametrize("rule", [DSGT(), DiNNO(step=Plain(), inner_steps=2, rho=0.1)], ids=["dsgt", "dinno"])
def test_an_observers_own_answers_say_nothing_more_of_others(rule):
    play = Play(rule, ring(6), trials=2)
    plain, with_answers = (play.responses().view([0, 3], answers=answers) for answers in (False, True))
    for target in (1, 2, 4, 5):
        same(plain.information(target), with_answers.information(target))
    assert with_answers.exact(0).all()
    same(with_answers.recover(0) @ play.arranged(with_answers), torch.stack([play.of(0, 0), play.of(0, 1)]))


def test_less_is_seen_from_farther_away():
    for rule in (DSGD(), DSGT()):
        view = Responses.of(rule, ring(8), rounds=50, lr=0.1).view([0])
        shares = [view.share(target) for target in range(5)]
        shifts = [view.shift(target, rate=0.1, noise=2.0) for target in range(5)]
        print(rule, [f"{share:.4f}" for share in shares], [f"{shift:.4f}" for shift in shifts])
        assert shares == sorted(shares, reverse=True)
        assert shifts == sorted(shifts, reverse=True)
        assert shares[0] == pytest.approx(1)
        assert shifts[0] == pytest.approx(0.1 * 50**0.5 / 2.0)
        assert shares[4] > 0


# Runs


def test_rows_are_named_and_trials_are_kept_apart():
    play = Play(DSGT(), ring(5), rounds=2, trials=3)
    view = play.responses().view([1], answers=True)
    seen = play.arranged(view)
    assert seen.shape == (3, len(view.rows), 3) == (3, view.matrix.shape[0], 3)
    assert view.members == (0, 1, 2)
    assert view.rows[:4] == (*(ViewRow("message", 0, 0, agent) for agent in (0, 1, 2)), ViewRow("message", 0, 1, 0))
    assert view.rows[-3:] == (ViewRow("model", 0, 0, 2), ViewRow("answer", 0, 0, 1), ViewRow("answer", 1, 0, 1))
    for trial in range(3):
        answers = torch.stack(play.answers)[:, 5 * trial : 5 * trial + 5].transpose(0, 1).flatten(0, 1)
        same(seen[trial], view.matrix @ answers)


@dataclass(frozen=True)
class Recording:
    """A rule that keeps what the oracle told it."""

    rule: Any
    answers: list = field(default_factory=list)

    def init(self, theta):
        self.answers.clear()  # the plays that count a run come first
        return self.rule.init(theta)

    def round(self, state, at):
        return self.rule.round(state, _Listening(at, self.answers))


class _Listening:
    def __init__(self, at, answers):
        self.at, self.answers = at, answers

    def __getattr__(self, name):
        return getattr(self.at, name)

    def gradient(self, theta):
        self.answers.append(self.at.gradient(theta))
        return self.answers[-1]


@pytest.mark.parametrize(("rule", "target"), [(DSGD(), 1), (DSGT(), 3), (DiNNO(step=Plain(), rho=0.1), 1)])
def test_a_private_runs_messages_show_what_the_oracle_answered(rule, target):
    agents, trials, graph = 5, 2, ring(5)
    recording, messages = Recording(rule), []

    def model():
        return tacit.models.logistic((1, 8, 8), 10)

    settings = {"graph": graph, "rounds": 8, "lr": 0.1}
    results = tacit.train_trials(
        trials,
        recording,
        model=model,
        data=tacit.data.load("digits").split(agents, tacit.data.ByClass(t=0.5), seed=0),
        privacy=tacit.Privacy(noise_multiplier=2.0, delta=1e-5, clip=1.0, lot_size=32),
        taps=[messages.append],
        compile=False,
        sources=tacit.Fast(0),
        **settings,
    )
    view = Responses.of(rule, **settings).view([0, 2])
    theta = make_starts(results[0].model, model, seed=0, trials=trials, agents=agents, same_start=True)
    models = torch.cat([result.theta for result in results])
    found = view.recover(target) @ view.arrange(messages, theta, models=models)
    answers = torch.stack(recording.answers).unflatten(1, (trials, agents))[:, :, target].transpose(0, 1).double()
    error = float((found - answers).norm() / answers.norm())
    print(f"{type(rule).__name__}: relative error {error:.1e}")
    assert view.exact(target).all()
    assert error < 1e-4
    u = torch.randn(answers.shape[-1], 1)
    projected = view.arrange([[x @ u for x in sent] for sent in messages], theta @ u, models=models @ u)
    true = answers @ u.double()
    assert float((view.recover(target) @ projected - true).norm() / true.norm()) < 1e-4


# Refusals


@dataclass(frozen=True)
class Odd:
    """DSGD with something done to what is sent, or to what is mixed."""

    kind: str

    def init(self, theta):
        return DSGD().init(theta)

    def round(self, state, at):
        theta, gradient = state.theta, at.gradient(state.theta)
        sent = {
            "norm": lambda: theta / (1 + theta.norm(dim=1, keepdim=True)),
            "sign": theta.sign,
            "mask": lambda: theta * (at.chance(theta.shape[1]) < 0.5),
            "shift": lambda: theta + 1,
            "other coordinate": lambda: theta.roll(1, dims=1),
            "scalar": lambda: theta.sum(dim=1, keepdim=True).repeat(1, 2),
            "sleep": lambda: theta * (0.5 + at.chance(1)),
        }[self.kind]()
        mixed = at.exchange(sent).mix()
        return state._replace(theta=(theta if self.kind == "scalar" else mixed) - at.lr * gradient)


@pytest.mark.parametrize("kind", ["norm", "sign", "mask", "shift", "other coordinate", "scalar"])
def test_a_rule_that_is_not_linear_is_refused(kind):
    with pytest.raises(NotLinear, match=kind):
        Responses.of(Odd(kind), ring(5), rounds=4, lr=0.1)


@pytest.mark.parametrize("rule", [DiNNO(), DSGD(step=Adam())], ids=["dinno", "dsgd"])
def test_adam_is_not_linear(rule):
    with pytest.raises(NotLinear, match="Adam"):
        Responses.of(rule, ring(5), rounds=4, lr=0.1)


def test_public_chance_is_followed_in_a_single_trial():
    play = Play(Odd("sleep"), ring(4))
    view = play.responses().view([0, 2])
    same(play.arranged(view)[0], view.matrix @ torch.stack(play.answers).transpose(0, 1).flatten(0, 1))
    with pytest.raises(InvalidInput, match="public randomness"):
        Play(Odd("sleep"), ring(4), trials=2).arranged(view)


def test_what_does_not_fit_is_refused(monkeypatch):
    found = Responses.of(DSGD(), ring(6), rounds=4, lr=0.1)
    with pytest.raises(InvalidInput, match="GiB"):
        Responses.of(DSGD(), ring(1000), rounds=1000, lr=0.1)
    monkeypatch.setattr(responses, "_MOST_BYTES", 40_000)
    found.view([0])
    with pytest.raises(InvalidInput, match="30 messages seen"):
        found.view([0, 3])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"observers": []}, "at least one agent"),
        ({"observers": [6]}, "from 0 to 5"),
        ({"observers": [-1]}, "from 0 to 5"),
        ({"noise": [1.0, 2.0]}, "each of 6 agents"),
        ({"noise": [1.0] * 5 + [0.0]}, "positive"),
        ({"rounding": 0.0}, "between 0 and 1"),
    ],
)
def test_impossible_views_are_refused(changes, said):
    with pytest.raises(InvalidInput, match=said):
        Responses.of(DSGD(), ring(6), rounds=2, lr=0.1).view(**({"observers": [0]} | changes))


def test_a_run_of_another_shape_is_refused():
    play = Play(DSGT(), ring(5), rounds=3)
    view = play.responses().view([0])
    for broken, said in [
        ({"messages": play.messages[:-1]}, "2 exchanges do not match the 3"),
        ({"models": None}, "final=True"),
        ({"starts": play.starts[:3]}, "3 rows for 5 agents"),
        ({"answers": play.answers}, "answers=False"),
    ]:
        given = {"messages": play.messages, "starts": play.starts, "models": play.models} | broken
        with pytest.raises(InvalidInput, match=said):
            view.arrange(**given)
    with pytest.raises(InvalidInput, match="target is 5"):
        view.information(5)
    with pytest.raises(InvalidInput, match="rate 0"):
        view.shift(1, rate=0, noise=1.0)
    with pytest.raises(InvalidInput, match="queries"):
        replace(view, answers=True).arrange(play.messages, play.starts, models=play.models, answers=[])
