"""PATE between agents: every agent's teachers label public records by noisy votes, and students learn from the labels and gossip.

    labels = votes of the agent's teachers, asked once;   θ⁺ = Wθ − η·step(∇ of the mean loss on the agent's labelled records)

Papernot et al., *Scalable Private Learning with PATE*, ICLR 2018 (Confident-GNMax), with students that mix their models as DSGD does. A run
makes one query of each agent, in its first round. From then on labels are public, and so is everything that students do: rounds are free.

Source: the public analysis by its authors (`pate_2018/core.py` in tensorflow/privacy) has √2 for votes and 1 for the threshold, as `tacit.privacy.votes` has. All
checks come before all answers here, so that a query is one charge; students who gossip are ours.

Teachers are trained where the records are and never leave. Votes need evenly divided data: the teachers of an agent that has records of a few
classes know nothing of the others, and label them wrong with confidence.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tacit.algorithms.interface import At, Stacked
from tacit.algorithms.lossy import mix_inbox
from tacit.algorithms.steps import Plain, Step, descend
from tacit.errors import InvalidInput
from tacit.networks.codecs import DENSE, Codec

_UNASKED = -1.0


class PATEState(NamedTuple):
    """The students, their labels of the public records (negative where there is none), and what the step carries."""

    theta: Stacked
    labels: Stacked
    step: Any


@dataclass(frozen=True, kw_only=True)
class PATE:
    """Students that learn from noisy votes of teachers.

    records: how many public records teachers are asked about; they are taken from the validation records, which are scored without them.
    answers: how many of them each agent labels at most.
    teachers: how many each agent trains, each on its own part of the agent's records.
    threshold: the share of teachers that must agree, apart from noise.
    caution: the share of the privacy loss that is spent on finding out whether they agree.
    teacher_steps: steps of gradient descent by which a teacher is trained.
    teacher_lr: the size of these steps.
    """

    teachers: int = 20
    records: int = 80
    answers: int = 40
    threshold: float = 0.6
    caution: float = 0.25
    teacher_steps: int = 100
    teacher_lr: float = 0.5
    step: Step = Plain()
    codec: Codec = DENSE

    def __post_init__(self) -> None:
        for name in ("teachers", "records", "answers", "teacher_steps"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("threshold", "caution"):
            if not 0 < getattr(self, name) < 1:
                raise InvalidInput(f"{name} is {getattr(self, name)}; it must lie between 0 and 1")
        if not self.teacher_lr > 0:
            raise InvalidInput(f"teacher_lr is {self.teacher_lr}; it must be positive")
        if self.answers > self.records:
            raise InvalidInput(f"answers is {self.answers}, and only {self.records} records are asked about")

    def init(self, theta: Stacked) -> PATEState:
        """Start at θ, without labels."""
        return PATEState(theta, theta.new_full((len(theta), self.records), _UNASKED), self.step.init(theta))

    def round(self, state: PATEState, at: At) -> PATEState:
        """Ask teachers in the first round; then mix and descend."""
        theta, labels, step = state
        inbox = at.exchange(theta, codec=self.codec)
        if at.round == 0:
            labels = at.vote(
                theta,
                teachers=self.teachers,
                records=self.records,
                answers=self.answers,
                threshold=self.threshold,
                caution=self.caution,
                steps=self.teacher_steps,
                lr=self.teacher_lr,
            )
        direction, step = self.step.step(step, at.labelled_gradient(theta, labels))
        mixed = mix_inbox(inbox, theta, codec=self.codec)
        return PATEState(descend(mixed, at.lr, direction), labels, step)
