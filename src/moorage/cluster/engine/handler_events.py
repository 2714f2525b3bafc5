"""Handler events: changes of an engine's handlers, as events on the node.

    kubectl describe node:  Warning  RuntimeHandlerFileBroken  …/kata.toml:3: unknown key …
                            Normal   RuntimeHandlerAdded       runtime handler "kata" …

Pure: compares two successive messages of the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from moorage.wire.cri import engine_pb

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
