"""Waiting for something to happen, or for a moment to come, whichever is first."""

from __future__ import annotations

import asyncio

from moorage.api.clock import Clock


class Notifier:
    """A call that stays until it is heard."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._called = asyncio.Event()

    def call(self) -> None:
        self._called.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Return when called, or after so many seconds."""
        if seconds is None:
            await self._called.wait()
        elif seconds > 0 and not self._called.is_set():
            waiter = asyncio.ensure_future(self._called.wait())
            sleeper = asyncio.ensure_future(self._clock.sleep(seconds))
            try:
                await asyncio.wait((waiter, sleeper), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiter.cancel()
                sleeper.cancel()
        self._called.clear()
