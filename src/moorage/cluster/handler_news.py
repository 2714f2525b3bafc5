"""What changes about an engine's handlers, as events on the node: for people who watch it.

    kubectl describe node:  Warning  RuntimeHandlerFileBroken  …/kata.toml:3: unknown key …
                            Normal   RuntimeHandlerAdded       runtime handler "kata" …

Pure, from one message of the engine to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from moorage.cri import engine_pb

NORMAL, WARNING = "Normal", "Warning"


@dataclass(frozen=True, slots=True)
class News:
    """An event to be: its type, its reason, its message."""

    type: str
    reason: str
    message: str


def news(before: engine_pb.Handlers | None, now: engine_pb.Handlers) -> tuple[News, ...]:
    """What is new since the message before; of the first message, only what is wrong."""
    told = frozenset(before.complaints) if before else frozenset()
    complaints = (
        News(WARNING, "RuntimeHandlerFileBroken", each)
        for each in now.complaints
        if each not in told
    )
    return (*complaints, *(_changes(_usable(before), _usable(now), now) if before else ()))


def _changes(
    before: Mapping[str, engine_pb.Handler],
    after: Mapping[str, engine_pb.Handler],
    now: engine_pb.Handlers,
) -> Iterator[News]:
    reasons = {each.name: f"{each.reason}; {each.remedy}" for each in now.handlers if each.reason}
    for name in sorted(after.keys() - before.keys()):
        handler = after[name]
        said = f'runtime handler "{name}" can be used: {handler.program} {handler.version}'
        yield News(NORMAL, "RuntimeHandlerAdded", said.rstrip())
    for name in sorted(before.keys() - after.keys()):
        why = reasons.get(name, "its file is gone")
        yield News(
            WARNING,
            "RuntimeHandlerRemoved",
            f'runtime handler "{name}" cannot be used any more: {why}. Pods that run go on.',
        )


def _usable(told: engine_pb.Handlers | None) -> dict[str, engine_pb.Handler]:
    return {each.name: each for each in told.handlers if each.is_available} if told else {}
