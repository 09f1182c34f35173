"""Errors for the person who sees them: what was wrong, the value, what would be right.

Everything that Tacit raises on purpose is a `TacitError`, so that a caller can distinguish a mistake in
the input from a defect in the program.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)


class TacitError(Exception):
    """Any error that Tacit raises on purpose."""


class InvalidInput(TacitError, ValueError):
    """A setting, file or value that cannot be used as it is."""


class GraphError(InvalidInput):
    """A communication graph that cannot be built or used."""


class DataError(InvalidInput):
    """Records that are missing, broken or cannot be divided as requested."""


class ModelError(InvalidInput):
    """A module for which per-sample gradients do not exist."""


class PrivacyError(InvalidInput):
    """Privacy settings that cannot be met or accounted for."""


class RuleError(InvalidInput):
    """An update rule of the user's own that failed. Its cause is what was raised there."""


class NotLinear(InvalidInput):
    """An update rule that is not linear in its gradients, so that linear algebra cannot follow its messages."""


class StorageError(TacitError, OSError):
    """A file that could not be written or read; what was there before is still there."""


class ProcessLost(TacitError, RuntimeError):
    """A process that did part of the work is gone."""


class NetworkError(TacitError, RuntimeError):
    """A message that did not arrive, or not as it should."""


class RankLost(NetworkError):
    """Another process of a cluster's group that ended, or did not answer within the deadline."""


class RankFailed(TacitError, RuntimeError):
    """Another process of a cluster's group that stopped with an error, which this one repeats."""


class BudgetExceeded(PrivacyError):
    """A query that would spend more privacy than is allowed. Nothing was spent."""


def choose(kind: str, name: str, options: Iterable[str]) -> str:
    """Return `name` if it is one of `options`; otherwise raise an error that names the nearest one."""
    known = sorted(options)
    if name in known:
        return name
    near = get_close_matches(str(name), known, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise InvalidInput(f"unknown {kind} {name!r}{hint} (known: {', '.join(known)})")


def refuse_misspelt(made: _Class) -> _Class:
    """Give a dataclass of settings an error, for a keyword that it does not have, that names the nearest one."""
    plain: Any = made
    init = plain.__init__

    @wraps(init)
    def checked(self: Any, *values: Any, **settings: Any) -> None:
        for name in settings:
            choose(f"setting of {plain.__name__}", name, plain.__dataclass_fields__)
        init(self, *values, **settings)

    plain.__init__ = checked
    return made
