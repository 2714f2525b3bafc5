"""Sandbox namespaces: created and pinned for RunPodSandbox, released by StopPodSandbox.

With a pod network they come attached from the network pool. On the host's network only an IPC
namespace is created, if the pod wants its own.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from moorage.engine.context import EngineContext
from moorage.engine.errors import FailedError
from moorage.engine.inventory import Sandbox
from moorage.engine.networks import CniResult, ConflistError
from moorage.engine.oci import sandbox_sysctls
from moorage.engine.sandboxes.files import unmount_shared_memory
from moorage.engine.sandboxes.network import cni_runtime_conf
from moorage.linux import pinned
from moorage.wire.cri import pb


async def create_namespaces(
    context: EngineContext, sandbox: Sandbox, cleanup: AsyncExitStack
) -> CniResult | None:
    """Create a sandbox's namespaces. Returns the CNI result, None on the host's network.

    Pushes their release on `cleanup`. Raises EngineError, OSError.
    """
    if not sandbox.is_on_host_network:
        cni_result = await _attach_network(context, sandbox)
        cleanup.push_async_callback(release_namespaces, context, sandbox, cni_result)
        return cni_result
    if sandbox.namespace_options.ipc != pb.NODE:
        cleanup.push_async_callback(release_namespaces, context, sandbox, None)
        await asyncio.to_thread(
            pinned.create,
            context.paths.namespaces / sandbox.id,
            (pinned.IPC,),
            sysctls=_sysctls(sandbox),
            mappings=sandbox.id_mappings,
        )
    return None


async def release_namespaces(
    context: EngineContext, sandbox: Sandbox, cni_result: CniResult | None
) -> None:
    """Unmount the shared memory, detach the network and remove the namespaces.

    Absent ones are no error. Raises CniError, OSError.
    """
    paths = context.paths
    unmount_shared_memory(paths.sandbox_files(sandbox.id))
    await context.networks.release(paths.namespaces / sandbox.id, cni_result)


async def _attach_network(context: EngineContext, sandbox: Sandbox) -> CniResult:
    config = sandbox.config
    try:
        _, cni_result = await context.networks.acquire(
            sandbox.id,
            config.hostname,
            _sysctls(sandbox),
            cni_runtime_conf(sandbox.id, config),
            sandbox.id_mappings,
        )
    except (ConflistError, OSError) as error:
        raise FailedError(f"no network for sandbox {sandbox.id}: {error}") from error
    return cni_result


def _sysctls(sandbox: Sandbox) -> dict[Path, str]:
    """Return the sysctl files to write in the sandbox's namespaces, with their values."""
    return {sysctl.file: sysctl.value for sysctl in sandbox_sysctls(sandbox.config)}
