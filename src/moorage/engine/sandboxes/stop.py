"""StopPodSandbox: kill the pod's containers, delete the infra process, release the network.

Each step is idempotent, so a stop that was interrupted can be repeated. Source: CRI
`StopPodSandbox`.
"""

from __future__ import annotations

import asyncio

import msgspec

from moorage.engine.containers.lifecycle import stop_container
from moorage.engine.context import EngineContext
from moorage.engine.inventory import Sandbox
from moorage.engine.sandboxes.infra import delete_infra
from moorage.engine.sandboxes.namespaces import release_namespaces
from moorage.wire.cri import pb


async def stop_pod_sandbox(context: EngineContext, sandbox: Sandbox) -> None:
    """Stop a sandbox; a stopped one is no error. Raises EngineError, ExceptionGroup of those."""
    async with sandbox.lock:
        if not sandbox.record.is_ready:
            return
        await _stop_containers(context, sandbox)
        if sandbox.record.task_pid:
            await delete_infra(context, sandbox)
        await release_namespaces(context, sandbox, sandbox.record.cni_result)
        record = msgspec.structs.replace(sandbox.record, is_ready=False, task_pid=0)
        context.inventory.save_stopped_sandbox(sandbox, record)
    context.publish_sandbox_event(sandbox, pb.CONTAINER_STOPPED_EVENT)


async def _stop_containers(context: EngineContext, sandbox: Sandbox) -> None:
    containers = context.inventory.containers_of(sandbox)
    async with asyncio.TaskGroup() as tasks:
        for container in containers:
            tasks.create_task(stop_container(context, container, 0))
    if sandbox.record.task_pid:
        # The exit watch deletes their tasks under the lock, and needs the infra process for that.
        for container in containers:
            async with container.lock:
                pass
