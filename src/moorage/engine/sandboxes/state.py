"""A pod sandbox's state: list, status; ports that are forwarded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from moorage.engine.context import EngineContext
from moorage.engine.handlers import HandlerDefinition, RunscOptions, ShimOptions
from moorage.engine.inventory import Sandbox
from moorage.engine.labels import has_labels
from moorage.engine.messages import container_status, sandbox_item, sandbox_state, sandbox_status
from moorage.engine.streams.forward import dial_port
from moorage.linux import pinned
from moorage.wire.cri import pb
from moorage.wire.streaming.connection import Connection

# ListPodSandbox: the sandboxes that match a filter. Also StreamPodSandboxes.
#
# Source: CRI `PodSandboxFilter`: an id prefix, a state, labels; all must match.


def list_pod_sandboxes(
    sandboxes: Iterable[Sandbox], sandbox_filter: pb.PodSandboxFilter
) -> list[pb.PodSandbox]:
    """Return the items of the sandboxes that match the filter."""
    return [sandbox_item(match) for match in filter_sandboxes(sandboxes, sandbox_filter)]


def filter_sandboxes(
    sandboxes: Iterable[Sandbox], sandbox_filter: pb.PodSandboxFilter
) -> Iterator[Sandbox]:
    """Yield the sandboxes that match the filter."""
    for sandbox in sandboxes:
        if sandbox_filter.id and not sandbox.id.startswith(sandbox_filter.id):
            continue
        has_state = sandbox_filter.HasField("state")
        if has_state and sandbox_filter.state.state != sandbox_state(sandbox):
            continue
        if has_labels(sandbox.config.labels, sandbox_filter.label_selector):
            yield sandbox


# PodSandboxStatus: a sandbox's status and that of its containers, with details if `verbose`.
#
# Source: CRI `PodSandboxStatus`.


def pod_sandbox_status_response(
    context: EngineContext, sandbox: Sandbox, *, is_verbose: bool
) -> pb.PodSandboxStatusResponse:
    """Return the answer to `PodSandboxStatus`."""
    return pb.PodSandboxStatusResponse(
        status=sandbox_status(sandbox),
        info={"info": _verbose_info(context, sandbox)} if is_verbose else {},
        containers_statuses=[
            container_status(container) for container in context.inventory.containers_of(sandbox)
        ],
        timestamp=context.now_ns(),
    )


def _verbose_info(context: EngineContext, sandbox: Sandbox) -> str:
    record = sandbox.record
    info = {
        "pid": record.task_pid,
        "runtimeHandler": record.definition.name,
        "runtimeBinary": str(record.program),
        "namespaces": str(context.paths.namespaces / record.id),
        "network": msgspec.json.decode(record.cni_result.result) if record.cni_result else None,
    }
    return msgspec.json.encode(info).decode()


# PortForward: connections to a port in a sandbox's network namespace.
#
# Source: CRI `PortForward`.


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
    """Return whether servers of a handler's pods listen in a guest, not in the pod's namespace.

    gVisor's network stack is such a guest, unless configured to use the namespace's.
    """
    options = definition.options
    if isinstance(options, RunscOptions):
        return options.network != "host" and "--network=host" not in options.global_arguments
    return isinstance(options, ShimOptions) and options.is_virtual_machine
