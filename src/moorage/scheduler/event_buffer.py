"""Event buffer: keeps the events of a burst of bindings without delaying the bindings.

The recorder drops events that exceed its short queue. This buffer keeps them in order and forwards
them in batches the recorder can hold; under load events lag behind the bindings they report.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from moorage.api.logs import Log
from moorage.api.meta import ObjectReference
from moorage.wire.client.recorder import EventRecorder

_LIMIT = 50_000
_PORTION = 500

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class BufferedEvent:
    """One event waiting to be recorded."""

    about: ObjectReference
    type: str
    reason: str
    message: str


class EventBuffer:
    """Forwards events to a recorder, which the caller runs. When full, drops the oldest event."""

    def __init__(self, recorder: EventRecorder, limit: int = _LIMIT) -> None:
        self._recorder = recorder
        self._waiting: deque[BufferedEvent] = deque(maxlen=limit)
        self._has_some = asyncio.Event()
        self._dropped = 0

    def announce(self, about: ObjectReference, type_: str, reason: str, message: str) -> None:
        """Queue an event for recording. Does not block."""
        if len(self._waiting) == self._waiting.maxlen:
            self._dropped += 1
        self._waiting.append(BufferedEvent(about, type_, reason, message))
        self._has_some.set()

    async def run(self) -> None:
        """Forward events until cancelled. Logs how many events were dropped."""
        while True:
            self._has_some.clear()
            await self._hand_on()
            await self._has_some.wait()

    async def _hand_on(self) -> None:
        while self._waiting:
            for _ in range(min(_PORTION, len(self._waiting))):
                event = self._waiting.popleft()
                self._recorder.record(event.about, event.type, event.reason, event.message)
            await self._recorder.flush()
            if self._dropped:
                log.warning("events dropped: too many at once", count=self._dropped)
                self._dropped = 0
