"""A rule is played in one way, on whichever links, and what it says is counted as it travels."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import nn

import tacit
from tacit.data import AgentData
from tacit.errors import BudgetExceeded, InvalidInput, RuleError
from tacit.networks import Moving, RandomMatchings, Several, TopK, base_graphs, one_peer_exponential
from tacit.training import counting
from tacit.training.chance import chance, shared_chance
from tacit.training.counting import rows_to_check

AGENTS, WIDTH = 5, 6


class OnlyTheta(NamedTuple):
    theta: torch.Tensor


@dataclass(frozen=True)
class Sparse:
    """Sends the largest hundredth of θ."""

    def init(self, theta):
        return OnlyTheta(theta)

    def round(self, state, at):
        gradient = at.gradient(state.theta)
        inbox = at.exchange(state.theta, codec=TopK(0.01))
        return OnlyTheta(state.theta + inbox.mix() - inbox.own - at.lr * gradient)


@dataclass(frozen=True)
class Structured(Sparse):
    """Looks at the largest three hundred numbers, at values, and at the weights of a layer as a matrix."""

    def round(self, state, at):
        largest = state.theta.abs().topk(300, dim=1).values
        layer = state.theta[:, : 40 * WIDTH].reshape(-1, 40, WIDTH)
        if float(largest.max()) < 0 or len(layer) != len(state.theta):
            return state
        return super().round(state, at)


@dataclass(frozen=True)
class BestNeighbor:
    """Takes over a neighbour's model where it does better on public records."""

    def init(self, theta):
        return OnlyTheta(theta)

    def round(self, state, at):
        theta = state.theta - at.lr * at.gradient(state.theta)
        mixed = at.exchange(theta).mix()
        better = at.public_loss(mixed) < at.public_loss(theta)
        return OnlyTheta(torch.where(better[:, None], mixed, theta))


def data(validation=True):
    chance = torch.Generator().manual_seed(0)
    parts = [(torch.randn(40, WIDTH, generator=chance), torch.arange(40) % 3) for _ in range(AGENTS)]
    held_out = (torch.randn(30, WIDTH, generator=chance), torch.arange(30) % 3) if validation else None
    return AgentData.from_parts(parts, name="made", classes=3, validation=held_out)


def settings(**changes):
    return {
        "data": data(),
        "model": lambda: nn.Sequential(nn.Linear(WIDTH, 40), nn.Tanh(), nn.Linear(40, 3)),
        "privacy": tacit.Privacy(noise_multiplier=1.0, delta=1e-5, clip=1.0, lot_size=10),
        "graph": tacit.graphs.ring(AGENTS),
        "rounds": 6,
        "lr": 0.1,
        "sources": tacit.Seeded(1),
    } | changes


@pytest.mark.parametrize("rule", [Sparse(), Structured(), tacit.DSGT()], ids=["sparse", "structured", "dsgt"])
def test_bytes_are_counted_beforehand_as_they_are_sent(rule):
    training = tacit.Training(algorithm=rule, **settings())
    with tacit.Session(training) as session:
        while not session.finished:
            session.advance()
        assert session.cost.bytes_sent.tolist() == session.network.bytes_sent.tolist()
        kept = -(-session.model.size // 100)
        each = 2 * session.model.size * 4 if isinstance(rule, tacit.DSGT) else kept * 8
        assert session.network.bytes_sent.tolist() == [6 * 2 * each] * AGENTS


@pytest.mark.parametrize(
    ("agents", "trials", "width", "checked"),
    [
        (10, 1, 38_424, (10, 1)),
        (10_000, 1, 9_910, (423, 1)),
        (3, 100, 38_424, (3, 36)),
        (1, 50, 2**30, (1, 2)),
        (5, 4, 2**30, (2, 1)),
    ],
)
def test_large_systems_are_checked_by_some_of_their_rows(agents, trials, width, checked):
    assert rows_to_check(agents, trials, width) == checked


@dataclass(frozen=True)
class Telepathic(Sparse):
    """Reads the rows of others."""

    def round(self, state, at):
        return OnlyTheta(state.theta.mean(0) - at.lr * at.gradient(state.theta))


@pytest.mark.parametrize("trials", [1, 3])
def test_some_rows_have_step_sizes_of_their_own_and_show_a_rule_that_mixes_them(monkeypatch, trials):
    monkeypatch.setattr(counting, "_MOST_NUMBERS", 1)
    changes = settings(lr=[0.1, 0.2, 0.3, 0.4, 0.5] * trials, rounds=2)
    assert len(tacit.train_trials(trials, Structured(), **changes)) == trials
    with pytest.raises(InvalidInput, match=r"Telepathic.round lets an agent read another's row without an exchange"):
        tacit.train_trials(trials, Telepathic(), **changes)


@pytest.mark.parametrize(
    "links",
    [
        RandomMatchings(AGENTS),
        one_peer_exponential(AGENTS),
        base_graphs(AGENTS),
        Several(base_graphs(AGENTS), 5),
        Moving(AGENTS, reach=0.9),
    ],
    ids=["matchings", "one peer", "base", "several", "moving"],
)
def test_a_run_may_have_links_that_change(links):
    one, two = (tacit.train(tacit.DSGT(), **settings(graph=links)) for _ in range(2))
    assert torch.equal(one.theta, two.theta)
    assert not torch.equal(one.theta, tacit.train(tacit.DSGT(), **settings()).theta)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"graph": RandomMatchings(4)}, "the topology is for 4 agents, but the data has 5"),
        ({"graph": RandomMatchings(5), "mixing": "uniform"}, "but a topology has its own; leave it out"),
        ({"graph": Moving(5, reach=0.01)}, "hear nothing of each other"),
        ({"graph": [3]}, "graph is a list; give a networkx graph .* or a list with one for each trial"),
        ({"graph": RandomMatchings}, "graph is a type; give a networkx graph"),
    ],
)
def test_links_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(InvalidInput, match=message):
        tacit.train(tacit.DSGD(), **settings(**{"rounds": 30} | changes))


