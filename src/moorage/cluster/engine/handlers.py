"""Handlers of the engine that a node agent uses: read from its status, and followed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from moorage.api.logs import Log
from moorage.api.nodes import NodeRuntimeHandler
from moorage.api.references import ObjectReference
from moorage.cluster.engine.handler_events import handler_events
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.cri import CriClient, CriError, engine_pb, handlers_in, handlers_of, pb

_RETRY_S = 0.5

log = Log(__name__)


class NodeEvents:
    """Events about a node."""

    def __init__(self, recorder: EventRecorder, node: ObjectReference) -> None:
        self._recorder = recorder
        self._node = node

    def record(self, type_: str, reason: str, message: str) -> None:
        """Record an event. Does not block."""
        self._recorder.record(self._node, type_, reason, message)


async def follow_handlers(
    cri: CriClient,
    events: NodeEvents,
    note: Callable[[engine_pb.Handlers], Awaitable[None]],
) -> None:
    """Pass on the handlers of our own engine each time they change, and record events.

    The CRI has no call for that, so our engine's own call is streamed. Returns where the engine is
    another, which lacks the call.
    """
    before: engine_pb.Handlers | None = None
    while True:
        try:
            async for now in cri.stream(cri.engine.WatchHandlers, engine_pb.WatchHandlersRequest()):
                await note(now)
                for event in handler_events(before, now):
                    events.record(event.type, event.reason, event.message)
                before = now
        except CriError as error:
            if error.is_unimplemented:
                return
            log.debug("watch of the engine's handlers broke", reason=error.sentence)
        await asyncio.sleep(_RETRY_S)


async def read_handlers(
    cri: CriClient, status: pb.StatusResponse
) -> tuple[NodeRuntimeHandler, ...]:
    """Return the engine's handlers. Raises HandlersUnknownError, CriError.

    Older engines list them only in their verbose status, which is read each time: an engine that
    restarts with another configuration does not announce it.
    """
    return handlers_in(status) or await handlers_of(cri)
