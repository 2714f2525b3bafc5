"""A container's life: start, signals, stop, exit, removal."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

import msgspec

from moorage.api.logs import Log
from moorage.engine.containers.bundle import ROOTFS, remove_bundle
from moorage.engine.containers.exec import delete_task, signal_task
from moorage.engine.containers.signals import signal_number
from moorage.engine.context import EngineContext
from moorage.engine.errors import FailedError, PreconditionError, TimeLimitError
from moorage.engine.handlers.adapters import Adapter, AdapterError, Exit, Task
from moorage.engine.handlers.definition import CgroupDriver
from moorage.engine.inventory import Container, Sandbox
from moorage.engine.records import Stage
from moorage.wire.cri import pb

# Container exit: wait for it, record exit code and termination reason, delete the task.
#
# One watch for each running container sees every exit, whatever caused it. Source: CRI
# `ContainerStatus`; reasons as containerd and the kubelet report them.

_UNKNOWN_CODE = 255
_KILLED_CODE = 128 + signal.SIGKILL
_COMPLETED, _ERROR, _OOM_KILLED, _UNKNOWN = "Completed", "Error", "OOMKilled", "Unknown"


async def watch_exit(context: EngineContext, container: Container) -> None:
    """Wait for a running container's exit and record it, then delete its task."""
    adapter = context.adapter(container.sandbox)
    # First of all: a task that is deleted meanwhile must not be one that nothing waits for.
    exit_ = await adapter.wait(container.task(context.paths))
    if await _is_oom_killed(context, container, exit_):
        exit_ = msgspec.structs.replace(exit_, is_out_of_memory=True)
    record_exit(context, container, exit_, termination_reason(exit_))
    async with container.lock:
        await delete_task(context, container)


def record_exit(
    context: EngineContext, container: Container, exit_: Exit, reason: str, message: str = ""
) -> None:
    """Record a container's exit and publish the event."""
    # The finish time is the exit file's mtime, whose clock is coarser than that of the start.
    finished_at_ns = max(exit_.finished_at_ns, container.record.started_at_ns)
    exit_ = msgspec.structs.replace(exit_, finished_at_ns=finished_at_ns)
    record = msgspec.structs.replace(
        container.record, stage=Stage.EXITED, exit=exit_, reason=reason, message=message
    )
    context.inventory.save_exited_container(container, record)
    container.exited.set()
    context.publish_container_event(container, pb.CONTAINER_STOPPED_EVENT)


def record_unknown_exit(context: EngineContext, container: Container) -> None:
    """Record the exit of a container that no engine observed."""
    exit_ = Exit(_UNKNOWN_CODE, context.now_ns())
    record_exit(
        context,
        container,
        exit_,
        _UNKNOWN,
        "exit status unknown: the container exited while no engine was running",
    )


def termination_reason(exit_: Exit) -> str:
    """Return an exit's reason in the container status: OOMKilled, Completed or Error."""
    if exit_.is_out_of_memory:
        return _OOM_KILLED
    return _COMPLETED if exit_.code == 0 else _ERROR


async def note_pod_kills(context: EngineContext, sandbox: Sandbox) -> None:
    """Note how many processes of a pod were killed for memory, before a container of it runs."""
    if sandbox.oom_kills is None:
        sandbox.oom_kills = await _pod_kills(context, sandbox)


async def _is_oom_killed(context: EngineContext, container: Container, exit_: Exit) -> bool:
    """Return whether the kernel killed a process of a SIGKILLed container for memory.

    systemd removes a scope with its last process, with its counts, and can be faster than conmon
    and this engine. With version 2 the counts of the pod's cgroup include those of removed ones;
    with version 1 the pod has those of other containers alone, which say nothing of this one.
    """
    sandbox = container.sandbox
    before, sandbox.oom_kills = sandbox.oom_kills, await _pod_kills(context, sandbox)
    if exit_.code not in (_KILLED_CODE, _UNKNOWN_CODE):
        return False
    if await guest_kills(context, sandbox):
        # Every container ends with its guest; a shim may not know how.
        return True
    if exit_.code == _UNKNOWN_CODE:
        return False
    own = await context.cgroups.oom_kills(container.cgroup.path)
    if context.adapter(sandbox).needs_sandbox:
        # Containers under a guest kernel are killed with that kernel, in the sandbox's cgroup.
        return bool(own) or bool(await context.cgroups.oom_kills(sandbox.cgroup.path))
    if own is None and before is not None and sandbox.oom_kills is not None:
        return sandbox.oom_kills > before
    return bool(own)


