"""A container's state: list, status, limits; checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from moorage.engine.context import EngineContext
from moorage.engine.inventory import Container
from moorage.engine.labels import has_labels
from moorage.engine.messages import container_item, container_state, container_status
from moorage.engine.oci import resources_of
from moorage.engine.records import Stage
from moorage.wire.cri import pb

# ListContainers: the containers that match a filter. Also StreamContainers.
#
# Source: CRI `ContainerFilter`: an id prefix, a state, a sandbox id prefix, labels; all must match.


def list_containers(
    containers: Iterable[Container], container_filter: pb.ContainerFilter
) -> list[pb.Container]:
    """Return the items of the containers that match the filter."""
    return [container_item(match) for match in filter_containers(containers, container_filter)]


def filter_containers(
    containers: Iterable[Container], container_filter: pb.ContainerFilter
) -> Iterator[Container]:
    """Yield the containers that match the filter."""
    for container in containers:
        if container_filter.id and not container.id.startswith(container_filter.id):
            continue
        has_state = container_filter.HasField("state")
        if has_state and container_filter.state.state != container_state(container):
            continue
        if not container.record.sandbox_id.startswith(container_filter.pod_sandbox_id):
            continue
        if has_labels(container.config.labels, container_filter.label_selector):
            yield container


# ContainerStatus: a container's status, with runtime details when `verbose` is set.
#
# The details include the OCI configuration, under the name that containerd and CRI-O give it: a
# node agent finds there the files that the engine mounts. Source: CRI `ContainerStatus`.


async def container_status_response(
    context: EngineContext, container: Container, *, is_verbose: bool
) -> pb.ContainerStatusResponse:
    """Return the answer to `ContainerStatus`."""
    info = {"info": await _verbose_info(context, container)} if is_verbose else {}
    return pb.ContainerStatusResponse(status=container_status(container), info=info)


async def _verbose_info(context: EngineContext, container: Container) -> str:
    record, sandbox = container.record, container.sandbox.record
    bundle = context.paths.bundle(record.id)
    info: dict[str, object] = {
        "sandboxID": record.sandbox_id,
        "pid": record.pid,
        "runtimeHandler": sandbox.definition.name,
        "runtimeBinary": str(sandbox.program),
        "bundle": str(bundle),
        "cgroup": container.cgroup.path,
    }
    runtime_spec = await asyncio.to_thread(_runtime_spec, bundle / "config.json")
    if runtime_spec is not None:
        info["runtimeSpec"] = runtime_spec
    return msgspec.json.encode(info).decode()


def _runtime_spec(path: Path) -> msgspec.Raw | None:
    """Return the OCI configuration; None after the container's removal has begun. Blocks."""
    try:
        return msgspec.Raw(path.read_bytes())
    except FileNotFoundError:
        return None


# UpdateContainerResources: change the limits of a running or created container.
#
# A running container's cgroup is changed by its runtime, a created one's `config.json` is
# rewritten. Source: CRI `UpdateContainerResources`.


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


# CheckpointContainer: write a running container's checkpoint; the container keeps running.
#
# Source: CRI `CheckpointContainer`.


async def checkpoint_container(context: EngineContext, container_id: str, directory: Path) -> None:
    """Write a checkpoint into a directory, created if absent.

    Raises NotFoundError, PreconditionError unless the container runs, OSError, AdapterError.
    """
    container = context.inventory.find_running(container_id)
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    await context.adapter(container.sandbox).checkpoint(
        container.task(context.paths), directory, keeps_running=True
    )
