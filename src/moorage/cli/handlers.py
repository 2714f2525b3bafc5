"""Runtime handlers in use by a cluster.

The engine lists them: our own, whose files may change at any time, or the one given with --cri.
Without a cluster they are those found on the host.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from moorage.api.nodes import NodeRuntimeHandler, NodeRuntimeHandlerFeatures
from moorage.cli.errors import CliError
from moorage.cluster.engine.paths import engine_paths
from moorage.cluster.layout import Layout
from moorage.cluster.settings import load
from moorage.cluster.supervision.supervisor import running_pid
from moorage.engine.handlers import AdapterKind, Handler, gvisor_defect
from moorage.engine.handlers.features import HandlerFeatures
from moorage.inspect.probed_defects import defect_warnings, probed_defect
from moorage.wire.cri import CriClient, CriError, HandlersUnknownError, engine_pb, handlers_of

_DEADLINE_S = 5.0


@dataclass(frozen=True, slots=True)
class HandlersInUse:
    """The handlers, and the faults of handler definition files as sentences."""

    handlers: tuple[Handler, ...]
    complaints: tuple[str, ...] = ()


async def handlers_in_use(layout: Layout, installed: Iterable[Handler]) -> HandlersInUse:
    """Return the engine's handlers, and those `installed` on the host that it does not have.

    With an external engine, returns that engine's handlers only. Without a running engine, returns
    `installed`. Raises CliError if an external engine does not list its handlers within 5 s.
    """
    settings = load(layout.settings)
    if settings is not None and settings.has_node and settings.cri:
        return HandlersInUse(await _of_external_engine(settings.cri))
    plain = tuple(installed)
    listed = await _list_handlers(layout)
    if listed is None:
        return HandlersInUse(plain)
    own = tuple([_in_force(handler) for handler in listed.handlers])
    names = {handler.handler for handler in own}
    others = tuple(handler for handler in plain if handler.handler not in names)
    return HandlersInUse((*own, *map(_undefined, others)), tuple(listed.complaints))


async def _of_external_engine(endpoint: str) -> tuple[Handler, ...]:
    """Return the handlers that an engine lists; the default one has the empty name, as in the CRI.

    Raises CliError if the engine does not list them.
    """
    try:
        async with CriClient(endpoint) as cri, asyncio.timeout(_DEADLINE_S):
            listed = await handlers_of(cri)
    except (CriError, HandlersUnknownError, TimeoutError) as error:
        why = str(error) or f"no answer within {_DEADLINE_S:g} s"
        raise CliError(f"the engine at {endpoint} does not list its handlers: {why}") from error
    return tuple(map(_listed, sorted(listed, key=lambda handler: handler.name)))


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


async def _list_handlers(layout: Layout) -> engine_pb.Handlers | None:
    """Return our engine's handlers, None if the cluster or the engine is down or external."""
    settings = load(layout.settings)
    if settings is None or settings.cri or not settings.has_node or running_pid(layout) is None:
        return None
    request = engine_pb.WatchHandlersRequest()
    try:
        async with (
            CriClient(engine_paths(layout, settings).endpoint) as cri,
            asyncio.timeout(_DEADLINE_S),
        ):
            return await anext(cri.stream(cri.engine.WatchHandlers, request), None)
    except (CriError, TimeoutError):
        return None


def _in_force(handler: engine_pb.Handler) -> Handler:
    defect = probed_defect(handler.program)
    if defect is None and handler.adapter == AdapterKind.RUNSC:
        defect = gvisor_defect(handler.version)
    return Handler(
        handler=handler.name,
        runtime=Path(handler.program).name,
        path=handler.program,
        version=handler.version,
        available=handler.is_available,
        reason=handler.reason,
        remedy=handler.remedy,
        defect=defect.meaning if defect else "",
        defect_remedy=defect.remedy if defect else "",
        features=tuple(handler.features),
        default=handler.is_default,
        file=handler.file,
    )


def host_warnings(layout: Layout, handlers: Iterable[Handler]) -> tuple[str, ...]:
    """Return known defects of the host's handlers, with remedies, before a start.

    Reads the handler files that will be in force. Blocks for some file reads.
    """
    # Imported here: few commands need the engine's places.
    from moorage.engine.handlers.discovery import read_directories
    from moorage.engine.paths import EnginePaths
    from moorage.engine.requirements import HANDLER_DIRECTORY

    own = EnginePaths(layout.engine, layout.engine).handlers
    reading = read_directories((HANDLER_DIRECTORY, own), {}, time.time())
    return defect_warnings(handlers, reading.definitions)


def with_problems(handlers: Iterable[Handler], problems: Mapping[str, str]) -> tuple[Handler, ...]:
    """Return the handlers; one whose probe fails is unavailable with the probe's reason."""
    return tuple(
        msgspec.structs.replace(
            handler, available=False, reason=f"its probe fails: {problems[handler.handler]}"
        )
        if handler.available and handler.handler in problems
        else handler
        for handler in handlers
    )


def _undefined(handler: Handler) -> Handler:
    """Return a handler of the host that the engine does not have, as unavailable."""
    if not handler.available:
        return handler
    reason = "it is installed, but no handler file defines it"
    remedy = "restart the cluster, which writes the file"
    return msgspec.structs.replace(handler, available=False, reason=reason, remedy=remedy)
