"""ContainerStatus: a container's status, with runtime details when `verbose` is set.

Source: CRI `ContainerStatus`.
"""

from __future__ import annotations

import msgspec

from moorage.cri import pb
from moorage.engine.context import EngineContext
from moorage.engine.inventory import Container
from moorage.engine.messages import container_status


def container_status_response(
    context: EngineContext, container: Container, *, is_verbose: bool
) -> pb.ContainerStatusResponse:
    """Return the answer to `ContainerStatus`."""
    info = {"info": _verbose_info(context, container)} if is_verbose else {}
    return pb.ContainerStatusResponse(status=container_status(container), info=info)


def _verbose_info(context: EngineContext, container: Container) -> str:
    record, sandbox = container.record, container.sandbox.record
    info = {
        "sandboxID": record.sandbox_id,
        "pid": record.pid,
        "runtimeHandler": sandbox.definition.name,
        "runtimeBinary": str(sandbox.program),
        "bundle": str(context.paths.bundle(record.id)),
        "cgroup": container.cgroup.path,
    }
    return msgspec.json.encode(info).decode()
