"""Shim task termination: works whatever state the task and its shim are in."""

from __future__ import annotations

import contextlib
import signal

from moorage.engine.handlers.adapters.adapter import AdapterError, Task, TaskNotFoundError
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.shim.keeper import Record, end_process
from moorage.engine.handlers.adapters.shim.program import ShimProgram
from moorage.engine.handlers.adapters.shim.service import ShimConnections, ShimLostError, says_gone

_END_DEADLINE_S = 10.0
SHUTDOWN_DEADLINE_S = 5.0
_GONE_S = 1.0


async def end_task(
    task: Task, record: Record, shims: ShimConnections, program: ShimProgram
) -> None:
    """Kill a task and delete it, by its shim or, if that has ended, by the shim's program.

    A task of which the shim says that it, or its files, are gone counts as deleted.

    Raises AdapterError when the shim is running but does not delete the task.
    """
    try:
        # A missing task was never created, or an engine was killed during its deletion.
        with contextlib.suppress(TaskNotFoundError):
            await _kill(task, record, shims)
            request = pb.DeleteRequest(id=task.id)
            await shims.call(record.address, "Delete", request, pb.DeleteResponse)
    except ShimLostError:
        await program.delete(task.id, task.bundle)
        return
    except AdapterError as error:
        if says_gone(str(error)):
            # Of a Kill: its runtime may be what is missing, so that it is no TaskGoneError.
            await program.delete(task.id, task.bundle)
            return
        # The sandbox's shim may be killed with it; a container's shim also serves its neighbours.
        if not task.is_sandbox or record.shim is None:
            raise
        await end_process(record.shim)
        await program.delete(task.id, task.bundle)
        return


async def shut_down(
    task: Task,
    record: Record,
    shims: ShimConnections,
    *,
    is_last: bool,
    deadline_s: float = SHUTDOWN_DEADLINE_S,
) -> None:
    """Shut down a task's shim if it has no other task.

    With `is_last` the shim is expected to exit; blocks until it has or `_GONE_S` has passed: a shim
    started before that would be given the address of the one that is about to exit.
    """
    # A shim that exits need not reply, and one that does not answer is ended below.
    with contextlib.suppress(AdapterError if is_last and task.is_sandbox else ShimLostError):
        request = pb.ShutdownRequest(id=task.id)
        await shims.order(record.address, "Shutdown", request, deadline_s=deadline_s)
        if is_last:
            await shims.gone(record.address, _GONE_S)
    if is_last and task.is_sandbox:
        # Nothing is left that it could serve: some stay when their virtual machine has failed.
        await end_process(record.shim)


async def _kill(task: Task, record: Record, shims: ShimConnections) -> None:
    """Send SIGKILL; blocks until the task has ended.

    Raises TaskNotFoundError if the shim has no such task.
    """
    state = await shims.call(record.address, "State", pb.StateRequest(id=task.id), pb.StateResponse)
    if state.status == pb.STOPPED:
        return
    request = pb.KillRequest(id=task.id, signal=signal.SIGKILL, all=True)
    try:
        await shims.order(record.address, "Kill", request)
    except TaskNotFoundError:
        # It ended after the state query.
        return
    await shims.call(
        record.address,
        "Wait",
        pb.WaitRequest(id=task.id),
        pb.WaitResponse,
        deadline_s=_END_DEADLINE_S,
    )
