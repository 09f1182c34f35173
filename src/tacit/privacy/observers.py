"""Who may try to learn about a record, and against whom ε is therefore stated: some curious agents, or everybody else together."""

from dataclasses import dataclass
from typing import Any

from tacit.errors import PrivacyError


@dataclass(frozen=True)
class Observer:
    """Against whom an ε holds: any `curious` agents who pool what they know, or everybody else (None)."""

    curious: int | None = None

    def __post_init__(self) -> None:
        if self.curious is not None and (type(self.curious) is not int or self.curious < 0):
            raise PrivacyError(
                f"curious is {self.curious!r}; it must be a whole number of agents, or None for all others"
            )

    @property
    def key(self) -> str:
        """Its form in JSON: the number of curious agents, or "all"."""
        return "all" if self.curious is None else str(self.curious)

    @staticmethod
    def of_key(key: Any) -> "Observer":
        """Read its form in JSON."""
        if type(key) is str and key == "all":
            return EVERYBODY
        if type(key) is str and key.isascii() and key.isdecimal() and len(key) <= 9:
            return Observer(int(key))
        raise PrivacyError(f"an observer is a number of curious agents, or 'all', not {str(key)[:80]!r}")

    def require_among(self, agents: int) -> None:
        """Raise unless each of this many agents has at least `curious` others."""
        if self.curious is not None and self.curious > agents - 1:
            raise PrivacyError(
                f"the observer is any {self.curious} other agents, but each of {agents} agents has only {agents - 1} others; give at most "
                f"{agents - 1}, or Observer() for all of them together"
            )

    def sees_no_more_than(self, other: "Observer") -> bool:
        """Return whether an ε against the other also holds against this one."""
        return other.curious is None or (self.curious is not None and self.curious <= other.curious)

    def __str__(self) -> str:
        if self.curious is None:
            return "everybody else together"
        if self.curious == 0:
            return "an observer of all messages without any agent's secrets"
        return "any one other agent" if self.curious == 1 else f"any {self.curious} other agents together"


EVERYBODY = Observer()


def observers_to_state(planned: Observer) -> tuple[Observer, ...]:
    """Return against whom ε is always stated: the planned observer and, if that is someone else, everybody else together."""
    return (EVERYBODY,) if planned == EVERYBODY else (planned, EVERYBODY)


def short_name(observer: Observer) -> str:
    """Name an observer in a table: any 1, any 2, everybody; or outsiders, who know no agent's secrets."""
    return {None: "everybody", 0: "outsiders"}.get(observer.curious, f"any {observer.curious}")
