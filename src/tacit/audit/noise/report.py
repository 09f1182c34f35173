"""What was found about the noise, as data for a file, a page or a terminal."""

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from tacit.privacy import Privacy, accounting
from tacit.privacy.event import Event
from tacit.privacy.rounding import Discrete

NoiseVerdict = Literal["as stated", "not as stated"]

TESTS = {
    "sigma": ("size of the noise", "the noise does not have the stated size"),
    "shape": ("shape of the noise", "the noise is not normal, or not of the stated size"),
    "tail": ("largest noise of all", "the largest noise is too large or too small"),
    "lag": ("a round and the next", "the noise of one round is correlated with that of the round before"),
    "rounds": ("rounds of one run", "the rounds of a run have noise in common"),
    "trials": ("one run and another", "different runs have noise in common"),
    "shifts": ("every lag and shift", "noise occurs again, shifted along an axis or to another query"),
    "rate": ("share of records drawn", "records are not drawn at the stated rate"),
    "lots": ("how lot sizes vary", "lot sizes do not vary as those of Poisson lots do"),
    "sum": (
        "sum of all agents' noise",
        "masks do not cancel in the sum of the agents' answers, or own noise is not as stated",
    ),
    "agents": ("two agents", "agents have noise in common"),
    "repeats": ("noise used twice", "the same noise was used twice"),
}
"""What each test compares, and what it means when it fails."""

# ε takes too long to compute for less noise than this; the ε of this much noise is reported instead, which is smaller.
_LEAST_NOISE, _LEAST_RATE = 0.05, 1e-9


@dataclass(frozen=True, kw_only=True)
class NoiseTest:
    """One test: the probability of data at least as far off, for a system that is as stated."""

    name: str
    agents: tuple[int, ...]
    p_value: float


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A stated value and its estimate from the runs. The interval has the confidence of the verdict."""

    stated: float
    estimate: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class NoiseEpsilon:
    """The accountant's ε at the stated σ and q, at their estimates, and at the ends of the intervals that favour the system most.

    The noise is assumed normal and independent, whatever the other tests say. Where it is less than a twentieth of the clipping
    norm, this is the ε of a twentieth, and the true one is larger.
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
    def epsilon(self) -> NoiseEpsilon:
        """The ε that follows from them."""
        return NoiseEpsilon(
            stated=self._epsilon(self.sigma.stated, self.rate.stated),
            estimate=self._epsilon(self.sigma.estimate, self.rate.estimate),
            at_least=self._epsilon(self.sigma.high, self.rate.low),
            delta=self.privacy.delta,
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data; an infinite ε is null."""
        epsilon = {key: value if math.isfinite(value) else None for key, value in asdict(self.epsilon).items()}
        return {"agent": self.agent, "sigma": asdict(self.sigma), "rate": asdict(self.rate), "epsilon": epsilon}

    def _epsilon(self, sigma: float, rate: float) -> float:
        rate, sigma, privacy = min(max(rate, _LEAST_RATE), 1.0), max(sigma, _LEAST_NOISE), self.privacy
        discrete = isinstance(privacy.noise, Discrete)
        event = Event(sample_rate=rate, noise_multiplier=sigma, count=self.queries, discrete=discrete)
        return accounting.epsilon(
            [event], delta=privacy.delta, accountant=privacy.accountant, adjacency=privacy.adjacency
        )


@dataclass(frozen=True, kw_only=True)
class NoiseReport:
    """All results. One fault may fail several tests, since each assumes that everything else is as stated.

    false_alarm: the highest probability that a system that is as stated fails any test.
    """

    trials: int
    queries: int
    false_alarm: float
    agents: tuple[AgentNoise, ...]
    checks: tuple[NoiseTest, ...]

    @property
    def threshold(self) -> float:
        """The p-value below which a test fails: all tests share the false-alarm rate (Bonferroni)."""
        return self.false_alarm / len(self.checks)

    @property
    def failed(self) -> tuple[NoiseTest, ...]:
        """The tests that failed."""
        return tuple(check for check in self.checks if check.p_value < self.threshold)

    @property
    def verdict(self) -> NoiseVerdict:
        """Whether any test failed."""
        return "not as stated" if self.failed else "as stated"

    def agent(self, number: int) -> AgentNoise:
        """Return the results of one agent."""
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
                {"name": check.name, "agents": list(check.agents), "meaning": TESTS[check.name][1]}
                for check in self.failed
            ],
        }
