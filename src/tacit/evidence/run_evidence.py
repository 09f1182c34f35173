"""Everything that a run's files and the ledger say about it, as the checks of this package read it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tacit.privacy import Account, Ledger
from tacit.privacy.accounting import FOURIER_SHARE
from tacit.runs.event_types import PlanEvent
from tacit.runs.events import Events
from tacit.runs.python_config import AnyConfig

ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class RunEvidence:
    """Everything that a run's files and the ledger say about it."""

    name: str
    config: AnyConfig
    events: Events
    plan: PlanEvent
    ledger: Ledger
    account: Account | None
    token: str | None
    anchors: tuple[str, ...]
    """Heads of the run's events that were written into the ledger, oldest first."""
    rows: Sequence[str]
    """The hashes of all rows of the ledger."""
    summary: dict[str, Any] | None
    checkpoint: bytes | None
    agreement: dict[str, Any] | None = None
    """What all members of a run between peers agreed on, in the folder of one of them."""
    running: bool = False
    """Whether a process is still working on it, so that some files may be newer than others."""

    @property
    def rounding(self) -> float:
        """How far, relatively, ε that was computed on another machine may be from the one that follows here."""
        charged = 0 if self.account is None else self.account.charged
        return ROUNDING if self.plan.delta is None else max(ROUNDING, FOURIER_SHARE * charged / self.plan.delta)


def short(value: Any) -> str:
    """Return a value as a text of at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
