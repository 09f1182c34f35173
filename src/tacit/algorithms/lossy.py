"""Mixing rows that a codec shortens: what a codec leaves out stays with its owner.

    x⁺ = x + W C(x) − C(x)

C(x) is what neighbours read. Rows and columns of W sum to one, so the average of all agents is kept, whatever C does. Without a codec
this is Wx.
"""

from typing import Any

from torch import Tensor

from tacit.algorithms.interface import At
from tacit.errors import InvalidInput
from tacit.networks.codecs import DENSE, Codec
from tacit.networks.interface import Inbox
from tacit.networks.quantised import QSGD
from tacit.networks.sparse import RandomK, TopK


def mix_rows(at: At, *rows: Tensor, codec: Codec = DENSE) -> Any:
    """Send rows to all neighbours and return them mixed: one tensor if one was sent, otherwise a tuple."""
    return mix_inbox(at.exchange(*rows, codec=codec), *rows, codec=codec)


def mix_inbox(inbox: Inbox, *rows: Tensor, codec: Codec = DENSE) -> Any:
    """Return rows that were sent mixed with those of all neighbours."""
    mixed = inbox.mix()
    if codec == DENSE:
        return mixed
    if len(rows) == 1:
        return rows[0] + (mixed - inbox.own)
    return tuple(x + (mean - own) for x, mean, own in zip(rows, mixed, inbox.own, strict=True))


def check_gamma(gamma: float | None) -> None:
    """Raise unless γ, the weight of what neighbours say, is in range."""
    if gamma is not None and not 0 < gamma <= 1:
        raise InvalidInput(f"gamma is {gamma}; it must lie in (0, 1]")


def usual_gamma(codec: Codec) -> float:
    """Return a γ with which rules that send differences or errors later are stable: 1 where a codec loses little, less where it loses much.

    Found by trial, on rings and on digits with one class at each agent; agents agree sooner with a larger γ, and not at all if it is too large.
    """
    if isinstance(codec, TopK):
        return min(1.0, 3 * codec.share)
    if isinstance(codec, RandomK):
        return codec.share
    return 0.1 if isinstance(codec, QSGD) and codec.bits < 4 else 1.0
