"""Bytes between agents of one process, each in its own thread: a transport for tests."""

import threading
import time
from typing import NamedTuple

from tacit.errors import NetworkError


class Loopback:
    """Connects agents. `end(agent)` is one agent's transport; `receive` gives up after `timeout` seconds."""

    def __init__(self, agents: int, *, timeout: float = 60.0) -> None:
        self.agents, self._timeout = agents, timeout
        self._messages: dict[tuple[int, int, tuple[int, ...]], bytes] = {}
        self._closed: set[int] = set()
        self._changed = threading.Condition()

    def end(self, agent: int) -> "LoopbackEnd":
        """Return one agent's transport."""
        return LoopbackEnd(self, agent)

    def put(self, sender: int, to: int, label: tuple[int, ...], data: bytes) -> None:
        """Store a message until it is received."""
        with self._changed:
            if (sender, to, label) in self._messages:
                raise NetworkError(f"agent {sender} sends a second message {label} to agent {to}")
            self._messages[sender, to, label] = data
            self._changed.notify_all()

    def take(self, sender: int, to: int, label: tuple[int, ...]) -> bytes:
        """Wait for a message and return it."""
        key, until = (sender, to, label), time.monotonic() + self._timeout
        with self._changed:
            while key not in self._messages:
                left = until - time.monotonic()
                if sender in self._closed:
                    raise NetworkError(f"agent {sender} has left before it sent message {label} to agent {to}")
                if left <= 0:
                    raise NetworkError(f"agent {to} waited {self._timeout:g} s for message {label} of agent {sender}")
                self._changed.wait(left)
            return self._messages.pop(key)

    def leave(self, agent: int) -> None:
        """Stop others from waiting for this agent."""
        with self._changed:
            self._closed.add(agent)
            self._changed.notify_all()


class LoopbackEnd(NamedTuple):
    """One agent's transport; see `tacit.networks.Transport`."""

    wires: Loopback
    agent: int

    def send(self, to: int, label: tuple[int, ...], data: bytes) -> None:
        """Send a message."""
        self.wires.put(self.agent, to, label, data)

    def receive(self, sender: int, label: tuple[int, ...]) -> bytes:
        """Wait for a message."""
        return self.wires.take(sender, self.agent, label)

    def close(self) -> None:
        """Leave; messages sent before can still be received."""
        self.wires.leave(self.agent)
