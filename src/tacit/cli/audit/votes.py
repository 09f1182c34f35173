"""`tacit audit votes`: does a record show in labels by noisy votes of teachers more than is claimed?"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from tacit.cli.audit import options as of
from tacit.cli.audit.base import SingleAudit, SingleCase, check_bound
from tacit.cli.audit.folder import Document
from tacit.cli.audit.options import system
from tacit.errors import InvalidInput
from tacit.privacy.votes import Voting


@dataclass(frozen=True, kw_only=True)
class VotesAudit(SingleAudit):
    """Labels by votes of teachers, as PATE asks for them: does more leak than is claimed?

    The record is its teacher's only one and decides that teacher's vote on every public record; the other teachers are divided evenly. The
    attacker sees the labels of one query.

    Exit code 1 means that the claim is broken.

    Example: tacit audit votes --teachers 10 --records 20 --answers 8 --runs 2000
    """

    kind: ClassVar[str] = "votes"
    teachers: Annotated[int, system("N", "Teachers of the agent.", min=2)] = 10
    records: Annotated[int, system("N", "Public records that they are asked about.", min=1)] = 20
    answers: Annotated[int, system("N", "At most how many of these get a label.", min=1)] = 8
    threshold: Annotated[float, system("SHARE", "The share of teachers that must agree, apart from noise.")] = 0.5
    caution: Annotated[float, system("SHARE", "The share of the privacy loss that is spent on this check.")] = 0.25
    epsilon: of.Epsilon = 1.0
    delta: of.Delta = 1e-2
    runs: of.Runs = 1000
    confidence: of.Confidence = 0.95

    def case(self) -> SingleCase:
        """Return the attack on one query."""
        from tacit.audit.attacks.collection import collect
        from tacit.audit.attacks.votes import VoteAttack
        from tacit.audit.bounds.findings import judge

        check_bound(self.runs, self.delta, self.confidence)
        if self.answers > self.records:
            raise InvalidInput(f"answers is {self.answers}, but only {self.records} records are asked about")
        names = ("epsilon", "delta", "teachers", "answers", "threshold", "caution")
        voting = Voting(**{name: getattr(self, name) for name in names})
        attack = VoteAttack(voting=voting, records=self.records)
        claim = attack.claim

        def play() -> Document:
            scores = collect(attack, self.runs, batch=self.runs)
            return judge(scores, claim, confidence=self.confidence).to_json()

        description = {
            "title": "Votes of teachers",
            "about": f"pate · {self.teachers} teachers · {self.records} public records · {self.answers} answers",
            "algorithm": "pate",
            "agents": 1,
            "graph": None,
            "target": 0,
            "saw": "The attacker sees the labels of one query, and which records get none. It knows all settings and the votes of all teachers but one.",
            "record": "The record is its teacher's only one; without it, this teacher votes for another class on every public record. The other "
            "teachers are divided evenly, so that one vote counts most.",
        }
        return SingleCase(play=play, settings={}, description=description)
