"""Recovery: what a new engine does with the sandboxes and containers of an earlier one.

    sandbox      ready: kept if its namespaces are pinned and its infra process is alive, else
                 stopped · creation incomplete: removed, since no client knows of it
    container    created: kept if its bundle is mounted · starting: killed and recorded as exited
                 with an unknown code · running: watched, which finds a recorded exit too

Directories and sockets without a record are removed; those with an unreadable one stay, since its
processes may run. Source: CRI; the kubelet restarts what has exited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from moorage.api.logs import Log
from moorage.engine.containers.bundle import ROOTFS
from moorage.engine.containers.exec import delete_task
from moorage.engine.containers.lifecycle import note_pod_kills, record_unknown_exit, watch_exit
from moorage.engine.context import EngineContext
from moorage.engine.errors import EngineError
from moorage.engine.handlers.adapters import AdapterError
from moorage.engine.inventory import Container, Sandbox
from moorage.engine.leftovers import remove_leftover
from moorage.engine.oci import SandboxFiles
from moorage.engine.paths import EnginePaths
from moorage.engine.records import Stage
from moorage.engine.sandboxes.infra_watch import watch_infra
from moorage.engine.sandboxes.namespaces import remove_files
from moorage.engine.sandboxes.run import remove_incomplete_sandbox
from moorage.engine.sandboxes.stop import stop_pod_sandbox
from moorage.linux import pinned
from moorage.linux.mounts import (
    current_mounts,
    is_mount_point,
    isolate,
    isolate_below,
    mounts_below,
    unmount,
)

log = Log(__name__)


async def recover(context: EngineContext) -> None:
    """Load the records and recover each sandbox and container. Raises OSError.

    A sandbox or container that cannot be recovered is logged; it does not affect the others.
    """
    inventory = context.inventory
    inventory.load()
    unreadable = inventory.unreadable
    sandbox_ids = unreadable | {sandbox.id for sandbox in inventory.sandboxes}
    await context.networks.recover(sandbox_ids)
    # Concurrently: a runtime may take seconds to kill one of them.
    async with asyncio.TaskGroup() as tasks:
        for container in inventory.containers:
            tasks.create_task(_recover_container(context, container))
        for incomplete in inventory.incomplete:
            tasks.create_task(_remove_incomplete(context, incomplete))
    for sandbox in inventory.sandboxes:
        if sandbox.record.is_ready:
            await _recover_sandbox(context, sandbox)
    container_ids = unreadable | {container.id for container in inventory.containers}
    await context.images.recover(container_ids)
    # The next engine needs the directories of those whose removal failed.
    sandbox_ids |= {incomplete.id for incomplete in inventory.incomplete}
    await asyncio.to_thread(_remove_leftovers, context, sandbox_ids, sandbox_ids | container_ids)


@contextmanager
def _isolated(kind: str, item_id: str) -> Iterator[None]:
    """Isolate failures: one bad record must not keep the engine from starting.

    Logs what the block raises. The record stays, so that removal or the next engine retries.
    """
    try:
        yield
    except EngineError as error:
        log.warning(f"{kind} recovery failed", id=item_id, reason=error)
    except Exception:
        log.exception(f"{kind} recovery failed", id=item_id)


async def _recover_container(context: EngineContext, container: Container) -> None:
    stage = container.record.stage
    with _isolated("container", container.id):
        if stage is Stage.RUNNING:
            await note_pod_kills(context, container.sandbox)
            # The watch returns a recorded exit at once.
            context.start(watch_exit(context, container))
        elif stage is Stage.STARTING:
            try:
                await delete_task(context, container)
            finally:
                # RemoveContainer retries a failed deletion.
                record_unknown_exit(context, container)
        elif stage is Stage.CREATED and not _has_bundle(context, container):
            record_unknown_exit(context, container)


async def _remove_incomplete(context: EngineContext, sandbox: Sandbox) -> None:
    with _isolated("incomplete sandbox", sandbox.id):
        await remove_incomplete_sandbox(context, sandbox)


async def _recover_sandbox(context: EngineContext, sandbox: Sandbox) -> None:
    with _isolated("sandbox", sandbox.id):
        if not await _is_intact(context, sandbox):
            log.warning("namespaces or infra process of sandbox are gone", sandbox=sandbox.id)
            await stop_pod_sandbox(context, sandbox)
        elif sandbox.record.task_pid:
            context.start(watch_infra(context, sandbox))


async def _is_intact(context: EngineContext, sandbox: Sandbox) -> bool:
    if not _has_runtime_files(context.paths, sandbox):
        return False
    if not sandbox.record.task_pid:
        return True
    try:
        return await context.adapter(sandbox).is_alive(sandbox.task(context.paths))
    except AdapterError:
        return False


def _has_runtime_files(paths: EnginePaths, sandbox: Sandbox) -> bool:
    """Return whether the sandbox's namespaces and files are still there: not after a reboot."""
    directory = paths.namespaces / sandbox.id
    files = SandboxFiles.of(paths.sandbox_files(sandbox.id), sandbox.config)
    if not sandbox.is_on_host_network and not pinned.is_pinned(directory / pinned.NET):
        return False
    if files.shm is not None:
        return pinned.is_pinned(directory / pinned.IPC) and is_mount_point(files.shm)
    return files.hostname is not None and files.hostname.exists()


def _has_bundle(context: EngineContext, container: Container) -> bool:
    """Return whether the container's root file system is still mounted: not after a reboot."""
    return is_mount_point(context.paths.bundle(container.id) / ROOTFS)


def _remove_leftovers(
    context: EngineContext, sandbox_ids: Iterable[str], task_ids: Iterable[str]
) -> None:
    """Remove the directories without a record; failures are logged."""
    paths = context.paths
    for directory, ids in (
        (paths.bundles, frozenset(task_ids)),
        (paths.sandbox_files("x").parent, frozenset(sandbox_ids)),
    ):
        for entry in directory.iterdir():
            if entry.name not in ids:
                _remove_directory(entry)
    for entry in paths.scratch.iterdir():
        if entry.is_file() or entry.is_socket():
            remove_leftover(entry)


def _remove_directory(directory: Path) -> None:
    log.info("removing leftover of an earlier engine", directory=directory)
    try:
        isolate_below(directory)
        for mount in mounts_below(directory, current_mounts()):
            isolate(mount.point)
            unmount(mount.point)
        remove_files(directory)
    except OSError as error:
        log.warning(
            "leftover of an earlier engine cannot be removed", directory=directory, reason=error
        )
