"""Any rule that mixes, with a mean that a few agents who send nonsense cannot move far.

Instead of Σ w_ij x_j, over oneself and those one hears:

    median     the middle value of every coordinate, or the mean of the two in the middle
    trimmed    the mean of every coordinate without its b smallest and b largest values (as many as leave at least one)
    clipped    x_i + Σ_{j≠i} clip_τ(x_j − x_i)/(d_i + 1), where clip_τ shortens a vector to length τ

Yin et al., *Byzantine-Robust Distributed Learning*, ICML 2018 (median, trimmed); He, Karimireddy & Jaggi, *Byzantine-Robust Decentralized
Learning via ClippedGossip*, 2022, with the weights of W in place of 1/(d_i + 1), which is the same where all agents have as many neighbours.
The public code of ClippedGossip (epfml/byzantine-robust-decentralized-optimizer) has all three, clipping with W, and also leaves out fewer values where few are heard.

None of them keeps the average of all agents, so rules that need it, as DSGT's trackers do, are refused, and so is noise that cancels.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor

from tacit.algorithms.averaged import line_of, name_of, rule_of
from tacit.algorithms.interface import Algorithm, AroundRule, At, HasTheta, Inbox, Stacked, check_rule
from tacit.errors import InvalidInput, choose
from tacit.networks.codecs import DENSE, Codec
from tacit.registry import ROBUST_MEANS, RULES

RobustKind = Literal["median", "trimmed", "clipped"]
_USUAL = {"median": None, "trimmed": 1.0, "clipped": 1.0}


@dataclass(frozen=True)
class Robust(AroundRule):
    """A rule that takes a robust mean of itself and its neighbours where it would take the weighted one.

    kind: `median`, `trimmed` or `clipped`.
    bound: of `trimmed`, how many values are left out on either side, 1 unless given; of `clipped`, the length τ, 1.0 unless given.
    """

    rule: Algorithm[Any]
    kind: RobustKind = "median"
    bound: float | None = None

    def __post_init__(self) -> None:
        check_rule(self.rule)
        choose("robust mean", self.kind, ROBUST_MEANS)
        bound, usual = self.bound, _USUAL[self.kind]
        if usual is None and bound is not None:
            raise InvalidInput(f"a median has no bound, got {bound:g}")
        if bound is not None and not (math.isfinite(bound) and bound > 0):
            raise InvalidInput(f"the bound of {self.kind} is {bound:g}; it must be positive")
        if self.kind == "trimmed" and bound is not None and bound != int(bound):
            raise InvalidInput(f"the bound of trimmed is {bound:g}; it must be a whole number of values")
        line, name = line_of(self.rule), name_of(self.rule)
        if line is not None and not line.robust:
            raise InvalidInput(
                f"{name} cannot mix by a {self.kind} mean: "
                + (
                    "it sends nothing"
                    if not line.exchanges
                    else "it needs the average of all agents to stay"
                    if line.mixes
                    else "it takes no plain mean of what it receives"
                )
                + f"; use {', '.join(each for each, other in RULES.lines.items() if other.robust)}"
            )
        if getattr(rule_of(self.rule), "gap", None) is not None:
            raise InvalidInput(f"{name} with acceleration needs weights; leave gap out to mix by a {self.kind} mean")

    def init(self, theta: Stacked) -> HasTheta:
        """Start as the rule does."""
        return self.rule.init(theta)

    def round(self, state: Any, at: At) -> HasTheta:
        """Play one round of the rule, with robust means."""
        return self.rule.round(state, _RobustAt(at, self))

    def mean(self, own: Tensor, values: Tensor, present: Tensor) -> Tensor:
        """Return the robust mean of every row's own value and its neighbours'."""
        bound = self.bound if self.bound is not None else _USUAL[self.kind]
        if self.kind == "clipped" and bound is not None:
            return _clipped(own, values, present, bound)
        count = 1 + present.sum(1)
        least = (count - 1) // 2 if bound is None else torch.minimum((count - 1) // 2, count.new_tensor(int(bound)))
        return _middle(own, values, present, least, count - least)


def parse_robust(text: str) -> tuple[RobustKind, float | None] | None:
    """Return the kind and bound that a text such as `trimmed:2` names; None if it names no robust mean."""
    name, colon, number = text.strip().partition(":")
    if name not in ROBUST_MEANS:
        return None
    try:
        return cast(RobustKind, name), float(number) if colon else None
    except ValueError:
        raise InvalidInput(f"mixing is {text!r}; write it as in trimmed:1 or clipped:0.5") from None


def is_robust(algorithm: Algorithm[Any]) -> bool:
    """Say whether a rule takes robust means, at any depth."""
    return isinstance(algorithm, Robust) or (isinstance(algorithm, AroundRule) and is_robust(algorithm.rule))


class _RobustAt:
    """A round whose inboxes take robust means."""

    def __init__(self, at: At, robust: Robust) -> None:
        self._at, self._robust = at, robust

    def __getattr__(self, name: str) -> Any:
        return getattr(self._at, name)

    def exchange(self, *tensors: Tensor, codec: Codec = DENSE) -> Inbox:
        """Send one message to every neighbour and return theirs."""
        return _RobustInbox(self._at.exchange(*tensors, codec=codec), self._robust)


class _RobustInbox:
    """An inbox that mixes by a robust mean."""

    def __init__(self, inbox: Inbox, robust: Robust) -> None:
        self._inbox, self._robust = inbox, robust

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inbox, name)

    def mix(self) -> Any:
        """Return the robust mean of every tensor that was sent."""
        own, messages = self._inbox.own, self._inbox.messages()
        if isinstance(own, Tensor):
            return self._robust.mean(own, *messages)
        return tuple(self._robust.mean(mine, *theirs) for mine, theirs in zip(own, messages, strict=True))


def _middle(own: Tensor, values: Tensor, present: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Return the mean of the values from place `first` to before `last` in ascending order, coordinate by coordinate.

    What is not a number counts as infinite, so that it is among the largest.
    """
    missing = ~present.reshape(*present.shape, *[1] * (values.ndim - 2))
    each = torch.cat([own[:, None], values.masked_fill(missing, torch.inf)], dim=1)
    each = torch.where(each.isnan(), torch.inf, each).sort(dim=1).values
    total, rows = torch.zeros_like(own), (-1, *[1] * (own.ndim - 1))
    for place in range(each.shape[1]):  # one after another, so that every network adds in the same order
        taken = ((first <= place) & (place < last)).reshape(rows)
        total = total + torch.where(taken, each[:, place], own.new_zeros(()))
    return total / (last - first).reshape(rows)


def _clipped(own: Tensor, values: Tensor, present: Tensor, bound: float) -> Tensor:
    """Return own + Σ clip(x_j − own)/(degree + 1). A neighbour that is not finite adds nothing."""
    rows = (-1, *[1] * (own.ndim - 1))
    total = torch.zeros_like(own)
    for place in range(values.shape[1]):
        apart = values[:, place] - own
        # In float32, the order in which a library adds squares does not show, so that every network clips alike.
        length = apart.flatten(1).double().norm(dim=1).float()
        share = bound / length.to(own.dtype).clamp(min=bound)
        taken = (present[:, place] & length.isfinite()).reshape(rows)
        total = total + torch.where(taken, share.reshape(rows) * apart, own.new_zeros(()))
    return own + total / (1 + present.sum(1)).reshape(rows)
