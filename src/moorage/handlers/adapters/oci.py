"""Runtimes with an OCI command line: runc, crun, youki and whatever speaks as they do.

    conmon ── runtime create ── the container's first process, waiting
    runtime start · kill · exec · update · delete

conmon is the container's parent; a process of `exec` becomes the engine's child, which is a
subreaper, so that its exit code is known. Source: OCI runtime command line interface; the
runtimes' manual pages.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from moorage.handlers.adapters.adapter import (
    AdapterError,
    ExecProcess,
    Exit,
    Streams,
    Task,
    TaskNotFoundError,
    UnsupportedError,
)
from moorage.handlers.adapters.conmon import Conmon, TaskFiles, one_line
from moorage.handlers.adapters.process_streams import ConsoleSocket, Pipes, ProcessStreams
from moorage.linux.child import Child
from moorage.linux.reaper import Reaper

COMMAND_DEADLINE_S = 30.0
END_DEADLINE_S = 20.0
_UNKNOWN = 255
_MOST_WORDS = 4096
_GONE = ("does not exist", "not running", "no such", "not found", "already stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class OciRuntime:
    """A runtime's command line. `root` is where it keeps its containers' state."""

    program: Path
    root: Path
    arguments: tuple[str, ...] = ()
    has_systemd_cgroups: bool = False

    @property
    def globals(self) -> tuple[str, ...]:
        """The options before every command."""
        systemd = ("--systemd-cgroup",) if self.has_systemd_cgroups else ()
        return (f"--root={self.root}", *systemd, *self.arguments)


class OciAdapter:
    """Drives one runtime. See `Adapter` for what each method promises."""

    needs_sandbox = False

    def __init__(self, runtime: OciRuntime, conmon: Conmon, reaper: Reaper, scratch: Path) -> None:
        """`scratch` is a folder for short-lived files; its path must be short, for sockets."""
        self._runtime = runtime
        self._conmon = conmon
        self._reaper = reaper
        self._scratch = scratch

    async def create(self, task: Task) -> int:
        try:
            return await self._conmon.create(
                task,
                self._runtime.program,
                self._runtime.globals,
                has_systemd_cgroups=self._runtime.has_systemd_cgroups,
            )
        except BaseException:
            await self._delete(task)
            raise

    async def start(self, task: Task) -> None:
        await self._command("start", task.id)

    async def wait(self, task: Task) -> Exit:
        ended = await self._conmon.wait(task)
        if self._conmon.exit_of(task) is None:
            # The monitor was killed: output has nowhere to go, so the container cannot go on.
            await self._delete(task)
            TaskFiles(task.bundle).exit.write_text(str(ended.code))
        return ended

    async def exit_of(self, task: Task) -> Exit | None:
        return self._conmon.exit_of(task)

    async def is_alive(self, task: Task) -> bool:
        return self._conmon.exit_of(task) is None and self._conmon.is_watched(task)

    async def kill(self, task: Task, number: signal.Signals, *, to_all: bool = False) -> None:
        everything = ("--all",) if to_all else ()
        try:
            await self._command("kill", *everything, task.id, str(int(number)))
        except TaskNotFoundError:
            return

    async def delete(self, task: Task) -> None:
        if await self.is_alive(task):
            # The runtimes' own forced deletion waits in steps of 100 ms.
            await self.kill(task, signal.SIGKILL)
            try:
                async with asyncio.timeout(END_DEADLINE_S):
                    await self._conmon.wait(task)
            except TimeoutError:
                raise AdapterError(
                    f"container {task.id} does not end {END_DEADLINE_S:g} s after SIGKILL"
                ) from None
        await self._delete(task)
        self._conmon.forget(task)

    async def exec(
        self, task: Task, process: Mapping[str, Any], *, has_stdin: bool, has_terminal: bool
    ) -> ExecProcess:
        files = ExecFiles(self._scratch / secrets.token_hex(8))
        files.process.write_bytes(msgspec.json.encode({**process, "terminal": has_terminal}))
        try:
            if has_terminal:
                return await self._exec_on_terminal(task, files)
            return await self._exec_on_pipes(task, files, has_stdin=has_stdin)
        finally:
            files.remove()

    async def attach(self, task: Task) -> Streams:
        return self._conmon.attach(task)

    async def resize(self, task: Task, width: int, height: int) -> None:
        self._conmon.resize(task, width, height)

    async def reopen_log(self, task: Task) -> None:
        await self._conmon.reopen_log(task)

    async def update(self, task: Task, resources: Mapping[str, Any]) -> None:
        file = self._scratch / f"{secrets.token_hex(8)}.resources"
        file.write_bytes(msgspec.json.encode(resources))
        try:
            await self._command("update", "--resources", str(file), task.id)
        finally:
            file.unlink(missing_ok=True)

    async def checkpoint(self, task: Task, archive: Path, *, keeps_running: bool) -> None:
        running = ("--leave-running",) if keeps_running else ()
        place = ("--image-path", str(archive), "--work-path", str(archive))
        try:
            await self._command("checkpoint", *place, *running, task.id)
        except AdapterError as error:
            if "criu" in str(error).lower() or "unknown command" in str(error).lower():
                raise UnsupportedError(f"{self._runtime.program.name}: {error}") from error
            raise

    async def processes(self, task: Task) -> tuple[int, ...]:
        told = await self._command("ps", "--format", "json", task.id)
        return tuple(json.loads(told or "[]") or ())

    async def _exec_on_pipes(
        self, task: Task, files: ExecFiles, *, has_stdin: bool
    ) -> StartedProcess:
        pipes, ends = Pipes.make(has_stdin=has_stdin)
        try:
            try:
                await self._exec(task, files, (), (ends.stdin, ends.stdout, ends.stderr))
            finally:
                ends.close()
            return StartedProcess(files.pid(), pipes, self._reaper)
        except BaseException:
            pipes.close()
            raise

    async def _exec_on_terminal(self, task: Task, files: ExecFiles) -> StartedProcess:
        async with ConsoleSocket(files.console) as console:
            handing_over = asyncio.ensure_future(console.receive())
            try:
                options = ("--tty", "--console-socket", str(console.path))
                await self._exec(task, files, options)
                return StartedProcess(files.pid(), await handing_over, self._reaper)
            except (OSError, TimeoutError) as error:
                raise AdapterError(f"no terminal for a command in {task.id}: {error}") from error
            finally:
                handing_over.cancel()

    async def _exec(
        self,
        task: Task,
        files: ExecFiles,
        options: Sequence[str],
        streams: tuple[int, int, int] | None = None,
    ) -> None:
        arguments = ("--detach", "--process", str(files.process), "--pid-file", str(files.pid_file))
        await self._command("exec", *arguments, *options, task.id, streams=streams)

    async def _delete(self, task: Task) -> None:
        try:
            await self._command("delete", "--force", task.id)
        except TaskNotFoundError:
            return

    async def _command(self, *words: str, streams: tuple[int, int, int] | None = None) -> str:
        """Run the runtime; what it printed. Raises AdapterError with its complaint."""
        runtime = self._runtime
        complaints = self._scratch / f"{secrets.token_hex(8)}.log"
        argv = [str(runtime.program), *runtime.globals, "--log", str(complaints)]
        argv += ["--log-format", "json", *words]
        printed = os.memfd_create("output")
        try:
            stdin, stdout, stderr = streams or (os.open(os.devnull, os.O_RDWR), printed, printed)
            try:
                child = Child(argv, stdin=stdin, stdout=stdout, stderr=stderr)
            except OSError as error:
                raise AdapterError(f"{runtime.program}: {error.strerror}") from error
            finally:
                if streams is None:
                    os.close(stdin)
            try:
                async with asyncio.timeout(COMMAND_DEADLINE_S):
                    status = await child.wait()
            except TimeoutError:
                raise AdapterError(
                    f"{runtime.program} {words[0]} did not end within {COMMAND_DEADLINE_S:g} s"
                ) from None
            finally:
                await child.end()
                child.close()
            said = os.pread(printed, _MOST_WORDS * 16, 0).decode(errors="replace")
            if status != 0:
                raise _refusal(words[0], status, _complaint(complaints) or said)
            return said
        finally:
            os.close(printed)
            complaints.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class ExecFiles:
    """The short-lived files of one exec, all with one name in front."""

    name: Path

    @property
    def process(self) -> Path:
        return self.name.with_suffix(".json")

    @property
    def pid_file(self) -> Path:
        return self.name.with_suffix(".pid")

    @property
    def console(self) -> Path:
        return self.name.with_suffix(".sock")

    def pid(self) -> int:
        """The process's id. Raises AdapterError when the runtime wrote none."""
        try:
            return int(self.pid_file.read_text())
        except (FileNotFoundError, ValueError) as error:
            raise AdapterError("the runtime did not tell the command's process id") from error

    def remove(self) -> None:
        for file in (self.process, self.pid_file, self.console):
            file.unlink(missing_ok=True)


