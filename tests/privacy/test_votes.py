"""Votes of teachers: who votes for what, what one record can change, what is charged, and the noise of thresholds and answers."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import binom, norm

import tacit
from tacit.data.guards import chance_state, restore_chance
from tacit.errors import BudgetExceeded, DataError, InvalidInput, PrivacyError
from tacit.privacy import Budget, Ledger, Mechanism
from tacit.privacy.groups import group_key, group_records
from tacit.privacy.mechanisms import vote_mechanism
from tacit.privacy.teachers import NO_ANSWER, VoteOracle, answer, students_data
from tacit.privacy.votes import Votes, Voting

AGENTS, TEACHERS, RECORDS = 2, 7, 12
VOTES = Votes(teachers=100, records=40, answers=15, threshold=60.0, threshold_noise=90.0, answer_noise=30.0)
FALSE_ALARM = 1e-7


def gaussian_epsilon(mu, delta):
    """ε of a Gaussian mechanism with this ratio of sensitivity to noise, by the exact formula of Balle & Wang (2018)."""
    return brentq(
        lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta, 0, 50 * mu * (1 + mu)
    )


def make_data(extra=None):
    made = tacit.data.synthetic(records=80, features=4, classes=3, held_out=40, seed=3)
    if extra is not None:
        inputs, targets = torch.cat([made.train.table, extra]), torch.cat([made.train.targets, torch.tensor([0])])
        made = replace(made, train=tacit.data.Records(inputs, targets))
    held = [torch.arange(0, 40), torch.arange(40, len(made.train))]
    return tacit.data.AgentData(dataset=made, indices=tuple(held), owners=("one", "two"), partition="halves")


def make_oracle(data=None, *, ledger=None, name="votes", queries=1, model=None, **changes):
    torch.manual_seed(0)
    model = model or tacit.models.logistic((4,), 3)
    voting = Voting(**{"epsilon": 2.0, "delta": 1e-3, "teachers": TEACHERS, "answers": 8} | changes)
    settings = {"records": RECORDS, "queries": queries, "steps": 15, "sources": tacit.Seeded(5)}
    ledger = Ledger() if ledger is None else ledger
    return VoteOracle(data=data or make_data(), model=model, voting=voting, ledger=ledger, name=name, **settings)


def public(data):
    return data.dataset.validation.table[:RECORDS]


def count_votes(oracle):
    """Train every agent's teachers and return their votes, as the oracle does before it adds noise."""
    data = oracle._data
    teachers = [oracle._train_agent(agent, oracle._start) for agent in range(AGENTS)]
    ready = data.dataset.prepare(public(data))
    return teachers, [oracle._count(each, ready) for each in teachers]


def test_votes_are_those_of_teachers_trained_one_by_one():
    oracle, data = make_oracle(), make_data()
    _, counts = count_votes(oracle)
    for agent in range(AGENTS):
        rows = data.indices[agent]
        part = group_records(
            data.dataset.train.inputs, data.dataset.train.targets, rows.numpy(), TEACHERS, group_key(0)
        )
        expected = torch.zeros(RECORDS, 3, dtype=torch.int64)
        for teacher in range(TEACHERS):
            torch.manual_seed(0)
            module = tacit.models.logistic((4,), 3)
            own = data.dataset.train.take(rows[torch.from_numpy(part) == teacher])
            descent = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9)
            for _ in range(15):
                descent.zero_grad()
                torch.nn.functional.cross_entropy(module(data.dataset.prepare(own.inputs)), own.targets).backward()
                descent.step()
            chosen = module(data.dataset.prepare(public(data))).argmax(1)
            expected[torch.arange(RECORDS), chosen] += 1
        assert torch.equal(counts[agent], expected)


def test_one_record_more_changes_one_teacher_and_so_one_vote():
    """Which is what √2 for votes and 1 for the largest of them rest on."""
    more = make_data(extra=torch.tensor([[9.0, -9.0, 9.0, 9.0]]))
    before, counts = count_votes(make_oracle())
    after, others = count_votes(make_oracle(more))
    changed = [
        not torch.equal(a, b) for one, two in zip(before, after, strict=True) for a, b in zip(one, two, strict=True)
    ]
    assert sum(changed) == 1
    assert torch.equal(counts[0], others[0])
    moved = (counts[1] - others[1]).abs().sum(1)
    assert set(moved.tolist()) <= {0, 2}
    assert int((counts[1].max(1).values - others[1].max(1).values).abs().max()) <= 1


