"""PodSandboxStatus: a sandbox's status and that of its containers, with details if `verbose`.

Source: CRI `PodSandboxStatus`.
"""

from __future__ import annotations

import msgspec

from moorage.engine.context import EngineContext
from moorage.engine.inventory import Sandbox
from moorage.engine.messages import container_status, sandbox_status
from moorage.wire.cri import pb


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