def test_a_rule_may_rank_by_public_losses_at_no_cost():
    result = tacit.train(BestNeighbor(), **settings())
    assert result.plan.queries == 6
    with pytest.raises(InvalidInput, match="no validation records"):
        tacit.train(BestNeighbor(), **settings(data=data(validation=False)))


def test_values_added_up_in_any_order_differ_by_rounding_alone():
    graph = tacit.graphs.complete(AGENTS)
    ours, theirs = (tacit.train(tacit.DSGD(), **settings(graph=graph, any_order=each)) for each in (False, True))
    torch.testing.assert_close(ours.theta, theirs.theta, rtol=0, atol=1e-5)


def test_a_session_goes_on_where_another_was():
    training = tacit.Training(algorithm=tacit.DSGT(), **settings())
    with tacit.Session(training) as whole, tacit.Session(training) as first:
        while not whole.finished:
            whole.advance()
        for _ in range(3):
            first.advance()
        saved = first.state_dict()
    with tacit.Session(training) as second:
        second.load_state_dict(saved)
        second.restore_histories(first.monitor.histories)
        assert (second.round, second.oracle.queries) == (3, 3)
        while not second.finished:
            second.advance()
        assert torch.equal(second.state.theta, whole.state.theta)
        assert second.network.bytes_sent.tolist() == whole.network.bytes_sent.tolist()
        (one,), (other,) = second.results(), whole.results()
        assert [look.round for look in one.history] == [look.round for look in other.history]
        assert one.history[0] is first.monitor.histories[0][0]


def test_public_chance_follows_from_seed_round_agent_and_draw():
    def rows(*agents, seed=3, round=2, draw=0):
        return chance(seed, agents, round, draw, (1000,), torch.float64)

    together = rows(0, 1, 2)
    assert torch.equal(together[1:2], rows(1))
    others = [rows(0, seed=4), rows(0, round=3), rows(0, draw=1), rows(1), rows(2)]
    for other in others:
        assert (
            abs(float(torch.corrcoef(torch.cat([together[:1], other]))[0, 1])) < 0.16
        )  # 5 deviations: once in a million
    assert torch.equal(shared_chance(3, 2, 0, (5,), torch.float32), shared_chance(3, 2, 0, (5,), torch.float32))
    assert float(together.mean()) == pytest.approx(0.5, abs=0.027)
    assert bool(((together >= 0) & (together < 1)).all())


@dataclass(frozen=True)
class NoState(Sparse):
    def init(self, theta):
        return theta


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.layer(x), x


def test_what_is_no_state_or_no_output_is_named():
    with pytest.raises(InvalidInput, match=r"NoState.init must return a state whose theta .* a state without theta"):
        tacit.train(NoState(), **settings())
    with pytest.raises(InvalidInput, match="returns a tuple; it must return one tensor"):
        tacit.train(tacit.DSGD(), **settings(model=Pair))


