"""The runtime handlers that count for a cluster.

An engine of our own is asked, since its files decide and change at any time, and so is one that was
given with --cri; without a cluster, what was found on the machine is all there is to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from moorage.api.nodes import NodeRuntimeHandler, NodeRuntimeHandlerFeatures
from moorage.cli.errors import CliError
from moorage.cluster.engine import engine_paths
from moorage.cluster.layout import Layout
from moorage.cluster.settings import load
from moorage.cluster.supervisor import running_pid
from moorage.cri import CriClient, CriError, HandlersUnknownError, engine_pb, handlers_of
from moorage.handlers import AdapterKind, Handler, gvisor_defect
from moorage.handlers.features import HandlerFeatures

_ASK_DEADLINE_S = 5.0


@dataclass(frozen=True, slots=True)
class HandlersTold:
    """The handlers, and what is wrong with definition files."""

    handlers: tuple[Handler, ...]
    complaints: tuple[str, ...] = ()


async def told_handlers(layout: Layout, found: Iterable[Handler]) -> HandlersTold:
    """What the cluster's engine says, and of those `found` on the machine what it doesn't have.

    For an engine of others the handlers of this machine do not count. Raises CliError when it does
    not list its own.
    """
    settings = load(layout.settings)
    if settings is not None and settings.has_node and settings.cri:
        return HandlersTold(await _of_other_engine(settings.cri))
    plain = tuple(found)
    told = await _ask_engine(layout)
    if told is None:
        return HandlersTold(plain)
    own = tuple(map(_in_force, told.handlers))
    names = {each.handler for each in own}
    others = tuple(each for each in plain if each.handler not in names)
    return HandlersTold((*own, *map(_undefined, others)), tuple(told.complaints))


async def _of_other_engine(endpoint: str) -> tuple[Handler, ...]:
    """The handlers that an engine lists. Its default has the empty name, as in the CRI."""
    try:
        async with CriClient(endpoint) as cri, asyncio.timeout(_ASK_DEADLINE_S):
            listed = await handlers_of(cri)
    except (CriError, HandlersUnknownError, TimeoutError) as error:
        why = str(error) or f"no answer within {_ASK_DEADLINE_S:g} s"
        raise CliError(f"the engine at {endpoint} does not list its handlers: {why}") from error
    return tuple(map(_listed, sorted(listed, key=lambda each: each.name)))


def _listed(handler: NodeRuntimeHandler) -> Handler:
    has = handler.features or NodeRuntimeHandlerFeatures()
    features = HandlerFeatures(
        recursive_read_only_mounts=bool(has.recursive_read_only_mounts),
        user_namespaces=bool(has.user_namespaces),
    )
    return Handler(
        handler=handler.name,
        runtime="",
        available=True,
        features=features.names,
        default=not handler.name,
    )


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


def _in_force(told: engine_pb.Handler) -> Handler:
    defect = gvisor_defect(told.version) if told.adapter == AdapterKind.RUNSC else None
    return Handler(
        handler=told.name,
        runtime=Path(told.program).name,
        path=told.program,
        version=told.version,
        available=told.is_available,
        reason=told.reason,
        remedy=told.remedy,
        defect=defect.meaning if defect else "",
        defect_remedy=defect.remedy if defect else "",
        features=tuple(told.features),
        default=told.is_default,
        file=told.file,
    )


def _undefined(found: Handler) -> Handler:
    """A handler that the machine could have, and the engine has not."""
    if not found.available:
        return found
    reason = "no definition file says so"
    remedy = "restart the cluster, which writes one"
    return msgspec.structs.replace(found, available=False, reason=reason, remedy=remedy)
