"""CreateContainer: reserve the name, create the bundle, record the container.

Source: CRI `CreateContainer`.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from moorage.cri import pb
from moorage.engine.containers.bundle import create_bundle, remove_bundle
from moorage.engine.context import EngineContext
from moorage.engine.errors import InvalidError, PreconditionError
from moorage.engine.inventory import Container, Sandbox, container_name, new_id


async def create_container(
    context: EngineContext, sandbox: Sandbox, config: pb.ContainerConfig
) -> Container:
    """Create a container in a sandbox. Raises EngineError; leaves nothing behind then."""
    if not config.metadata.name:
        raise InvalidError("container config must have metadata with a name")
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