async def guest_kills(context: EngineContext, sandbox: Sandbox) -> int:
    """Return how many processes the kernel killed for memory in the cgroups of a pod's guest."""
    counts = [await context.cgroups.oom_kills(path) for path in sandbox.guest_cgroups]
    return sum(count or 0 for count in counts)


async def _pod_kills(context: EngineContext, sandbox: Sandbox) -> int | None:
    """Return how many processes of a pod were killed for memory, None if nothing counts them.

    Counted for pods of systemd alone: other cgroups stay until the engine has read them. A parent
    that no client named is shared: its count is that of other pods too. With version 1 none count.
    """
    cgroup = sandbox.cgroup
    if sandbox.cgroup_driver is not CgroupDriver.SYSTEMD or cgroup.is_parent_shared:
        return None
    return await context.cgroups.lasting_oom_kills(cgroup.parent)


# StartContainer: create and start the container's task, then watch for its exit.
#
# The record says STARTING before the runtime is called, so that a new engine knows that the task
# may exist. Source: CRI `StartContainer`; exit code 128 and reason StartError as containerd
# reports them.

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


# StopContainer: send the stop signal, then SIGKILL after the grace period.
#
# The exit itself is recorded by the exit watch (`containers/exit.py`). Source: CRI `StopContainer`.

KILL_DEADLINE_S = 30.0


async def stop_container(
    context: EngineContext,
    container: Container,
    grace_s: int,
    kill_deadline_s: float = KILL_DEADLINE_S,
) -> None:
    """Stop a container: its stop signal, then SIGKILL after `grace_s`; at once with 0.

    Returns when its exit is recorded; a container that does not run is no error. Raises
    TimeLimitError when it has not exited `kill_deadline_s` after SIGKILL, FailedError.
    """
    if container.record.stage is Stage.STARTING:
        # StartContainer holds the lock until the start has succeeded or failed.
        async with container.lock:
            pass
    if not container.is_running:
        return
    if grace_s > 0:
        number = signal_number(container.record.stop_signal) or signal.SIGTERM
        if not container.is_stopping:
            # A second call waits for the same exit; it must not send the signal again.
            container.is_stopping = True
            await signal_task(context, container, number)
        if await _exits_within(container, grace_s):
            return
    await signal_task(context, container, signal.SIGKILL)
    if not await _exits_within(container, kill_deadline_s):
        raise TimeLimitError(
            f"container {container.id} is still running {kill_deadline_s:g} s after SIGKILL"
        )


async def _exits_within(container: Container, limit_s: float) -> bool:
    try:
        async with asyncio.timeout(limit_s):
            await container.exited.wait()
    except TimeoutError:
        return False
    return True


# RemoveContainer: kill the container if it runs, then delete its task, bundle and record.
#
# Source: CRI `RemoveContainer`.


async def remove_container(
    context: EngineContext, container: Container, kill_deadline_s: float = KILL_DEADLINE_S
) -> None:
    """Remove a container, killing it first. Raises EngineError; can be repeated."""
    await stop_container(context, container, 0, kill_deadline_s)
    async with container.lock:
        if context.inventory.containers.get(container.id) is not container:
            return
        await delete_task(context, container)
        await remove_bundle(context, container.id, container.record.image_mounts)
        context.inventory.delete_container(container)
    context.publish_container_event(container, pb.CONTAINER_DELETED_EVENT)
