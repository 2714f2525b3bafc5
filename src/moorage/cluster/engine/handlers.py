"""Handlers of the engine that a node agent uses: read from its status, and followed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass

from moorage.api.logs import Log
from moorage.api.meta import ObjectReference
from moorage.api.nodes import NodeRuntimeHandler
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
    retry_s: float = _RETRY_S,
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
        await asyncio.sleep(retry_s)


async def read_handlers(
    cri: CriClient, status: pb.StatusResponse
) -> tuple[NodeRuntimeHandler, ...]:
    """Return the engine's handlers. Raises HandlersUnknownError, CriError.

    Older engines list them only in their verbose status, which is read each time: an engine that
    restarts with another configuration does not announce it.
    """
    return handlers_in(status) or await handlers_of(cri)


# Handler events: changes of an engine's handlers, as events on the node.
#
#     kubectl describe node:  Warning  RuntimeHandlerFileBroken  …/kata.toml:3: unknown key …
#                             Normal   RuntimeHandlerAdded       runtime handler "kata" …
#
# Pure: compares two successive messages of the engine.

NORMAL, WARNING = "Normal", "Warning"


@dataclass(frozen=True, slots=True)
class HandlerEvent:
    """The type, reason and message of an event to record."""

    type: str
    reason: str
    message: str


def handler_events(
    before: engine_pb.Handlers | None, now: engine_pb.Handlers
) -> tuple[HandlerEvent, ...]:
    """Return the events for the changes since `before`; if None, only for broken handler files."""
    known = frozenset(before.complaints) if before else frozenset()
    complaints = (
        HandlerEvent(WARNING, "RuntimeHandlerFileBroken", complaint)
        for complaint in now.complaints
        if complaint not in known
    )
    if before is None:
        return tuple(complaints)
    return (*complaints, *_changes(_usable(before), _usable(now), now))


def _changes(
    before: Mapping[str, engine_pb.Handler],
    after: Mapping[str, engine_pb.Handler],
    now: engine_pb.Handlers,
) -> Iterator[HandlerEvent]:
    reasons = {handler.name: f"{handler.reason}; {handler.remedy}" for handler in now.handlers}
    for name in sorted(after.keys() - before.keys()):
        handler = after[name]
        message = f'runtime handler "{name}" is available: {handler.program} {handler.version}'
        yield HandlerEvent(NORMAL, "RuntimeHandlerAdded", message.rstrip())
    for name in sorted(before.keys() - after.keys()):
        reason = reasons.get(name, "its file is gone")
        yield HandlerEvent(
            WARNING,
            "RuntimeHandlerRemoved",
            f'runtime handler "{name}" is no longer available: {reason}. '
            "Running pods are not affected.",
        )


def _usable(handlers: engine_pb.Handlers) -> dict[str, engine_pb.Handler]:
    return {handler.name: handler for handler in handlers.handlers if handler.is_available}