def test_links_that_join_nobody_are_refused_in_a_run_shorter_than_their_window():
    with pytest.raises(InvalidInput, match=r"window=100"):
        tacit.train(tacit.DSGD(), **settings(graph=Moving(AGENTS, reach=0.01), rounds=3))


def test_models_that_are_not_finite_have_no_accuracy_and_are_reported_once(caplog):
    result = tacit.train(tacit.DiNNO(), **settings(lr=1e38, evaluate_every=1))
    assert all(math.isnan(value) for value in result.history[-1].accuracy)
    assert [each for each in caplog.messages if "not been finite" in each] == [
        "the agents' models have not been finite since round 2 or before; try a smaller lr"
    ]


@dataclass(frozen=True)
class FailsOnNumbers(Sparse):
    """Can be counted on shapes alone, and not be begun."""

    def init(self, theta):
        if not theta.is_meta and theta.shape[0] == AGENTS and theta.shape[1] > 256:
            raise RuntimeError("no room")
        return OnlyTheta(theta)


def test_a_rule_that_cannot_begin_leaves_no_account_open():
    ledger = tacit.Ledger()
    with pytest.raises(RuleError, match=r"FailsOnNumbers\.init failed: RuntimeError: no room"):
        tacit.train(FailsOnNumbers(), **settings(ledger=ledger))
    assert ledger.accounts == ()  # one that has asked nothing is not kept


@dataclass(frozen=True)
class Slips(Sparse):
    """Has a mistake in `init`, or in some round; where `answered`, one that comes out only with answers."""

    method: str = "round"
    answered: bool = False
    raises: BaseException | None = None

    def init(self, theta):
        return self._slip(theta) if self.method == "init" else OnlyTheta(theta)

    def round(self, state, at):
        answer = at.gradient(state.theta)
        if self.method == "round" and at.round == 2 and (not self.answered or float(answer.abs().max()) > 0):
            return self._slip(state.theta)
        return OnlyTheta(state.theta - at.lr * answer)

    def _slip(self, theta):
        if self.raises is not None:
            raise self.raises
        return torch.einsum("ab->c", theta)  # fails in a file of torch's


LINE = Slips._slip.__code__.co_firstlineno + 3


@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize(
    ("rule", "where", "rehearsed"),
    [
        (Slips("init"), "Slips.init failed: ", True),
        (Slips(), "Slips.round failed in round 3 of 6 (at.round is 2): ", True),
        (Slips(answered=True), "Slips.round failed in round 3 of 6 (at.round is 2): ", False),
    ],
)
def test_a_slip_in_ones_own_rule_names_rule_method_round_file_and_line(rule, where, rehearsed, averaged):
    with pytest.raises(RuleError) as caught:
        tacit.train(tacit.Averaged(rule) if averaged else rule, **settings())
    said = str(caught.value)
    assert said.startswith(f"{where}RuntimeError: einsum()")
    assert f"(test_rounds.py, line {LINE})" in said, "not a line of torch's"
    assert (
        said.endswith("This was a rehearsal with made-up answers, which counts its queries; no data was asked")
        == rehearsed
    )
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("raised", [InvalidInput("mine"), BudgetExceeded("mine"), KeyboardInterrupt(), MemoryError()])
def test_what_tacit_raises_on_purpose_an_interrupt_and_a_full_memory_are_not_blamed_on_a_rule(raised):
    for answered in (False, True):
        with pytest.raises(type(raised)) as caught:
            tacit.train(Slips(answered=answered, raises=raised), **settings())
        assert caught.value is raised


def test_an_error_within_a_shipped_rule_is_no_slip_of_the_users():
    def broken(*message):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tacit.train(tacit.DSGT(), **settings(taps=[broken]))


@dataclass(frozen=True)
class Masked(Sparse):
    """Is written for models of one size."""

    width: int

    def round(self, state, at):
        return OnlyTheta(state.theta - at.lr * at.gradient(state.theta) * torch.ones(self.width))


def test_a_rule_may_be_written_for_models_of_one_size():
    width = sum(each.numel() for each in settings()["model"]().parameters())
    assert width > 256
    assert tacit.train(Masked(width=width), **settings()).history[-1].round == 6
    with pytest.raises(RuleError, match="must match the size of tensor b"):
        tacit.train(Masked(width=width + 1), **settings())
