"""GetContainerEvents: event streams, and a buffer of events while there is no listener.

A listener that falls behind loses the stream, which bounds memory; it lists the containers then, as
after any disconnect. Source: CRI `GetContainerEvents`, KEP-3386.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from moorage.engine.errors import ExhaustedError
from moorage.wire.cri import pb

_MOST_KEPT = 1000
_MOST_WAITING = 10_000


class Events:
    """The events of one engine."""

    def __init__(self) -> None:
        self._kept: deque[pb.ContainerEventResponse] = deque(maxlen=_MOST_KEPT)
        self._listeners: set[asyncio.Queue[pb.ContainerEventResponse | None]] = set()

    def publish(self, event: pb.ContainerEventResponse) -> None:
        """Send an event to every listener; without one, keep it for the next."""
        if not self._listeners:
            self._kept.append(event)
        for queue in self._listeners:
            if queue.qsize() < _MOST_WAITING:
                queue.put_nowait(event)
            elif not queue.full():
                queue.put_nowait(None)

    async def listen(self) -> AsyncIterator[pb.ContainerEventResponse]:
        """Yield the buffered events, then new ones.

        Raises ExhaustedError for a listener that is too slow.
        """
        queue: asyncio.Queue[pb.ContainerEventResponse | None] = asyncio.Queue(_MOST_WAITING + 1)
        self._listeners.add(queue)
        try:
            while self._kept:
                yield self._kept.popleft()
            while (event := await queue.get()) is not None:
                yield event
            raise ExhaustedError(
                "event stream overflowed: the client reads too slowly; list, then reconnect"
            )
        finally:
            self._listeners.discard(queue)
