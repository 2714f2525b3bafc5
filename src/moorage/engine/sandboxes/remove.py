"""RemovePodSandbox: stop the sandbox, then remove its containers, cgroup, directories and record.

Each step is idempotent, so a removal that was interrupted can be repeated. Source: CRI
`RemovePodSandbox`.
"""

from __future__ import annotations

import asyncio

from moorage.engine.cgroups import DEFAULT_PARENT
from moorage.engine.containers.remove import remove_container
from moorage.engine.context import EngineContext
from moorage.engine.inventory import Sandbox
from moorage.engine.paths import EnginePaths
from moorage.engine.sandboxes.files import remove_files
from moorage.engine.sandboxes.infra import ROOTFS, delete_infra
from moorage.engine.sandboxes.pod_cgroup import remove_pod_cgroup
from moorage.engine.sandboxes.stop import stop_pod_sandbox
from moorage.linux.bind import unmount_all
from moorage.wire.cri import pb


async def remove_pod_sandbox(context: EngineContext, sandbox: Sandbox) -> None:
    """Remove a sandbox with its containers, stopping it first.

    Raises EngineError, ExceptionGroup of those, OSError; can be repeated.
    """
    await stop_pod_sandbox(context, sandbox)
    async with asyncio.TaskGroup() as tasks:
        for container in context.inventory.containers_of(sandbox):
            tasks.create_task(remove_container(context, container))
    async with sandbox.lock:
        await remove_pod_cgroup(context, sandbox.id)
        await asyncio.to_thread(remove_directories, context.paths, sandbox.id)
        _remove_default_parent(context, sandbox)
        context.inventory.delete_sandbox(sandbox)
    context.publish_sandbox_event(sandbox, pb.CONTAINER_DELETED_EVENT)


async def remove_incomplete_sandbox(context: EngineContext, sandbox: Sandbox) -> None:
    """Remove a sandbox whose creation an earlier engine did not finish. Raises EngineError.

    The network pool releases its namespaces, as all those without a sandbox.
    """
    if context.paths.bundle(sandbox.id).is_dir():
        await delete_infra(context, sandbox)
    await remove_pod_cgroup(context, sandbox.id)
    await asyncio.to_thread(remove_directories, context.paths, sandbox.id)
    context.inventory.delete_sandbox(sandbox)


def remove_directories(paths: EnginePaths, sandbox_id: str) -> None:
    """Remove a sandbox's files and bundle; absent is no error. Blocks. Raises OSError."""
    remove_files(paths.sandbox_files(sandbox_id))
    unmount_all(paths.bundle(sandbox_id) / ROOTFS)
    remove_files(paths.bundle(sandbox_id))


def _remove_default_parent(context: EngineContext, sandbox: Sandbox) -> None:
    """Remove the engine's own parent cgroup with the last pod that names no `cgroup_parent`."""
    cgroup = sandbox.cgroup
    is_default = cgroup.is_parent_shared and cgroup.parent == DEFAULT_PARENT
    # A sandbox that is being created may be about to create its cgroup there.
    if is_default and not context.inventory.sandboxes.has_others(sandbox):
        context.cgroups.remove_if_empty_now(cgroup.parent)
