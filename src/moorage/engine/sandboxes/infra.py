"""Infra process of a sandbox: the task that holds a shared PID namespace or a virtual machine.

Source: the pause container of other engines; KEP-495 (shareProcessNamespace).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from moorage.engine.context import EngineContext
from moorage.engine.drivers import handler_traits
from moorage.engine.errors import FailedError
from moorage.engine.inventory import Sandbox
from moorage.engine.oci import SandboxRequest, look_up_sandbox
from moorage.handlers.adapters import AdapterError
from moorage.linux.bind import bind
from moorage.linux.private import make_private_for, write_private
from moorage.linux.trees import make_directory

ROOTFS = "rootfs"


async def start_infra(context: EngineContext, sandbox: Sandbox) -> int:
    """Create the infra bundle and start its task. Returns the process id. Raises FailedError."""
    argv = await asyncio.to_thread(context.infra.prepare)
    task = sandbox.task(context.paths)
    rootfs = _create_bundle(context, sandbox, task.bundle)
    traits = handler_traits(sandbox.record.definition, sandbox.record.features)
    findings = await asyncio.to_thread(look_up_sandbox, sandbox.config, traits, context.host)
    request = SandboxRequest(
        sandbox=sandbox.spec_context(context.paths), argv=argv, rootfs=rootfs, handler=traits
    )
    document = context.specs.sandbox(request, findings)
    write_private(task.bundle / "config.json", msgspec.json.encode(document))
    adapter = context.adapter(sandbox)
    try:
        pid = await adapter.create(task)
        await adapter.start(task)
    except AdapterError as error:
        raise FailedError(f"failed to start the sandbox of pod {sandbox.pod}: {error}") from error
    return pid


async def delete_infra(context: EngineContext, sandbox: Sandbox) -> None:
    """Kill and delete the infra task; absent is no error. Raises FailedError."""
    try:
        await context.adapter(sandbox).delete(sandbox.task(context.paths))
    except AdapterError as error:
        raise FailedError(f"failed to stop the sandbox of pod {sandbox.pod}: {error}") from error


def _create_bundle(context: EngineContext, sandbox: Sandbox, bundle: Path) -> Path:
    """Create the infra task's bundle. Returns its root file system."""
    rootfs = context.infra.rootfs
    mappings = sandbox.id_mappings
    make_private_for(bundle, mappings)
    if mappings is None:
        return rootfs
    # Root of a user namespace cannot pass through the engine's data directory.
    mount_point = bundle / ROOTFS
    make_directory(mount_point)
    bind(rootfs, mount_point, is_read_only=True)
    return mount_point
