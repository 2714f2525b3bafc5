"""StartContainer: create and start the container's task, then watch for its exit.

The record says STARTING before the runtime is called, so that a new engine knows that the task may
exist. Source: CRI `StartContainer`; exit code 128 and reason StartError as containerd reports them.
"""

from __future__ import annotations

from dataclasses import replace

from moorage.api.logs import Log
from moorage.engine.containers.bundle import ROOTFS
from moorage.engine.containers.exit import note_pod_kills, record_exit, watch_exit
from moorage.engine.containers.task import delete_task
from moorage.engine.context import EngineContext
from moorage.engine.errors import FailedError, PreconditionError
from moorage.engine.handlers.adapters import Adapter, AdapterError, Exit, Task
from moorage.engine.inventory import Container
from moorage.engine.records import Stage
from moorage.wire.cri import pb

log = Log(__name__)

START_FAILED = 128
_START_ERROR = "StartError"


async def start_container(context: EngineContext, container: Container) -> None:
    """Start a created container. Raises EngineError; a failed start is an exit with code 128."""
    async with container.lock:
        stage = container.record.stage
        if stage is not Stage.CREATED:
            raise PreconditionError(
                f"container {container.id} is {stage}: only a created one can be started"
            )
        if not container.sandbox.record.is_ready:
            raise PreconditionError(f"sandbox {container.sandbox.id} is not ready")
        adapter = context.adapter(container.sandbox)
        context.inventory.update_container(container, stage=Stage.STARTING)
        try:
            await note_pod_kills(context, container.sandbox)
            task = await _with_rootfs(context, adapter, container)
            pid = await _start_task(adapter, container, task)
        except BaseException as error:
            await _record_failed_start(context, container, error)
            raise
        context.inventory.update_container(
            container, stage=Stage.RUNNING, pid=pid, started_at_ns=context.now_ns()
        )
    context.start(watch_exit(context, container))
    context.publish_container_event(container, pb.CONTAINER_STARTED_EVENT)


async def _with_rootfs(context: EngineContext, adapter: Adapter, container: Container) -> Task:
    """Return the container's task; its root filesystem is mounted, or in it. Raises FailedError."""
    task = container.task(context.paths)
    # Owners of a user namespace are in the mount that the engine made.
    if not adapter.mounts_rootfs or task.has_user_namespace:
        return task
    sources = await context.images.hand_over_rootfs(container.id, task.bundle / ROOTFS)
    return replace(task, rootfs=sources)


async def _start_task(adapter: Adapter, container: Container, task: Task) -> int:
    """Create and start the container's task. Returns its first process. Raises FailedError."""
    try:
        pid = await adapter.create(task)
        await adapter.start(task)
    except AdapterError as error:
        raise FailedError(f"failed to start container {container.id!r}: {error}") from error
    except OSError as error:
        raise FailedError(
            f"failed to start container {container.id!r}: {error.strerror or error}"
        ) from error
    return pid


async def _record_failed_start(
    context: EngineContext, container: Container, error: BaseException
) -> None:
    try:
        await delete_task(context, container)
    except FailedError as failure:
        # RemoveContainer retries it; the caller gets the reason of the failed start.
        log.warning("cleanup of failed start failed", container=container.id, reason=failure)
    record_exit(context, container, Exit(START_FAILED, context.now_ns()), _START_ERROR, str(error))
