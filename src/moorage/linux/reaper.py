"""Child subreaper: orphaned descendants become children of this process, which reaps them.

A container's helpers daemonise, and commands in containers outlive the runtime that started them.
Unless they are reaped at once, a PID namespace cannot end and runtimes wait for each other; the
host's init may take its time. This process collects every status; a `Child` gets its own passed on.
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
    """The subreaper, one for each process. `async with` is its lifetime.

    An orphan may exit before its status is asked for: the `most_records` last ones are kept.
    """

    def __init__(self, most_records: int = _MOST_RECORDS) -> None:
        self._most_records = most_records
        self._statuses: OrderedDict[int, int] = OrderedDict()
        self._watched: dict[int, asyncio.Future[int]] = {}

    async def __aenter__(self) -> Self:
        """Become the subreaper. Raises OSError."""
        libc.set_child_subreaper(is_on=True)
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)
        self.reap()
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)
        libc.set_child_subreaper(is_on=False)

    def watch(self, pid: int) -> asyncio.Future[int]:
        """Return a future of an orphan's exit code, 128 + n for signal n.

        Its id is not reused before the future is done. Raises ProcessLookupError when it has never
        been a child of this process.
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
        # Process ids are reused: a status recorded under this id was an earlier process's.
        self._statuses.pop(pid, None)
        self._watched[pid] = future
        self.reap()
        return future

    def reap(self) -> None:
        """Collect the statuses of all exited children, and pass on those of `Child` programs."""
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
        if len(self._statuses) > self._most_records:
            self._statuses.popitem(last=False)


def _next_ended() -> os.waitid_result | None:
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return None
