"""Shim calls about one process: a task's own, or one of `exec`."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from moorage.engine.handlers.adapters.adapter import TaskNotFoundError
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.shim.record import Record
from moorage.engine.handlers.adapters.shim.service import ShimConnections, ShimLostError

_END_DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class ShimCalls:
    """Calls to a shim about one process; without an `exec_id`, about the task's own process."""

    shims: ShimConnections
    record: Record
    task_id: str
    exec_id: str = ""

    async def end_input(self) -> None:
        """Close the input (CloseIO)."""
        request = pb.CloseInputRequest(id=self.task_id, exec_id=self.exec_id, stdin=True)
        await self.shims.order(self.record.address, "CloseIO", request)

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the terminal (ResizePty)."""
        request = pb.ResizeRequest(
            id=self.task_id, exec_id=self.exec_id, width=width, height=height
        )
        await self.shims.order(self.record.address, "ResizePty", request)

    async def wait(self, deadline_s: float | None = None) -> int:
        """Block until the process has ended; return its exit code."""
        request = pb.WaitRequest(id=self.task_id, exec_id=self.exec_id)
        reply = await self.shims.call(
            self.record.address, "Wait", request, pb.WaitResponse, deadline_s=deadline_s
        )
        return reply.exit_status

    async def kill(self) -> None:
        """Send SIGKILL; no-op when the process has ended or the shim is lost."""
        request = pb.KillRequest(id=self.task_id, exec_id=self.exec_id, signal=signal.SIGKILL)
        try:
            await self.shims.order(self.record.address, "Kill", request)
        except (TaskNotFoundError, ShimLostError):
            # The process has already ended.
            return

    async def forget(self) -> None:
        """Kill the process if it runs, and delete it from the shim; no-op if it does not exist."""
        try:
            request = pb.StateRequest(id=self.task_id, exec_id=self.exec_id)
            state = await self.shims.call(self.record.address, "State", request, pb.StateResponse)
            # A process whose start was refused has nothing to kill; shims return an error for it.
            if state.status == pb.RUNNING:
                await self.kill()
                await self.wait(_END_DEADLINE_S)
            await self.shims.call(
                self.record.address,
                "Delete",
                pb.DeleteRequest(id=self.task_id, exec_id=self.exec_id),
                pb.DeleteResponse,
            )
        except (TaskNotFoundError, ShimLostError):
            # It was never created, or was deleted together with its task.
            return
