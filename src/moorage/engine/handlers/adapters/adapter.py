"""Adapter protocol between an engine and a runtime: create, start, wait for and delete tasks.

A task is what a runtime runs for one OCI bundle: a container, or the sandbox that the containers of
a virtualised pod share. Its log, its exit and its process belong to processes outside the engine
(conmon, a shim), so they survive an engine restart: every method works on a task that an earlier
engine process created.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec

from moorage.linux.mounts import MountSource

STDOUT = 1
STDERR = 2


class AdapterError(Exception):
    """A runtime refused or failed; the text is the runtime's message, on one line."""


class TaskNotFoundError(AdapterError):
    """The runtime has no such task: it was removed, or has ended on its own."""


class UnsupportedError(AdapterError):
    """The runtime does not support the operation (checkpoints, updates of resources)."""


_CANNOT_CHECKPOINT = ("criu", "unknown command")


def checkpoint_refusal(error: AdapterError) -> AdapterError:
    """Return the error for a failed checkpoint.

    UnsupportedError if its message says that checkpoints are not available on this host, else the
    error unchanged.
    """
    if any(word in str(error).lower() for word in _CANNOT_CHECKPOINT):
        return UnsupportedError(str(error))
    return error


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task for a runtime to run.

    `bundle` is a directory with a `config.json` whose root filesystem exists. `sandbox_id` is the
    ID of the pod's sandbox, equal to `id` for the sandbox's own task. `log` is the path of the log
    in the CRI format; None discards output. With `has_stdin` the process gets an input that
    `attach` writes to; with `is_stdin_once` that input ends when the first attached client
    disconnects. `has_user_namespace` is set where root in the task is another user outside.
    `rootfs` is what an adapter that mounts root filesystems mounts at `BUNDLE/rootfs` when it
    creates the task; empty where the root filesystem is there.
    """

    id: str
    bundle: Path
    sandbox_id: str
    log: Path | None = None
    has_terminal: bool = False
    has_stdin: bool = False
    is_stdin_once: bool = False
    has_user_namespace: bool = False
    rootfs: tuple[MountSource, ...] = ()

    @property
    def is_sandbox(self) -> bool:
        """Return whether the task is the pod's sandbox."""
        return self.id == self.sandbox_id


class Exit(msgspec.Struct, frozen=True):
    """Exit of a task. `code` is 128 + n for signal n, and 255 when it is unknown."""

    code: int
    finished_at_ns: int
    is_out_of_memory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUsage:
    """Usage of a task by its runtime's own count: time in nanoseconds, memory in bytes.

    None is what the runtime does not count; a limit is None where there is none.
    """

    cpu_ns: int | None = None
    memory: int | None = None
    inactive_file: int | None = None
    rss: int | None = None
    page_faults: int | None = None
    major_page_faults: int | None = None
    memory_limit: int | None = None
    swap: int | None = None
    swap_limit: int | None = None
    pids: int | None = None


class Streams(Protocol):
    """Open standard streams of a process. `async with` closes them; the process keeps running."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def read(self) -> tuple[int, bytes] | None:
        """Block until there is output; return it with its descriptor (1 or 2), or None at the end.

        With a terminal all output has descriptor 1. Not safe for concurrent use.
        """

    async def write(self, data: bytes) -> None:
        """Write input; blocks while the process takes none. Raises OSError when it has ended."""

    async def end_input(self) -> None:
        """Signal the end of input."""

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the terminal, in characters; no-op without one."""


class ExecProcess(Streams, Protocol):
    """A process that was started in a task's namespaces. Leaving the block kills it."""

    async def wait(self) -> int:
        """Block until the process has ended; return its exit code, 128 + n for signal n."""

    async def kill(self) -> None:
        """Send SIGKILL."""


