"""Container exit: wait for it, record exit code and termination reason, delete the task.

One watch for each running container sees every exit, whatever caused it. Source: CRI
`ContainerStatus`; reasons as containerd and the kubelet report them.
"""

from __future__ import annotations

import signal

import msgspec

from moorage.engine.containers.task import delete_task
from moorage.engine.context import EngineContext
from moorage.engine.handlers.adapters import Exit
from moorage.engine.handlers.definition import CgroupDriver
from moorage.engine.inventory import Container, Sandbox
from moorage.engine.records import Stage
from moorage.wire.cri import pb

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