class StartedProcess:
    """A process that a runtime has left behind: an orphan of ours."""

    def __init__(self, pid: int, streams: ProcessStreams, reaper: Reaper) -> None:
        self._pid = pid
        self._streams = streams
        self._ending = asyncio.ensure_future(reaper.status_of(pid))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._streams.close()
        await self.kill()
        await self.wait()

    async def read(self) -> tuple[int, bytes] | None:
        """The next output and its descriptor."""
        return await self._streams.read()

    async def write(self, data: bytes) -> None:
        """Give it input. Raises OSError when it takes none."""
        await self._streams.write(data)

    async def end_input(self) -> None:
        await self._streams.end_input()

    async def resize(self, width: int, height: int) -> None:
        await self._streams.resize(width, height)

    async def wait(self) -> int:
        """Its exit code; 255 when it was never ours to know."""
        try:
            return await asyncio.shield(self._ending)
        except ProcessLookupError:
            return _UNKNOWN

    async def kill(self) -> None:
        # Until its status is taken, its id is given to no other process.
        if not self._ending.done():
            os.kill(self._pid, signal.SIGKILL)


def _complaint(log: Path) -> str:
    """The last error in a runtime's log of JSON lines."""
    try:
        lines = log.read_bytes().splitlines()
    except FileNotFoundError:
        return ""
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("level", "error") in ("error", "fatal"):
            return str(entry.get("msg", ""))
    return ""


def _refusal(command: str, status: int, complaint: str) -> AdapterError:
    said = one_line(complaint)[:_MOST_WORDS] or f"{command} ended with status {status}"
    if command in ("kill", "delete") and any(word in said.lower() for word in _GONE):
        return TaskNotFoundError(said)
    return AdapterError(said)
