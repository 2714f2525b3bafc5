"""The seam between an engine and a runtime: a task is made, started, awaited, ended, removed.

A task is what a runtime runs for one OCI bundle: a container, or the sandbox that containers of a
virtualised pod share. Its log, its exit and its life belong to processes outside the engine
(conmon, a shim), so that all of them outlive it: everything here works on a task that an earlier
engine process made.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec

STDOUT = 1
STDERR = 2


class AdapterError(Exception):
    """A runtime refused or failed; the text is its own sentence, on one line."""


class TaskNotFoundError(AdapterError):
    """The runtime knows no such task: it was removed, or has ended without being asked."""


class UnsupportedError(AdapterError):
    """The runtime cannot do that at all (checkpoints, updates of resources)."""


_CANNOT_CHECKPOINT = ("criu", "unknown command")


def checkpoint_refusal(error: AdapterError) -> AdapterError:
    """The error for a checkpoint that failed: an UnsupportedError if the words say that there is
    no way to make one here.
    """
    if any(word in str(error).lower() for word in _CANNOT_CHECKPOINT):
        return UnsupportedError(str(error))
    return error


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a runtime is to run.

    `bundle` is a directory with a `config.json` whose root is there already. `sandbox_id` is the id
    of the pod's sandbox, equal to `id` for the task that is the sandbox. `log` is where output
    goes in the CRI's format; None discards it. With `has_stdin` the process gets an input that
    `attach` writes to, with `is_stdin_once` that ends when the first who attached goes away.
    """

    id: str
    bundle: Path
    sandbox_id: str
    log: Path | None = None
    has_terminal: bool = False
    has_stdin: bool = False
    is_stdin_once: bool = False

    @property
    def is_sandbox(self) -> bool:
        return self.id == self.sandbox_id


class Exit(msgspec.Struct, frozen=True):
    """How a task ended. `code` is 128 + n for signal n; 255 when nobody knows it."""

    code: int
    finished_at_ns: int
    is_out_of_memory: bool = False


class Streams(Protocol):
    """The open standard streams of a process. `async with` closes them; the process goes on."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def read(self) -> tuple[int, bytes] | None:
        """The next output with its descriptor (1 or 2); None when there will be no more.

        With a terminal everything comes as 1. Not for use by two tasks at once.
        """

    async def write(self, data: bytes) -> None:
        """Give it input; waits while it takes none. Raises OSError when it has gone."""

    async def end_input(self) -> None:
        """Say that no more input comes."""

    async def resize(self, width: int, height: int) -> None:
        """Change the size of the terminal, in characters; nothing happens without one."""


class ExecProcess(Streams, Protocol):
    """A process that was started in a task's namespaces. Leaving its block kills it."""

    async def wait(self) -> int:
        """Its exit code, 128 + n for signal n."""

    async def kill(self) -> None:
        """End it with SIGKILL."""


class Adapter(Protocol):
    """A runtime that can be driven. Safe for use by many tasks at once, one at a time per `Task`.

    Everything raises AdapterError, and TaskNotFoundError where the task must exist.
    """

    needs_sandbox: bool
    """Whether a pod needs a task for its sandbox, made before its containers' tasks."""

    async def create(self, task: Task) -> int:
        """Set the task up, its process waiting; the process's id on this host.

        What was begun is undone when it fails.
        """

    async def start(self, task: Task) -> None:
        """Let the process go. A task whose start failed still has to be deleted."""

    async def wait(self, task: Task) -> Exit:
        """Return when the task has ended and its log is whole. For a started task."""

    async def exit_of(self, task: Task) -> Exit | None:
        """How it ended; None while it has not."""

    async def is_alive(self, task: Task) -> bool:
        """Whether it has been created and has not ended."""

    async def kill(self, task: Task, number: signal.Signals, *, to_all: bool = False) -> None:
        """Send a signal to the first process, or all; nothing happens when it has ended."""

    async def delete(self, task: Task) -> None:
        """Kill what is left of it and forget it; nothing happens when there is no such task."""

    async def exec(
        self, task: Task, process: Mapping[str, Any], *, has_stdin: bool, has_terminal: bool
    ) -> ExecProcess:
        """Start another process in it; `process` is an OCI `process` object."""

    async def attach(self, task: Task) -> Streams:
        """The streams of the task's own process, output from now on."""

    async def resize(self, task: Task, width: int, height: int) -> None:
        """Change the size of the task's terminal."""

    async def reopen_log(self, task: Task) -> None:
        """Write on to a new file at the log's path, from a line's end; returns when that is so."""

    async def update(self, task: Task, resources: Mapping[str, Any]) -> None:
        """Change the limits; `resources` is an OCI `linux.resources` object."""

    async def checkpoint(self, task: Task, archive: Path, *, keeps_running: bool) -> None:
        """Write the process's state into a directory. Raises UnsupportedError."""

    async def processes(self, task: Task) -> tuple[int, ...]:
        """The host's ids of its processes, as far as the host sees them."""

    async def close(self) -> None:
        """Let go of what was opened to drive tasks. The tasks go on."""
