"""ContainerStatus: a container's status, with runtime details when `verbose` is set.

The details include the OCI configuration, under the name that containerd and CRI-O give it: a node
agent finds there the files that the engine mounts. Source: CRI `ContainerStatus`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from moorage.engine.context import EngineContext
from moorage.engine.inventory import Container
from moorage.engine.messages import container_status
from moorage.wire.cri import pb


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
