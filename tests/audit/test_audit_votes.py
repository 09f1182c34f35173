"""The audit of votes passes sound teachers, whose noise is secret, and catches every planted fault. Faulty ones are seeded."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

import tacit
from tacit.audit.attacks import votes as attacks
from tacit.audit.attacks.collection import collect
from tacit.audit.bounds.findings import judge
from tacit.errors import InvalidInput
from tacit.privacy import teachers
from tacit.privacy.teachers import answer
from tacit.privacy.votes import Votes, Voting

RUNS = 400
VOTING = Voting(epsilon=2.0, delta=1e-3, teachers=10, answers=8, threshold=0.5)


def attack(sources=None, confidence=0.999, runs=RUNS):
    made = attacks.VoteAttack(voting=VOTING, records=20, sources=sources)
    return judge(collect(made, runs, batch=runs), made.claim, confidence=confidence)


@pytest.mark.parametrize("number", [10, 11, 2])
def test_the_record_moves_one_vote_of_the_leading_class_on_every_public_record(number):
    made = attacks.VoteAttack(voting=replace(VOTING, teachers=number), records=4)
    counts = []
    for present in (False, True):
        room = attacks._TeachersRoom(made.data(present=present), made.votes)
        counts.append(
            room._count(room._train_agent(0, room._start), made.data(present=True).dataset.train.table[:1].expand(4, 2))
        )
    ones = (number + 1) // 2
    assert counts[0].tolist() == [[number - ones, ones]] * 4
    assert counts[1].tolist() == [[number - ones - 1, ones + 1]] * 4


@pytest.mark.chance(1e-7)
def test_sound_votes_pass_and_the_claim_is_what_is_charged():
    findings = attack(confidence=1 - 1e-7, runs=1000)  # with which every fault below is caught, too
    assert findings.claim.epsilon == pytest.approx(2.0, rel=1e-2)
    assert findings.verdict == "no violation found"


def leave_thresholds_uncharged(patch):
    """Answers alone are charged, and checks have the noise of a single one that nobody pays for."""
    patch.setattr(Votes, "multiplier", property(lambda self: self.answer_noise / math.sqrt(2 * self.answers)))
    planned = Voting.votes
    patch.setattr(Voting, "votes", lambda self, *given: replace(planned(self, *given), threshold_noise=1.0))


def check_without_noise(patch):
    patch.setattr(
        teachers, "answer", lambda counts, votes, stream: answer(counts, replace(votes, threshold_noise=1e-3), stream)
    )


def charge_one_answer(patch):
    """The noise is that of one answer, and up to eight are given."""
    planned = Voting.votes

    def votes(self, *given):
        right = planned(self, *given)
        return replace(right, answer_noise=right.answer_noise / math.sqrt(right.answers))

    patch.setattr(Voting, "votes", votes)
    patch.setattr(
        Votes,
        "multiplier",
        property(lambda self: 1 / math.sqrt(self.records / self.threshold_noise**2 + 2 / self.answer_noise**2)),
    )


def show_the_record_to_every_teacher(patch):
    """The last record, which is the canary where there is one, is dealt to a teacher and copied to all others."""
    train = attacks._TeachersRoom._train_agent

    def shared(self, agent, start):
        made = train(self, agent, start)
        taught = max(made, key=lambda theta: float(theta.abs().sum()))
        return [taught] * len(made) if len(self._data.indices[0]) > 5 else made

    patch.setattr(attacks._TeachersRoom, "_train_agent", shared)


@pytest.mark.parametrize(
    "plant",
    [leave_thresholds_uncharged, check_without_noise, charge_one_answer, show_the_record_to_every_teacher],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_fault_is_caught(plant, monkeypatch):
    plant(monkeypatch)
    findings = attack(tacit.Seeded(3))
    assert findings.verdict == "broken", findings.to_json()["thresholds"]


def test_scores_are_log_likelihood_ratios():
    """Over all outcomes of two records and one answer, probabilities add up to one, and the mean of exp(score) without the record is one."""
    made = attacks.VoteAttack(voting=replace(VOTING, answers=1), records=2)
    votes = made.votes
    outcomes = np.array([[-1, -1], [0, -1], [1, -1], [-1, 0], [-1, 1]])
    ratio = made._log_ratio(outcomes, without=5)
    passing = norm.cdf((5 - votes.threshold) / votes.threshold_noise)
    chance = np.array([(1 - passing) ** 2, *[passing / 2] * 2, *[(1 - passing) * passing / 2] * 2])
    assert chance.sum() == pytest.approx(1)
    assert (chance * np.exp(ratio)).sum() == pytest.approx(1)


def test_one_teacher_is_too_few():
    with pytest.raises(InvalidInput, match="teachers is 1"):
        attacks.VoteAttack(voting=replace(VOTING, teachers=1), records=4)