class Adapter(Protocol):
    """Driver of one runtime. Safe for concurrent use, with one call at a time per `Task`.

    Every method raises AdapterError, and TaskNotFoundError where the task must exist.
    """

    needs_sandbox: bool
    """Whether a pod needs a sandbox task, created before its containers' tasks."""

    mounts_rootfs: bool
    """Whether `create` mounts `Task.rootfs`: a runtime in a mount namespace of its own, as a shim
    may be, does not see what is mounted outside after it was started."""

    async def create(self, task: Task) -> int:
        """Create the task without starting its process; return the process ID on the host.

        Rolls back when it fails.
        """

    async def start(self, task: Task) -> None:
        """Start the task's process. A task that fails to start still has to be deleted."""

    async def wait(self, task: Task) -> Exit:
        """Block until a started task has ended and its log is complete; return its exit."""

    async def exit_of(self, task: Task) -> Exit | None:
        """Return the task's exit; None while it is running."""

    async def is_alive(self, task: Task) -> bool:
        """Return whether the task has been created and has not ended."""

    async def kill(self, task: Task, number: signal.Signals) -> None:
        """Send a signal to the first process; no-op when the task has ended."""

    async def delete(self, task: Task) -> None:
        """Kill the task's processes and delete it; no-op when it does not exist."""

    async def exec(
        self, task: Task, process: Mapping[str, Any], *, has_stdin: bool, has_terminal: bool
    ) -> ExecProcess:
        """Start another process in the task; `process` is an OCI `process` object."""

    async def attach(self, task: Task) -> Streams:
        """Return the streams of the task's own process, with its output from now on."""

    async def resize(self, task: Task, width: int, height: int) -> None:
        """Set the size of the task's terminal."""

    async def reopen_log(self, task: Task) -> None:
        """Continue the log in a new file at its path, from a line's end.

        Blocks until the file is open.
        """

    async def update(self, task: Task, resources: Mapping[str, Any]) -> None:
        """Update the task's limits; `resources` is an OCI `linux.resources` object."""

    async def checkpoint(self, task: Task, archive: Path, *, keeps_running: bool) -> None:
        """Write the process's state to a directory. Raises UnsupportedError."""

    async def processes(self, task: Task) -> tuple[int, ...]:
        """Return the task's process IDs on the host, as far as the host sees them."""

    async def usage(self, task: Task) -> TaskUsage | None:
        """Return the runtime's counts of a running task; None where it has none.

        Processes in a guest are in no cgroup of the host.
        """

    async def close(self) -> None:
        """Release the files opened to drive tasks. The tasks keep running."""


# Exec files: the short-lived files of one command that is started in a task.


@dataclass(frozen=True, slots=True)
class ExecFiles:
    """Files with a common name prefix.

    The directory's path must be short: one of the files is a socket.
    """

    name: Path

    @classmethod
    def write(cls, directory: Path, process: Mapping[str, Any], *, has_terminal: bool) -> Self:
        """Write the OCI `process` document and return its files. Raises OSError."""
        files = cls(directory / secrets.token_hex(8))
        files.process.write_bytes(msgspec.json.encode({**process, "terminal": has_terminal}))
        return files

    @property
    def process(self) -> Path:
        """File with the OCI `process` object."""
        return self.name.with_suffix(".json")

    @property
    def pid_file(self) -> Path:
        """File to which the runtime writes the process ID on the host."""
        return self.name.with_suffix(".pid")

    @property
    def inner_pid_file(self) -> Path:
        """File with the process ID inside the sandbox, for runtimes with their own kernel."""
        return self.name.with_suffix(".inner")

    @property
    def console(self) -> Path:
        """Socket over which the runtime passes the terminal."""
        return self.name.with_suffix(".sock")

    def pid(self) -> int:
        """Return the process ID. Raises AdapterError when the runtime did not write it."""
        try:
            return int(self.pid_file.read_text())
        except (FileNotFoundError, ValueError) as error:
            raise AdapterError("the runtime did not write the command's process ID") from error

    def remove(self) -> None:
        """Remove the files; missing ones are ignored."""
        for file in (self.process, self.pid_file, self.inner_pid_file, self.console):
            file.unlink(missing_ok=True)
