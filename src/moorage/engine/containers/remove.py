"""RemoveContainer: kill the container if it runs, then delete its task, bundle and record.

Source: CRI `RemoveContainer`.
"""

from __future__ import annotations

from moorage.engine.containers.bundle import remove_bundle
from moorage.engine.containers.stop import stop_container
from moorage.engine.containers.task import delete_task
from moorage.engine.context import EngineContext
from moorage.engine.inventory import Container
from moorage.wire.cri import pb


async def remove_container(context: EngineContext, container: Container) -> None:
    """Remove a container, killing it first. Raises EngineError; can be repeated."""
    await stop_container(context, container, 0)
    async with container.lock:
        if context.inventory.containers.get(container.id) is not container:
            return
        await delete_task(context, container)
        await remove_bundle(context, container.id, container.record.image_mounts)
        context.inventory.delete_container(container)
    context.publish_container_event(container, pb.CONTAINER_DELETED_EVENT)
