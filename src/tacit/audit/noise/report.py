"""What was found about the noise, as data for a file, a page or a terminal."""

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from tacit.privacy import Privacy, accounting
from tacit.privacy.accounting import Event

Verdict = Literal["as stated", "not as stated"]

WORDS = {
    "sigma": "the noise has another size than stated",
    "shape": "the noise is not normal, or not of the stated size",
    "tail": "the largest noise is too large or too small",
    "lag": "the noise of one round goes with that of the round before",
    "rounds": "the rounds of a run have noise in common",
    "trials": "different runs have noise in common",
    "shifts": "noise occurs again, shifted along an axis or to another query",
    "rate": "records are drawn at another rate than stated",
    "lots": "the size of the lots varies otherwise than that of Poisson lots",
    "agents": "agents have noise in common",
    "repeats": "the same noise was used twice",
}
"""What it means for each check to fail."""

# ε of less noise than this takes too long to derive; that of so much is told instead, which is smaller.
_LEAST_NOISE, _LEAST_RATE = 0.05, 1e-9


@dataclass(frozen=True, kw_only=True)
class Check:
    """One test: the probability of data at least as far from what is stated, for a system that is as stated."""

    name: str
    agents: tuple[int, ...]
    p_value: float


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A stated value beside what the runs say of it. The interval is as sure as the verdict is."""

    stated: float
    estimate: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Spent:
    """The accountant's ε at the stated σ and q, at their estimates, and at the ends that favour the system most.

    The noise is taken as normal and independent, whatever the other checks say. Where the noise is less than a twentieth
    of the clipping norm, this is the ε of a twentieth, and the true one is larger still.
    """

    stated: float
    estimate: float
    at_least: float
    delta: float


@dataclass(frozen=True, kw_only=True)
class AgentNoise:
    """One agent's noise and lots: σ and q."""

    agent: int
    sigma: Estimate
    rate: Estimate
    queries: int
    privacy: Privacy

    @cached_property
    def epsilon(self) -> Spent:
        """What they mean for ε."""
        return Spent(
            stated=self._spent(self.sigma.stated, self.rate.stated),
            estimate=self._spent(self.sigma.estimate, self.rate.estimate),
            at_least=self._spent(self.sigma.high, self.rate.low),
            delta=self.privacy.delta,
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data; an infinite ε is null."""
        epsilon = {key: value if math.isfinite(value) else None for key, value in asdict(self.epsilon).items()}
        return {"agent": self.agent, "sigma": asdict(self.sigma), "rate": asdict(self.rate), "epsilon": epsilon}

    def _spent(self, sigma: float, rate: float) -> float:
        event = Event(
            sample_rate=min(max(rate, _LEAST_RATE), 1.0), noise_multiplier=max(sigma, _LEAST_NOISE), count=self.queries
        )
        privacy = self.privacy
        return accounting.epsilon(
            [event], delta=privacy.delta, accountant=privacy.accountant, adjacency=privacy.adjacency
        )


@dataclass(frozen=True, kw_only=True)
class NoiseReport:
    """All that was found. One fault may fail several checks, since each takes all else to be as stated.

    false_alarm: the probability that a system which is as stated fails any of the checks, at most.
    """

    trials: int
    queries: int
    false_alarm: float
    agents: tuple[AgentNoise, ...]
    checks: tuple[Check, ...]

    @property
    def threshold(self) -> float:
        """The p-value below which a check fails: the false-alarm rate is shared among all of them (Bonferroni)."""
        return self.false_alarm / len(self.checks)

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.p_value < self.threshold)

    @property
    def verdict(self) -> Verdict:
        """Whether noise and lots are as stated, as far as can be seen."""
        return "not as stated" if self.failed else "as stated"

    def agent(self, number: int) -> AgentNoise:
        """Return what was found about one agent."""
        return next(each for each in self.agents if each.agent == number)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "verdict": self.verdict,
            "false_alarm": self.false_alarm,
            "threshold": self.threshold,
            "trials": self.trials,
            "queries": self.queries,
            "agents": [each.to_json() for each in self.agents],
            "checks": [{**asdict(check), "agents": list(check.agents)} for check in self.checks],
            "failed": [
                {"name": check.name, "agents": list(check.agents), "meaning": WORDS[check.name]}
                for check in self.failed
            ],
        }
