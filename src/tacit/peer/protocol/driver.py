"""Plays rounds on the core without threads.

An update rule is a plain function that asks for gradients and exchanges messages on its way. It is run from the top of the round; the
first exchange that is not settled suspends it, by an exception, and after the exchange is settled the round is run again, with the
answers and messages on record. A restart after a crash is the same thing.
"""

from collections.abc import Collection
from typing import Protocol

from tacit.peer.protocol.core import Core
from tacit.peer.protocol.link import Pending


class Suspended(BaseException):
    """An exchange is not settled yet. Not an `Exception`, so that no rule takes it for a failure of its own."""

    def __init__(self, pending: Pending) -> None:
        super().__init__(pending.slot)
        self.pending = pending


class Player(Protocol):
    """Whoever plays the rounds of one agent."""

    @property
    def round(self) -> int:
        """How many rounds are played."""

    @property
    def finished(self) -> bool:
        """Whether all are."""

    def attempt(self) -> None:
        """Play the next round from its beginning; raise `Suspended` at an exchange that is not settled."""

    def save(self) -> bytes:
        """Return the state between rounds."""

    def load(self, state: bytes | None, round: int) -> None:
        """Continue from a state, or from the start if there is none, at a round."""

    def neighbors_of(self, round: int) -> Collection[int]:
        """Return with whom this agent exchanges messages in a round."""


async def play(core: Core, player: Player) -> None:
    """Play all rounds that are left, or those until the core is stopped."""
    player.load(core.notes.state, core.position.round)
    while not player.finished and not core.stopping:
        later = core.round_to_join(player.neighbors_of)
        if later is None:
            await _play_round(core, player)
        else:
            core.go_away(later)
            player.load(core.notes.state, later)


async def _play_round(core: Core, player: Player) -> None:
    round = player.round
    while True:
        try:
            player.attempt()
            break
        except Suspended as suspended:
            pending = suspended.pending
        await core.settle(pending)
    core.commit(round, player.save())
