"""Task service client: calls to shims, over connections that tasks of one shim share."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from moorage.engine.handlers.adapters.adapter import (
    AdapterError,
    TaskNotFoundError,
    TaskUsage,
    UnsupportedError,
)
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.shim.keeper import Record
from moorage.engine.handlers.adapters.shim.program import Address
from moorage.engine.handlers.adapters.ttrpc import (
    NOT_FOUND,
    UNIMPLEMENTED,
    ConnectionLostError,
    TtrpcClient,
    TtrpcError,
)

CALL_DEADLINE_S = 30.0
CONNECT_DEADLINE_S = 5.0
_ABOUT_A_TASK = frozenset({"State", "Wait", "Delete", "Pids", "Stats"})
_GONE = ("no such file", "not found", "does not exist", "no such process")
_SUBJECTS = {NOT_FOUND: TaskNotFoundError, UNIMPLEMENTED: UnsupportedError}

_Reply = TypeVar("_Reply", bound=Message)


class ShimLostError(AdapterError):
    """No shim answers at the address: it has exited, or was killed."""


class TaskGoneError(ShimLostError):
    """A shim answers that what it ran is gone: it can do no more for the task than a lost one.

    A virtual machine has ended on its own, and its shim knows only by its missing files.
    """


class ShimConnections:
    """Connection pool with one connection per shim, opened on first use."""

    def __init__(self) -> None:
        self._clients: dict[str, TtrpcClient] = {}
        self._connecting = asyncio.Lock()

    async def call(
        self,
        address: Address,
        method: str,
        request: Message,
        reply: type[_Reply],
        *,
        deadline_s: float | None = CALL_DEADLINE_S,
    ) -> _Reply:
        """Call a method of the shim at an address and return its reply.

        Raises TaskNotFoundError and UnsupportedError when the shim returns those codes,
        ShimLostError when no shim answers, TaskGoneError when one answers that what it ran is gone,
        and AdapterError for other errors and when the deadline passes.
        """
        try:
            client = await self._client(address.path)
            return await client.call(address.service, method, request, reply, deadline_s=deadline_s)
        except ConnectionLostError as error:
            raise ShimLostError(f"the shim does not answer: {error}") from error
        except TtrpcError as error:
            text = " ".join(str(error).split())
            kind = _SUBJECTS.get(error.code, AdapterError)
            if kind is AdapterError and method in _ABOUT_A_TASK and says_gone(text):
                kind = TaskGoneError
            raise kind(text) from error
        except TimeoutError:
            raise AdapterError(f"the shim's {method} took longer than {deadline_s:g} s") from None

    async def order(
        self,
        address: Address,
        method: str,
        request: Message,
        *,
        deadline_s: float | None = CALL_DEADLINE_S,
    ) -> None:
        """Call a method whose reply is empty; otherwise as `call`."""
        await self.call(address, method, request, pb.Empty, deadline_s=deadline_s)

    async def gone(self, address: Address, patience_s: float) -> None:
        """Block until the shim has closed the connection, or `patience_s` seconds have passed."""
        client = self._clients.get(address.path)
        if client is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await client.lost.wait()

    def close(self) -> None:
        """Close every connection; the shims keep running."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    async def _client(self, path: str) -> TtrpcClient:
        async with self._connecting:
            for address, client in tuple(self._clients.items()):
                if client.is_lost:
                    del self._clients[address]
            if path not in self._clients:
                self._clients[path] = await TtrpcClient.connect(path, deadline_s=CONNECT_DEADLINE_S)
            return self._clients[path]


def says_gone(text: str) -> bool:
    """Return whether a shim's error says that a task's process or files do not exist."""
    return any(word in text.lower() for word in _GONE)


# Shim calls about one process: a task's own, or one of `exec`.

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


# Shim statistics: a task's usage from the cgroup metrics that a shim's Stats returns. Pure.
#
# A guest's processes are in no cgroup of the host, so that only the shim can count them. Source:
# containerd/cgroups, `io.containerd.cgroups.v1.Metrics` and `v2.Metrics`.

_NS_PER_US = 1000
# Version 1 writes "no limit" as the largest number of pages in bytes, version 2 as the largest
# number.
_UNLIMITED = 1 << 62
_MOST_NAME = 100


def task_usage(stats: AnyMessage) -> TaskUsage:
    """Return the usage in a shim's statistics.

    A part that the shim left out is None. Raises AdapterError for another type than cgroup metrics
    and for bytes that are no message of their type.
    """
    name = stats.type_url.rpartition("/")[2]
    parse = _PARSERS.get(name)
    if parse is None:
        raise AdapterError(
            f"the shim's statistics are of type {name[:_MOST_NAME]!r}, not cgroup metrics"
        )
    try:
        return parse(stats.value)
    except DecodeError as error:
        raise AdapterError(f"the shim's statistics are no {name}") from error


def _v1(content: bytes) -> TaskUsage:
    metrics = pb.MetricsV1.FromString(content)
    cpu_ns = metrics.cpu.usage.total if metrics.HasField("cpu") else None
    pids = metrics.pids.current if metrics.HasField("pids") else None
    if not metrics.HasField("memory"):
        return TaskUsage(cpu_ns=cpu_ns, pids=pids)
    memory = metrics.memory
    limit = _limit(memory.usage.limit)
    # Version 1 counts memory and swap together.
    both, both_limit = memory.swap.usage, _limit(memory.swap.limit)
    return TaskUsage(
        cpu_ns=cpu_ns,
        memory=memory.usage.usage,
        inactive_file=memory.total_inactive_file,
        rss=memory.total_rss,
        page_faults=memory.total_pgfault,
        major_page_faults=memory.total_pgmajfault,
        memory_limit=limit,
        swap=max(both - memory.usage.usage, 0) if memory.HasField("swap") else None,
        swap_limit=None if limit is None or both_limit is None else max(both_limit - limit, 0),
        pids=pids,
    )


def _v2(content: bytes) -> TaskUsage:
    metrics = pb.MetricsV2.FromString(content)
    cpu_ns = metrics.cpu.usage_usec * _NS_PER_US if metrics.HasField("cpu") else None
    pids = metrics.pids.current if metrics.HasField("pids") else None
    if not metrics.HasField("memory"):
        return TaskUsage(cpu_ns=cpu_ns, pids=pids)
    memory = metrics.memory
    return TaskUsage(
        cpu_ns=cpu_ns,
        memory=memory.usage,
        inactive_file=memory.inactive_file,
        rss=memory.anon,
        page_faults=memory.pgfault,
        major_page_faults=memory.pgmajfault,
        memory_limit=_limit(memory.usage_limit),
        swap=memory.swap_usage,
        swap_limit=_limit(memory.swap_limit),
        pids=pids,
    )


def _limit(value: int) -> int | None:
    """Return a limit; None without one, and for 0, which stands for a figure left out."""
    return value if 0 < value < _UNLIMITED else None


_PARSERS: Mapping[str, Callable[[bytes], TaskUsage]] = {
    "io.containerd.cgroups.v1.Metrics": _v1,
    "io.containerd.cgroups.v2.Metrics": _v2,
}