def test_a_record_that_replaces_another_changes_two_teachers_and_is_charged_for_both():
    """It may be dealt to another teacher than the one before it: twice the sensitivity, of thresholds and of answers."""
    changed = make_data()
    inputs = changed.dataset.train.table.clone()
    key, rows, targets = group_key(0), changed.indices[1], changed.dataset.train.targets
    before = group_records(inputs, targets, rows.numpy(), TEACHERS, key)
    for try_number in range(20):  # until the new record belongs to another teacher
        inputs[rows[0]] = torch.full((4,), 9.0 + try_number)
        after = group_records(inputs, targets, rows.numpy(), TEACHERS, key)
        if before[0] != after[0]:
            break
    replaced = replace(changed.dataset, train=tacit.data.Records(inputs, targets))
    found = [count_votes(make_oracle(each)) for each in (make_data(), replace(changed, dataset=replaced))]
    (teachers, others), (one, two) = ([each[place][1] for each in found] for place in (0, 1))
    moved = [not torch.equal(a, b) for a, b in zip(teachers, others, strict=True)]
    assert sum(moved) == 2
    assert int((one - two).abs().sum(1).max()) <= 4
    votes = Voting(epsilon=2.0, delta=1e-3, teachers=TEACHERS, answers=8, adjacency="replace_one").votes(RECORDS)
    mu = 2 * math.sqrt(votes.records / votes.threshold_noise**2 + 2 * votes.answers / votes.answer_noise**2)
    assert gaussian_epsilon(mu, 1e-3) == pytest.approx(2.0, rel=2e-3)


class Scaled(torch.nn.Module):
    """Divides by the largest input that it has seen in evaluation, and fails where its weights have become large."""

    def __init__(self, *, most=math.inf):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.most = torch.nn.Linear(4, 3), most
        self.register_buffer("top", torch.full((4,), 30.0))

    def forward(self, x):
        if not self.training:
            self.top = torch.maximum(self.top, x.detach().abs().amax(0))
        if float(self.layer.weight.detach().abs().max()) > self.most:
            raise ValueError("too large")
        return self.layer(x / self.top)


def test_what_a_model_remembers_in_evaluation_does_not_lead_to_the_next_teacher():
    more = make_data(extra=torch.full((1, 4), 1e4))
    before, counts = count_votes(make_oracle(model=Scaled()))
    after, others = count_votes(make_oracle(more, model=Scaled()))
    changed = [
        not torch.equal(a, b) for one, two in zip(before, after, strict=True) for a, b in zip(one, two, strict=True)
    ]
    assert sum(changed) == 1
    assert all(int((a - b).abs().max()) <= 1 for a, b in zip(counts, others, strict=True))


