"""What a new engine makes of what an earlier one left: by kill, upgrade or reboot.

    sandbox      its namespaces are there, and its own task lives → goes on; else stopped;
                 being made: undone, as nobody was told of it
    container    created: stays, if its bundle does · being started: ended, nobody knows how far it
                 came · running: watched on, or its recorded end is taken over

What belongs to nobody is removed. Source: CRI; the kubelet makes anew what has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from moorage.api.logs import Log
from moorage.cri import pb
from moorage.engine.containers.life import Containers
from moorage.engine.context import EngineContext
from moorage.engine.errors import EngineError
from moorage.engine.inventory import Container, Sandbox
from moorage.engine.leftovers import remove_leftover
from moorage.engine.records import Stage
from moorage.engine.sandboxes.files import remove_files
from moorage.engine.sandboxes.life import Sandboxes
from moorage.handlers.adapters import AdapterError
from moorage.linux import pinned
from moorage.linux.mounts import current_mounts, mounts_below, unmount

log = Log(__name__)


async def recover(context: EngineContext, sandboxes: Sandboxes, containers: Containers) -> None:
    """Take over what there is. Raises OSError; what cannot be taken over is logged and ended."""
    inventory = context.inventory
    inventory.load()
    known = frozenset(each.id for each in inventory.sandboxes)
    await context.networks.recover(known)
    # A runtime may take seconds to end what was half made, and the others need not wait for it.
    async with asyncio.TaskGroup() as tasks:
        for container in inventory.containers:
            tasks.create_task(_take_over(context, containers, container))
        for half_made in inventory.half_made:
            tasks.create_task(_undo(sandboxes, half_made))
    for sandbox in inventory.sandboxes:
        if sandbox.record.is_ready:
            await _take_over_sandbox(context, sandboxes, sandbox)
    await context.images.recover([each.id for each in inventory.containers])
    # What could not be undone is needed for the next try.
    known |= {each.id for each in inventory.half_made}
    bundles = known | {each.id for each in inventory.containers}
    await asyncio.to_thread(_sweep, context, known, bundles)


@contextmanager
def _apart(what: str, its_id: str) -> Iterator[None]:
    """Keep one thing's trouble to itself: an engine that does not start helps nobody.

    Its record stays, so removal or the next engine tries again.
    """
    try:
        yield
    except EngineError as error:
        log.warning(f"{what} cannot be taken over", id=its_id, reason=error)
    except Exception:
        log.exception(f"{what} cannot be taken over", id=its_id)


async def _take_over(context: EngineContext, containers: Containers, container: Container) -> None:
    stage = container.record.stage
    with _apart("container", container.id):
        if stage is Stage.RUNNING:
            # The watch finds a recorded end as well as a container that goes on.
            context.start(containers.watch(container))
        elif stage is Stage.STARTING:
            try:
                await containers.forget_half_started(container)
            finally:
                # Its removal tries again what failed.
                containers.note_unknown_end(container)
        elif stage is Stage.CREATED and not _has_bundle(context, container):
            containers.note_unknown_end(container)


async def _undo(sandboxes: Sandboxes, sandbox: Sandbox) -> None:
    with _apart("half-made sandbox", sandbox.id):
        await sandboxes.undo(sandbox)


async def _take_over_sandbox(
    context: EngineContext, sandboxes: Sandboxes, sandbox: Sandbox
) -> None:
    with _apart("sandbox", sandbox.id):
        if await _is_whole(context, sandbox):
            sandboxes.watch_again(sandbox)
        else:
            log.warning("what held a sandbox is gone", sandbox=sandbox.id)
            await sandboxes.stop(sandbox)


async def _is_whole(context: EngineContext, sandbox: Sandbox) -> bool:
    directory = context.paths.namespaces / sandbox.id
    options = sandbox.namespace_options
    if options.network != pb.NODE and not pinned.is_pinned(directory / pinned.NET):
        return False
    if not sandbox.record.task_pid:
        return True
    try:
        return await context.adapter(sandbox).is_alive(sandbox.task(context.paths))
    except AdapterError:
        return False


def _has_bundle(context: EngineContext, container: Container) -> bool:
    """Whether its root file system is still mounted, which a reboot ends."""
    return (context.paths.bundle(container.id) / "rootfs").is_mount()


def _sweep(context: EngineContext, sandboxes: Iterable[str], tasks: Iterable[str]) -> None:
    """Remove the directories without a record; what cannot be removed is logged."""
    paths = context.paths
    for directory, known in (
        (paths.bundles, frozenset(tasks)),
        (paths.sandbox_files("x").parent, frozenset(sandboxes)),
    ):
        for entry in directory.iterdir():
            if entry.name not in known:
                _remove(entry)
    for left in paths.scratch.iterdir():
        if left.is_file() or left.is_socket():
            remove_leftover(left)


def _remove(directory: Path) -> None:
    log.info("left behind by an earlier engine", directory=directory)
    try:
        for each in mounts_below(directory, current_mounts()):
            unmount(each.point)
        remove_files(directory)
    except OSError as error:
        log.warning(
            "what an earlier engine left cannot be removed", directory=directory, reason=error
        )
