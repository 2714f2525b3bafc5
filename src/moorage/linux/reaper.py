"""Takes in orphans: processes whose parents ended, which become children of this process.

A container's helpers put themselves apart, and commands in containers are left behind by the
runtime that started them. Unless somebody reaps them at once, a pid namespace cannot end and
runtimes wait for each other; a machine's init may take its time. So this process is the subreaper
of all it starts, and takes every status; a `Child` gets its own handed over.
Source: prctl(2) PR_SET_CHILD_SUBREAPER, waitid(2).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import OrderedDict
from typing import Self

from moorage.linux import libc
from moorage.linux.child import Child, exit_status
from moorage.linux.process import parent

_SIGNALLED = 128
_MOST_RECORDS = 4096


class Reaper:
    """The taker of orphans, one in a process. `async with` is its life."""

    def __init__(self) -> None:
        # An orphan may end before anybody asks for it; the oldest are forgotten.
        self._statuses: OrderedDict[int, int] = OrderedDict()
        self._watched: dict[int, asyncio.Future[int]] = {}

    async def __aenter__(self) -> Self:
        """Raises OSError."""
        libc.set_child_subreaper(is_on=True)
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)
        self.reap()
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)
        libc.set_child_subreaper(is_on=False)

    def watch(self, pid: int) -> asyncio.Future[int]:
        """An orphan's exit code, 128 + n for signal n: done as soon as its status is taken.

        Until then its id is given to no other process. Raises ProcessLookupError when it has never
        been our child.
        """
        future = self._watched.get(pid)
        if future is not None:
            return future
        future = asyncio.get_running_loop().create_future()
        if os.getpid() != parent(pid):
            if pid not in self._statuses:
                raise ProcessLookupError(f"process {pid} is not our child")
            future.set_result(self._statuses.pop(pid))
            return future
        # Ids come again soon: what is on record under this one was an earlier process's.
        self._statuses.pop(pid, None)
        self._watched[pid] = future
        self.reap()
        return future

    def reap(self) -> None:
        """Take the statuses of all children that have ended, and hand over those of programs."""
        while (ended := _next_ended()) is not None:
            status = exit_status(ended)
            program = Child.awaited.get(ended.si_pid)
            if program is not None:
                program.hand_over(status)
            else:
                self._record(ended.si_pid, status if status >= 0 else _SIGNALLED - status)

    def _record(self, pid: int, code: int) -> None:
        future = self._watched.pop(pid, None)
        if future is not None:
            if not future.done():
                future.set_result(code)
            return
        self._statuses[pid] = code
        if len(self._statuses) > _MOST_RECORDS:
            self._statuses.popitem(last=False)


def _next_ended() -> os.waitid_result | None:
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return None
