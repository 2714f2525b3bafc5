"""CreateContainer: reserve the name, create the bundle, record the container.

Source: CRI `CreateContainer`.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from moorage.engine.containers.bundle import create_bundle, remove_bundle
from moorage.engine.context import EngineContext
from moorage.engine.errors import InvalidError, PreconditionError
from moorage.engine.inventory import Container, Sandbox, container_name, new_id
from moorage.wire.cri import pb


async def create_container(
    context: EngineContext,
    sandbox: Sandbox,
    config: pb.ContainerConfig,
    sandbox_config: pb.PodSandboxConfig | None = None,
) -> Container:
    """Create a container in a sandbox. Raises EngineError; leaves nothing behind then.

    `sandbox_config` is the request's: the pod as it is now, where a debug container may be
    privileged that was not there when the sandbox was made. None is the sandbox's own.
    """
    if not config.metadata.name:
        raise InvalidError("container config must have metadata with a name")
    _verify_privilege(config, sandbox, sandbox_config or sandbox.config)
    # A sandbox that is being stopped must not get another container meanwhile.
    async with sandbox.lock:
        container = await _create(context, sandbox, config)
    context.publish_container_event(container, pb.CONTAINER_CREATED_EVENT)
    return container


async def _create(
    context: EngineContext, sandbox: Sandbox, config: pb.ContainerConfig
) -> Container:
    if not sandbox.record.is_ready:
        raise PreconditionError(f"sandbox {sandbox.id} is not ready: run a new one")
    inventory, container_id = context.inventory, new_id()
    with inventory.containers.reserved(container_name(sandbox.id, config), container_id):
        record = await create_bundle(context, container_id, config, sandbox)
        container = Container(record, sandbox)
        async with AsyncExitStack() as cleanup:
            cleanup.push_async_callback(remove_bundle, context, container_id, record.image_mounts)
            inventory.save_container(container, record)
            cleanup.pop_all()
    return container


def _verify_privilege(
    config: pb.ContainerConfig, sandbox: Sandbox, allowed: pb.PodSandboxConfig
) -> None:
    """Raise InvalidError for a privileged container in a pod without any. Source: containerd."""
    if not config.linux.security_context.privileged:
        return
    if not allowed.linux.security_context.privileged:
        raise InvalidError(
            f"no privileged container allowed in sandbox {sandbox.id}: container "
            f"{config.metadata.name!r} requests it; set privileged in the request's sandbox_config"
        )
