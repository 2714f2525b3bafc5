"""Infra process of a sandbox: the task that holds a shared PID namespace or a virtual machine.

Source: the pause container of other engines; KEP-495 (shareProcessNamespace).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from moorage.api.logs import Log
from moorage.engine.context import EngineContext
from moorage.engine.drivers import handler_traits
from moorage.engine.errors import FailedError
from moorage.engine.handlers.adapters import AdapterError
from moorage.engine.handlers.definition import ShimOptions
from moorage.engine.inventory import Sandbox
from moorage.engine.oci import SandboxRequest, look_up_sandbox
from moorage.linux.cgroups import GUEST_REMEDY, KATA_CONFIGURATION, outside_cgroup
from moorage.linux.mounts import bind
from moorage.linux.trees import make_directory
from moorage.linux.trust import make_private_for, write_private

ROOTFS = "rootfs"
_REMOVE_DEADLINE_S = 20.0

log = Log(__name__)


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
    # A shim whose creation failed, or that was killed, leaves them, with what runs in them.
    for path in sandbox.guest_cgroups:
        await context.cgroups.remove(path, _REMOVE_DEADLINE_S)


async def warn_of_guest(context: EngineContext, sandbox: Sandbox) -> None:
    """Log a warning if a pod's virtual machine runs outside the pod's cgroup, once a handler."""
    definition = sandbox.record.definition
    path = outside_cgroup(sandbox.id)
    if not sandbox.may_have_guest or definition.name in context.warned_of_guests:
        return
    if not await context.cgroups.exists(path):
        return
    context.warned_of_guests.add(definition.name)
    options = definition.options
    named = options.config_path if isinstance(options, ShimOptions) else None
    log.warning(
        "virtual machines of this handler run outside their pods' cgroups: limits of pods do not "
        f"bind them; set {GUEST_REMEDY} in {named or KATA_CONFIGURATION}",
        handler=definition.name, cgroup=path,
    )  # fmt: skip


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
