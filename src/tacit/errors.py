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


_NAMES_ELSEWHERE = {
    "algorithm": ("method", "rule"),
    "agents": ("clients", "n_agents", "nodes", "num_agents", "num_clients", "num_nodes", "parties", "sites"),
    "clip": ("clip_norm", "clipping_norm", "l2_norm_clip", "max_grad_norm", "max_norm"),
    "data_dir": ("data_folder", "data_path"),
    "dataset": ("data_set",),
    "delta": ("target_delta",),
    "epsilon": ("eps", "target_epsilon"),
    "evaluate_every": ("eval_every",),
    "graph": ("topology",),
    "lot_size": ("batch", "batch_size", "batchsize", "bs", "expected_batch_size", "minibatch_size"),
    "lr": ("alpha", "eta", "learning_rate", "step_size", "stepsize"),
    "lr_final": ("final_learning_rate", "final_lr", "learning_rate_final", "lr_end", "lr_min", "min_lr"),
    "noise_multiplier": ("noise_scale", "sigma"),
    "rounds": ("epoch", "epochs", "iterations", "iters", "num_epochs", "num_rounds", "num_steps"),
    "seed": ("random_seed", "random_state"),
    "split": ("partition",),
    "step": ("optimiser", "optimizer"),
    "workers": ("num_workers", "processes"),
}
"""What other libraries call our settings."""
_SETTING_OF = {other: name for name, others in _NAMES_ELSEWHERE.items() for other in others}
_ROUND = "in a round, each agent is asked about a lot, not about all of its records"
_ABOUT = dict.fromkeys(("epoch", "epochs", "num_epochs"), _ROUND)
"""What else to know about a name from elsewhere."""


def setting_called(name: str) -> tuple[str, str]:
    """Return the setting that other libraries call so, and what else to know about it; two empty texts if there is none."""
    key = name.strip("-").replace("-", "_").lower()
    return _SETTING_OF.get(key, ""), _ABOUT.get(key, "")


def suggest(name: str, known: Iterable[str], *, cutoff: float = 0.4) -> str:
    """Ask whether one of the known names was meant: the one that other libraries call so, or else the nearest; empty if none is near."""
    names = {each.strip("-").replace("-", "_"): each for each in known}
    setting, about = setting_called(str(name))
    if setting in names:
        return f"; did you mean {names[setting]!r}{f' ({about})' if about else ''}?"
    near = get_close_matches(str(name), names.values(), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]!r}?" if near else ""


def choose(kind: str, name: str, options: Iterable[str]) -> str:
    """Return `name` if it is one of `options`; otherwise raise an error that names the one that was meant, if one is near."""
    known = sorted(options)
    if name in known:
        return name
    raise InvalidInput(f"unknown {kind} {name!r}{suggest(name, known)} (known: {', '.join(known)})")


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
