"""PortForward: connections to a port in a sandbox's network namespace.

Source: CRI `PortForward`.
"""

from __future__ import annotations

from moorage.engine.context import EngineContext
from moorage.engine.streams.pod_port import dial_port
from moorage.linux import pinned
from moorage.streaming.connection import Connection


async def dial_pod_port(context: EngineContext, sandbox_id: str, port: int) -> Connection:
    """Connect to a port of a ready sandbox.

    Raises NotFoundError, PreconditionError, OSError when nothing listens there.
    """
    sandbox = context.inventory.find_ready(sandbox_id)
    directory = context.paths.namespaces / sandbox.id
    return await dial_port(None if sandbox.is_on_host_network else directory / pinned.NET, port)
