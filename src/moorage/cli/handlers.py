"""The runtime handlers that count for a cluster.

An engine of our own is asked, since its files decide and change at any time; without one, what was
found on the machine is all there is to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from moorage.cluster.engine import engine_paths
from moorage.cluster.layout import Layout
from moorage.cluster.settings import load
from moorage.cluster.supervisor import running_pid
from moorage.cri import CriClient, CriError, engine_pb
from moorage.handlers import Handler

_ASK_DEADLINE_S = 5.0


class HandlerInForce(Handler, frozen=True, kw_only=True):
    """A handler, whether pods without a class get it, and the file that defines it."""

    default: bool = False
    file: str = ""


@dataclass(frozen=True, slots=True)
class HandlersTold:
    """The handlers, and what is wrong with definition files."""

    handlers: tuple[HandlerInForce, ...]
    complaints: tuple[str, ...] = ()


async def told_handlers(layout: Layout, found: Iterable[Handler]) -> HandlersTold:
    """What the cluster's engine says, and of those `found` on the machine what it doesn't have."""
    plain = tuple(HandlerInForce(**msgspec.structs.asdict(each)) for each in found)
    told = await _ask_engine(layout)
    if told is None:
        return HandlersTold(plain)
    own = tuple(map(_in_force, told.handlers))
    names = {each.handler for each in own}
    others = tuple(each for each in plain if each.handler not in names)
    return HandlersTold((*own, *map(_undefined, others)), tuple(told.complaints))


async def _ask_engine(layout: Layout) -> engine_pb.Handlers | None:
    """None for a cluster that has no engine of its own or is down, and while the engine is."""
    settings = load(layout.settings)
    if settings is None or settings.cri or not settings.has_node or running_pid(layout) is None:
        return None
    request = engine_pb.WatchHandlersRequest()
    try:
        async with (
            CriClient(engine_paths(layout, settings).endpoint) as cri,
            asyncio.timeout(_ASK_DEADLINE_S),
        ):
            return await anext(cri.stream(cri.engine.WatchHandlers, request), None)
    except (CriError, TimeoutError):
        return None


def _in_force(told: engine_pb.Handler) -> HandlerInForce:
    return HandlerInForce(
        handler=told.name,
        runtime=Path(told.program).name,
        path=told.program,
        version=told.version,
        available=told.is_available,
        reason=told.reason,
        remedy=told.remedy,
        features=tuple(told.features),
        default=told.is_default,
        file=told.file,
    )


def _undefined(found: HandlerInForce) -> HandlerInForce:
    """A handler that the machine could have, and the engine has not."""
    if not found.available:
        return found
    reason = "no definition file says so"
    remedy = "restart the cluster, which writes one"
    return msgspec.structs.replace(found, available=False, reason=reason, remedy=remedy)
