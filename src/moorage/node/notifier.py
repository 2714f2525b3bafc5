"""Notifier: waits for a call or a timeout, whichever is first."""

from __future__ import annotations

import asyncio

from moorage.api.clock import Clock


class Notifier:
    """Event that stays set until `wait` consumes it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._called = asyncio.Event()

    def call(self) -> None:
        """Wake the waiter, now or at its next `wait`. Does not block."""
        self._called.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Block until called, or for `seconds`; None waits without a timeout. Clears the call."""
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