class Drawing(torch.nn.Module):
    """Adds numbers of Python's and numpy's generators in evaluation."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x):
        drawn = 0.0 if self.training else random.random() + float(np.random.randn())  # noqa: NPY002
        return self.layer(x) * (1 + drawn)


def test_random_numbers_of_one_teacher_do_not_lead_to_the_next():
    """The first teacher has no records without the additional one, so it draws nothing then."""
    key, kept, state = group_key(0), make_data(), chance_state()
    held = kept.indices[1]
    part = group_records(kept.dataset.train.inputs, kept.dataset.train.targets, held.numpy(), TEACHERS, key)
    few = replace(kept, indices=(kept.indices[0], held[torch.from_numpy(part) != 0]))
    found = []
    for data in (few, replace(few, indices=(few.indices[0], torch.cat([few.indices[1], held[part == 0][:1]])))):
        oracle = make_oracle(data, model=Drawing())
        restore_chance(state)
        found.append(count_votes(oracle)[0])
    changed = [not torch.equal(a, b) for one, two in zip(*found, strict=True) for a, b in zip(one, two, strict=True)]
    assert changed == [False] * TEACHERS + [True] + [False] * (TEACHERS - 1)


class RunningScale:
    """Divides by the largest number so far: one large record would change every teacher after it, and all public records."""

    largest = 0.0

    def __call__(self, inputs):
        self.largest = max(self.largest, float(inputs.abs().max()))
        return inputs / self.largest


def test_a_preparation_that_remembers_records_is_refused_before_anything_is_asked():
    data, ledger = make_data(), Ledger()
    remembering = replace(data, dataset=replace(data.dataset, prepare=RunningScale()))
    with pytest.raises(DataError, match="keeps state"):
        make_oracle(remembering, ledger=ledger)
    assert not ledger.accounts


def test_a_teacher_that_fails_on_public_records_votes_for_class_0_and_the_query_is_answered():
    oracle = make_oracle(model=Scaled(most=5.0))
    teachers = [torch.zeros_like(oracle._start) for _ in range(TEACHERS)]
    for each in teachers:
        each[-1] = 1.0  # a bias for class 2
    teachers[3][0] = 9.0
    counts = oracle._count(teachers, oracle._data.dataset.prepare(public(oracle._data)))
    assert counts.tolist() == [[1, 0, TEACHERS - 1]] * RECORDS
    oracle._teachers = [teachers] * AGENTS
    assert oracle.vote(public(oracle._data)).shape == (AGENTS, RECORDS)


def test_epsilon_of_a_query_is_that_of_an_independent_count():
    """Thresholds and answers, added up as squares of sensitivity over noise, and converted without an accountant."""
    ledger = Ledger()
    oracle = make_oracle(ledger=ledger, queries=3)
    for _ in range(3):
        oracle.vote(public(oracle._data))
    votes = oracle.votes
    one = votes.records / votes.threshold_noise**2 + votes.answers * math.sqrt(2) ** 2 / votes.answer_noise**2
    found = ledger.guarantee("one", delta=1e-3).epsilon
    assert found == pytest.approx(gaussian_epsilon(math.sqrt(3 * one), 1e-3), rel=2e-3)
    assert 1.98 < found <= 2.0


def test_thresholds_that_are_not_charged_are_caught(monkeypatch):
    """Planted: only answers are counted, as if a check that was failed had revealed nothing."""
    monkeypatch.setattr(Votes, "multiplier", property(lambda self: self.answer_noise / math.sqrt(2 * self.answers)))
    mu = math.sqrt(VOTES.records / VOTES.threshold_noise**2 + 2 * VOTES.answers / VOTES.answer_noise**2)
    charged = tacit.privacy.epsilon([vote_mechanism(VOTES).event(1)], delta=1e-3)
    assert charged < 0.95 * gaussian_epsilon(mu, 1e-3)


def test_a_query_is_charged_before_it_is_answered_and_none_is_given_beyond_the_plan():
    ledger = Ledger()
    oracle = make_oracle(ledger=ledger)
    labels = oracle.vote(public(oracle._data))
    assert labels.shape == (AGENTS, RECORDS)
    assert (oracle.account.spent, oracle.account.state) == (1, "finished")
    assert {line.mechanism for line in oracle.account.lines} == {vote_mechanism(oracle.votes)}
    with pytest.raises(BudgetExceeded):
        oracle.vote(public(oracle._data))
    with pytest.raises(InvalidInput, match="5 records were given to a query that was planned for 12"):
        make_oracle().vote(public(oracle._data)[:5])


def test_a_failure_is_charged_and_says_nothing(monkeypatch):
    oracle = make_oracle()
    monkeypatch.setattr(oracle, "_train_agent", lambda agent, start: 1 / 0)
    with pytest.raises(PrivacyError, match="The cause is withheld") as caught:
        oracle.vote(public(oracle._data))
    assert oracle.account.spent == 1
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_budget_admits_votes_by_their_epsilon():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-3))
    with pytest.raises(BudgetExceeded):
        make_oracle(ledger=ledger)
    assert make_oracle(ledger=ledger, epsilon=1.0).account.state == "open"


@pytest.mark.chance(3e-7)
def test_thresholds_and_answers_have_the_noise_that_is_charged():
    """All teachers agree on class 0 or none does; how often that passes, and is answered right, follows from the normal distribution.

    Each of three counts may be as rare as one in ten million.
    """
    votes = replace(VOTES, records=2000, answers=2000)
    (source,) = tacit.Secret().make(1)
    counts = torch.zeros(2000, 2, dtype=torch.int64)
    counts[:1000, 0], counts[1000:] = 100, 50
    labels = answer(counts, votes, source.next())
    passed = (labels != NO_ANSWER).split(1000)
    for each, height in zip(passed, (100, 50), strict=True):
        assert is_likely(int(each.sum()), 1000, norm.sf((60 - height) / 90))
    right = labels[:1000][passed[0]] == 0
    assert is_likely(int(right.sum()), len(right), norm.cdf(100 / (30 * math.sqrt(2))))


def is_likely(count, of, probability):
    return min(binom.cdf(count, of, probability), binom.sf(count - 1, of, probability)) > FALSE_ALARM / 2


def test_no_more_are_answered_than_were_planned():
    counts = torch.zeros(40, 2, dtype=torch.int64)
    counts[:, 1] = 100_000
    (source,) = tacit.Seeded(0).make(1)
    labels = answer(counts, VOTES, source.next())
    assert labels.tolist() == [1] * 15 + [NO_ANSWER] * 25


def test_votes_survive_json_and_invalid_ones_are_refused():
    mechanism = vote_mechanism(VOTES)
    document = mechanism.to_json()
    assert Mechanism.of_json(document) == mechanism
    assert document["noise"]["kind"] == "votes"
    for field, value in (("answers", 41), ("teachers", 2.5), ("answer_noise", 0.0), ("threshold", None)):
        with pytest.raises(PrivacyError):
            Mechanism.of_json(document | {"noise": document["noise"] | {field: value}})
    with pytest.raises(PrivacyError, match="rate, clip and lot are 1"):
        Mechanism.of_json(document | {"lot": 2.0})


def test_students_learn_from_labels_and_gossip_for_nothing():
    ledger, data = Ledger(), make_data()
    oracle = make_oracle(data, ledger=ledger, epsilon=50.0)
    labels = oracle.vote(public(data))
    learned = students_data(labels, public(data), data.dataset)
    assert learned.sizes == tuple(int((own != NO_ANSWER).sum()) for own in labels)
    settings = {"model": lambda: tacit.models.logistic((4,), 3), "graph": tacit.graphs.path(2), "rounds": 3, "lr": 0.5}
    tacit.train(
        tacit.DSGD(), data=learned, privacy=tacit.NoPrivacy(lot_size=1), ledger=ledger, name="students", **settings
    )
    assert ledger.guarantee("one", delta=1e-3).epsilon == pytest.approx(50.0, rel=1e-2)
    with pytest.raises(InvalidInput, match="agent 1 has no label"):
        students_data(torch.tensor([[1, 0], [NO_ANSWER, NO_ANSWER]]), public(data)[:2], data.dataset)
