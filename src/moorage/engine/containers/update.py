"""UpdateContainerResources: change the limits of a running or created container.

A running container's cgroup is changed by its runtime, a created one's `config.json` is rewritten.
Source: CRI `UpdateContainerResources`.
"""

from __future__ import annotations

import msgspec

from moorage.engine.context import EngineContext
from moorage.engine.inventory import Container
from moorage.engine.oci import resources_of
from moorage.engine.records import Stage
from moorage.wire.cri import pb


async def update_container_resources(
    context: EngineContext, container: Container, resources: pb.LinuxContainerResources
) -> None:
    """Apply and record resource limits; an exited container is left alone. Raises EngineError."""
    async with container.lock:
        if container.record.stage is not Stage.EXITED:
            await _update(context, container, resources)


async def _update(
    context: EngineContext, container: Container, resources: pb.LinuxContainerResources
) -> None:
    config = pb.ContainerConfig()
    config.CopyFrom(container.config)
    config.linux.resources.MergeFrom(resources)
    oci_resources = resources_of(resources, context.host)
    task = container.task(context.paths)
    if container.is_running:
        await context.adapter(container.sandbox).update(task, oci_resources)
    else:
        file = task.bundle / "config.json"
        document = msgspec.json.decode(file.read_bytes())
        document["linux"]["resources"].update(oci_resources)
        file.write_bytes(msgspec.json.encode(document))
    context.inventory.update_container(container, config=config.SerializeToString())
    container.config = config
