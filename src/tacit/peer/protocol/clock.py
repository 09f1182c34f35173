"""The clock and the randomness of a real site."""

import asyncio
import secrets
from contextlib import suppress


class LoopClock:
    """The event loop's own time."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def now(self) -> float:
        """Return the loop's time."""
        return asyncio.get_running_loop().time()

    async def wait(self, until: float | None) -> None:
        """Wait for `wake` or for a time, and let others run at least once."""
        await asyncio.sleep(0)
        if not self._woken.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._woken.wait()
        self._woken.clear()

    def wake(self) -> None:
        """End a wait."""
        self._woken.set()


class SystemRandomness:
    """The operating system's randomness."""

    def token(self, count: int) -> bytes:
        """Return fresh bytes."""
        return secrets.token_bytes(count)
