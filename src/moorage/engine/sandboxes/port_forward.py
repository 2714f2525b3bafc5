"""PortForward: connections to a port in a sandbox's network namespace.

Source: CRI `PortForward`.
"""

from __future__ import annotations

from moorage.engine.context import EngineContext
from moorage.engine.handlers import HandlerDefinition, ShimOptions
from moorage.engine.streams.pod_port import dial_port
from moorage.linux import pinned
from moorage.wire.streaming.connection import Connection


async def dial_pod_port(context: EngineContext, sandbox_id: str, port: int) -> Connection:
    """Connect to a port of a ready sandbox.

    Raises NotFoundError, PreconditionError, OSError when nothing listens there.
    """
    sandbox = context.inventory.find_ready(sandbox_id)
    if sandbox.is_on_host_network:
        return await dial_port(None, port)
    network = sandbox.record.cni_result
    if network is not None and listens_elsewhere(sandbox.record.definition):
        # Through the pod's interface: within its namespace the address is not the guest's.
        return await dial_port(None, port, hosts=network.addresses)
    return await dial_port(context.paths.namespaces / sandbox.id / pinned.NET, port)


def listens_elsewhere(definition: HandlerDefinition) -> bool:
    """Return whether servers of a handler's pods listen in a guest, not in the pod's namespace."""
    options = definition.options
    return isinstance(options, ShimOptions) and options.is_virtual_machine
