"""Shim streams: those of clients attached to a task, and of a process of `exec`."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, Self

from moorage.engine.handlers.adapters.adapter import AdapterError, TaskNotFoundError
from moorage.engine.handlers.adapters.fifo_streams import ProcessInput, ProcessOutput
from moorage.engine.handlers.adapters.shim.service import ShimLostError
from moorage.linux.trees import remove_tree


class ProcessCalls(Protocol):
    """Calls to a shim about one process: the task's own or one of `exec`."""

    async def end_input(self) -> None:
        """End the process's input once everything written has been read."""

    async def resize(self, width: int, height: int) -> None:
        """Set the size of its terminal."""

    async def wait(self) -> int:
        """Block until the process has ended; return its exit code."""

    async def kill(self) -> None:
        """Send it SIGKILL."""

    async def forget(self) -> None:
        """Kill the process and delete it from the shim."""


class AttachedStreams:
    """Open streams of a process."""

    def __init__(
        self,
        output: ProcessOutput,
        stdin: Path | None,
        calls: ProcessCalls,
        *,
        ends_input: bool = False,
        has_terminal: bool = False,
    ) -> None:
        """`ends_input`: leaving the block also ends the process's input."""
        self._output = output
        self._queue = output.attach()
        self._input = None if stdin is None else ProcessInput(stdin)
        self._calls = calls
        self._ends_input = ends_input
        self._has_terminal = has_terminal

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._output.detach(self._queue)
        if self._input is None:
            return
        if self._ends_input:
            await self.end_input()
        else:
            self._input.close()

    async def read(self) -> tuple[int, bytes] | None:
        return await self._queue.read()

    async def write(self, data: bytes) -> None:
        """Write to the process's stdin. Raises BrokenPipeError when it has none."""
        if self._input is None:
            raise BrokenPipeError("the process was started without an input")
        await self._input.write(data)

    async def end_input(self) -> None:
        """Close the process's stdin, if it has one and has not exited."""
        if self._input is None:
            return
        self._input.close()
        try:
            await self._calls.end_input()
        except (TaskNotFoundError, ShimLostError):
            # A process that has ended has no input to close.
            return

    async def resize(self, width: int, height: int) -> None:
        if self._has_terminal:
            await self._calls.resize(width, height)


class ShimProcess(AttachedStreams):
    """A process of `exec`. Leaving the block kills it and removes its pipes."""

    def __init__(
        self,
        output: ProcessOutput,
        stdin: Path | None,
        calls: ProcessCalls,
        directory: Path,
        *,
        has_terminal: bool,
    ) -> None:
        super().__init__(output, stdin, calls, has_terminal=has_terminal)
        self._directory = directory

    async def __aexit__(self, *_: object) -> None:
        try:
            await super().__aexit__()
            await self._calls.forget()
        finally:
            self._output.close()
            remove_tree(self._directory)

    async def wait(self) -> int:
        """Block until the process ends; return its exit code. Raises AdapterError."""
        try:
            code = await self._calls.wait()
        except ShimLostError as error:
            raise AdapterError(f"the exit status of the process is lost: {error}") from error
        return code

    async def kill(self) -> None:
        await self._calls.kill()
