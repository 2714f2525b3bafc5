"""RunPodSandbox: create a pod's cgroup, namespaces, network and files under a runtime handler.

    check the config and handler → reserve the name → record as incomplete → pod cgroup
    → namespaces and network → files → infra process → record → events

An infra process runs only where the pod's containers share a PID namespace or the handler's runtime
runs them in a virtual machine. A failed step undoes the earlier ones. Source: CRI `RunPodSandbox`;
KEP-585 for the handler.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from moorage.engine.cgroups import DEFAULT_PARENT
from moorage.engine.containers.lifecycle import remove_container
from moorage.engine.context import EngineContext
from moorage.engine.drivers import handler_traits, with_cgroup_driver
from moorage.engine.errors import FailedError, InvalidError
from moorage.engine.handlers.templates import OfferedHandler
from moorage.engine.inventory import Sandbox, new_id, sandbox_name
from moorage.engine.oci import verify_sandbox_namespaces
from moorage.engine.paths import EnginePaths
from moorage.engine.records import SandboxRecord
from moorage.engine.sandboxes.infra import ROOTFS, delete_infra, start_infra, warn_of_guest
from moorage.engine.sandboxes.infra_watch import watch_infra
from moorage.engine.sandboxes.namespaces import (
    create_namespaces,
    create_pod_cgroup,
    remove_files,
    remove_pod_cgroup,
    write_files,
)
from moorage.engine.sandboxes.stop import stop_pod_sandbox
from moorage.linux.mounts import unmount_all
from moorage.linux.trust import distrust
from moorage.wire.cri import pb

# RemovePodSandbox: stop the sandbox, then remove its containers, cgroup, directories and record.
#
# Each step is idempotent, so a removal that was interrupted can be repeated. Source: CRI
# `RemovePodSandbox`.


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


async def run_pod_sandbox(
    context: EngineContext, config: pb.PodSandboxConfig, handler_name: str
) -> Sandbox:
    """Create a sandbox under a handler, the default one for "".

    Raises InvalidError, FailedError for a handler that is unknown or unavailable,
    PreconditionError when the name is taken, EngineError; leaves nothing behind then.
    """
    _validate(config)
    # A busy host takes seconds to start a program, and a refusal would delay the pod for longer.
    await context.wait_answered(handler_name)
    handler = _find_handler(context, handler_name)
    program = _trusted_program(handler)
    definition = with_cgroup_driver(handler.definition, context.options.cgroup_driver)
    adapter = context.drivers.adapter(definition, program)
    traits = handler_traits(definition, handler.features)
    verify_sandbox_namespaces(config.linux.security_context.namespace_options, traits)
    sandbox_id = new_id()
    with context.inventory.sandboxes.reserved(sandbox_name(config), sandbox_id):
        sandbox = Sandbox(
            SandboxRecord(
                id=sandbox_id,
                config=config.SerializeToString(),
                handler=handler_name,
                definition=definition,
                program=program,
                features=handler.features,
                created_at_ns=context.now_ns(),
            )
        )
        async with AsyncExitStack() as cleanup:
            needs_infra = adapter.needs_sandbox or sandbox.shares_processes
            await _create(context, sandbox, cleanup, needs_infra=needs_infra)
            cleanup.pop_all()
    context.publish_sandbox_event(sandbox, pb.CONTAINER_CREATED_EVENT)
    context.publish_sandbox_event(sandbox, pb.CONTAINER_STARTED_EVENT)
    return sandbox


async def _create(
    context: EngineContext, sandbox: Sandbox, cleanup: AsyncExitStack, *, needs_infra: bool
) -> None:
    cleanup.push_async_callback(asyncio.to_thread, remove_directories, context.paths, sandbox.id)
    cleanup.callback(context.inventory.delete_sandbox, sandbox)
    cleanup.push_async_callback(remove_pod_cgroup, context, sandbox.id)
    context.inventory.save_incomplete(sandbox)
    await create_pod_cgroup(context, sandbox)
    cni_result = await create_namespaces(context, sandbox, cleanup)
    write_files(
        context.paths.sandbox_files(sandbox.id),
        sandbox.config,
        sandbox.hostname,
        cni_result.addresses if cni_result else (),
        sandbox.id_mappings,
    )
    infra_pid = 0
    if needs_infra:
        cleanup.push_async_callback(delete_infra, context, sandbox)
        infra_pid = await start_infra(context, sandbox)
        await warn_of_guest(context, sandbox)
        context.start(watch_infra(context, sandbox))
    record = msgspec.structs.replace(sandbox.record, cni_result=cni_result, task_pid=infra_pid)
    context.inventory.save_sandbox(sandbox, record)


def _validate(config: pb.PodSandboxConfig) -> None:
    metadata = config.metadata
    if not metadata.name or not metadata.namespace or not metadata.uid:
        raise InvalidError("sandbox config must have metadata with a name, a namespace and a uid")


def _find_handler(context: EngineContext, name: str) -> OfferedHandler:
    catalogue = context.handlers()
    handler = catalogue.find(name)
    if handler is None:
        names = ", ".join(sorted(catalogue.handlers)) or "none"
        raise FailedError(
            f'no runtime for "{name}" is configured; this engine has the handlers {names}'
        )
    if not handler.is_available:
        verdict = handler.verdict
        raise FailedError(
            f'runtime handler "{handler.name}" is not available: {verdict.reason} '
            f"({verdict.remedy})"
        )
    return handler


def _trusted_program(handler: OfferedHandler) -> Path:
    if handler.program is None:
        raise FailedError(f'runtime handler "{handler.name}" has no program')
    untrusted = distrust(handler.program)
    if untrusted is not None:
        raise FailedError(f'refusing to run runtime handler "{handler.name}": {untrusted}')
    return handler.program
