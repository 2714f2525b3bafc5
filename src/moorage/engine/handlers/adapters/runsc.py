"""gVisor adapter, using runsc's command line.

    sandbox     conmon ── runsc_sandbox.sh ── runsc create, start
                                                       the pod's kernel, with its first task
    container   conmon ── runsc_container.sh ── runsc create · start · wait

The sandbox is an ordinary task to conmon. A container's process is not on the host, so a small
script stands in for it (see there). The runtime's own processes stay in the pod's cgroup, which
limits them; gVisor isolates the containers from each other inside it.
Source: gVisor's documentation; measured behaviour of the versions in distributions.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from moorage.api.logs import Log
from moorage.engine.handlers.adapters.adapter import (
    AdapterError,
    ExecFiles,
    Task,
    TaskUsage,
    UnsupportedError,
)
from moorage.engine.handlers.adapters.command_line import (
    CommandLine,
    Descriptors,
    last_log_error,
    refusal,
)
from moorage.engine.handlers.adapters.conmon import Conmon
from moorage.engine.handlers.adapters.monitored import MonitoredAdapter, StartedProcess
from moorage.engine.handlers.adapters.process_streams import ProcessStreams
from moorage.engine.handlers.adapters.task_cgroup import cgroup_of, remove_task_cgroup
from moorage.engine.handlers.definition import RunscOptions
from moorage.linux.cgroup_control import enter_cgroup, make_cgroup
from moorage.linux.cgroups import Cgroups
from moorage.linux.child import until_readable
from moorage.linux.reaper import Reaper

log = Log(__name__)

_CONTAINER_SCRIPT = Path(__file__).with_name("runsc_container.sh")
_SANDBOX_SCRIPT = Path(__file__).with_name("runsc_sandbox.sh")
_SCRIPT_MODE = 0o755
_GO, _GIVE_UP = b"go\n", b"no\n"
_BOTH_WAYS = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC


def runsc_options(
    options: RunscOptions, root: Path, *, has_systemd_cgroups: bool = False
) -> tuple[str, ...]:
    """Return runsc's global flags for a handler's options.

    `root` is the default state directory; `has_systemd_cgroups` has systemd make the cgroups.
    """
    flags = [f"--root={options.root or root}"]
    if options.platform:
        flags.append(f"--platform={options.platform}")
    if options.network:
        flags.append(f"--network={options.network}")
    if options.ignore_cgroups:
        flags.append("--ignore-cgroups")
    if has_systemd_cgroups:
        flags.append("--systemd-cgroup")
    if options.debug_log:
        flags += ["--debug", f"--debug-log={options.debug_log}/"]
    return (*flags, *options.global_arguments)


class RunscAdapter(MonitoredAdapter):
    """Adapter for one gVisor. `Adapter` documents the methods."""

    needs_sandbox = True
    start_deadline_s = 60.0
    end_deadline_s = 20.0

    terminal_options = ()

    def __init__(
        self,
        program: Path,
        options: Sequence[str],
        conmon: Conmon,
        reaper: Reaper,
        scratch: Path,
        cgroups: Cgroups | None = None,
    ) -> None:
        """With `cgroups` the adapter manages the cgroup of a gVisor with `--ignore-cgroups`."""
        super().__init__(CommandLine(program, options, scratch), conmon, reaper, scratch)
        self.cgroups = cgroups

    async def create(self, task: Task) -> int:
        """Create the task under a new conmon; deletes it again when that fails."""
        command = self.command_line
        place = None if self.cgroups is None else partial(self._place, task)
        try:
            return await self.conmon.create(task, self._script(task), (), place=place)
        except BaseException:
            await command.delete(task.id)
            raise

    async def start(self, task: Task) -> None:
        """Start a sandbox directly, a container through its gate. Raises AdapterError."""
        if task.is_sandbox:
            await self.command_line.run("start", task.id)
            return
        status = await self._pass_gate(task)
        if status != 0:
            error_text = last_log_error(task.bundle / "start.log")
            raise refusal("start", status, error_text)

    async def delete(self, task: Task) -> None:
        """Delete the task, and its cgroup if the adapter manages it.

        Raises AdapterError when its conmon does not end within 20 s.
        """
        await self._end_creation(task)
        await self._delete(task)
        with _gate(task, _GIVE_UP):
            try:
                async with asyncio.timeout(self.end_deadline_s):
                    await self.conmon.wait(task)
            except TimeoutError:
                raise AdapterError(
                    f"gVisor task {task.id} is still running {self.end_deadline_s:g} s after delete"
                ) from None
        if self.cgroups is not None:
            # gVisor also creates a container's cgroup, for tools that look there; it stays empty,
            # and is not removed when the pod's kernel has ended.
            path = sandbox_cgroup(task) if task.is_sandbox else cgroup_of(task)
            await remove_task_cgroup(self.cgroups, path)
        self.conmon.forget(task)

    async def update(self, task: Task, resources: Mapping[str, Any]) -> None:
        """No-op: the pod's cgroup is the limit, and its owner updates it."""
        del task, resources

    async def checkpoint(self, task: Task, archive: Path, *, keeps_running: bool) -> None:
        """Raise UnsupportedError: gVisor's checkpoints are of whole pods."""
        del task, archive, keeps_running
        raise UnsupportedError("gVisor checkpoints whole pods, not single containers")

    async def processes(self, task: Task) -> tuple[int, ...]:
        """Return the sandbox's process ID: the host sees no others."""
        pid = json.loads(await self.command_line.run("state", task.id)).get("pid", 0)
        return (pid,) if pid > 0 else ()

    async def usage(self, task: Task) -> TaskUsage | None:
        """Return None: the sandbox is in a cgroup of the host, and counts no container apart."""
        del task
        return None

    def _place(self, task: Task, pid: int) -> None:
        """Move a monitor, and thereby its children, to the cgroup of the pod's sandbox."""
        path = sandbox_cgroup(task)
        if path and self.cgroups is not None:
            make_cgroup(self.cgroups, path)
            enter_cgroup(self.cgroups, path, pid)

    async def _delete(self, task: Task) -> None:
        try:
            await self.command_line.delete(task.id)
        except AdapterError as error:
            if task.is_sandbox:
                raise
            # The end of a pod's kernel ends its containers. The runtime notices only when its query
            # fails; the second deletion succeeds.
            log.info("container exited with its pod's kernel", task=task.id, reason=error)
            await self.command_line.delete(task.id)

    def _script(self, task: Task) -> Path:
        """Write the script between conmon and gVisor into the bundle; return its path."""
        command = shlex.join((str(self.command_line.program), *self.command_line.options))
        template = _SANDBOX_SCRIPT if task.is_sandbox else _CONTAINER_SCRIPT
        script = task.bundle / ("sandbox.sh" if task.is_sandbox else "container.sh")
        script.write_text(template.read_text().replace("@COMMAND@", command))
        script.chmod(_SCRIPT_MODE)
        return script

    async def _pass_gate(self, task: Task) -> int:
        """Release the stand-in script to start its container.

        Returns the exit status of the start. Raises AdapterError.
        """
        try:
            answer = os.open(task.bundle / "answer", _BOTH_WAYS)
            try:
                with _gate(task, _GO):
                    async with asyncio.timeout(self.start_deadline_s):
                        await until_readable(answer)
                return int(os.read(answer, 64))
            finally:
                os.close(answer)
        except TimeoutError:
            raise AdapterError(
                f"gVisor did not start it within {self.start_deadline_s:g} s"
            ) from None
        except (OSError, ValueError) as error:
            raise AdapterError(f"the runtime cannot be signalled to start it: {error}") from error

    def _started(self, task: Task, files: ExecFiles, streams: ProcessStreams) -> StartedProcess:
        return GvisorProcess(files, streams, self.reaper, self.command_line, task)

    async def _exec(
        self,
        task: Task,
        files: ExecFiles,
        options: Sequence[str],
        streams: Descriptors | None = None,
    ) -> None:
        inner = ("--internal-pid-file", str(files.inner_pid_file))
        await super()._exec(task, files, (*inner, *options), streams)


def sandbox_cgroup(task: Task) -> str:
    """Return the cgroup of the pod's sandbox, a sibling of its containers' cgroups."""
    parent = PurePosixPath(cgroup_of(task) or "/").parent
    return str(parent / task.sandbox_id) if parent != PurePosixPath("/") else ""


@contextmanager
def _gate(task: Task, word: bytes) -> Iterator[None]:
    """Write a word to a container's gate FIFO and hold it open; no-op for a sandbox.

    A FIFO keeps its content only while a process has it open, and the stand-in may be late.
    """
    try:
        gate = os.open(task.bundle / "gate", _BOTH_WAYS)
    except FileNotFoundError:
        yield
        return
    try:
        os.write(gate, word)
        yield
    finally:
        os.close(gate)


class GvisorProcess(StartedProcess):
    """A command in a gVisor container. The host process is the `runsc exec` that waits for it."""

    def __init__(
        self,
        files: ExecFiles,
        streams: ProcessStreams,
        reaper: Reaper,
        command_line: CommandLine,
        task: Task,
    ) -> None:
        super().__init__(files, streams, reaper)
        self.command_line = command_line
        self._task = task

    async def kill(self) -> None:
        """Kill the command inside the sandbox.

        Killing only the host process would leave it running.
        """
        if self.has_ended:
            return
        try:
            pid = self._files.inner_pid_file.read_text()
            await self.command_line.run("kill", "--pid", pid, self._task.id, "KILL")
        except (AdapterError, OSError) as error:
            log.info("command exited before it was killed", task=self._task.id, reason=error)
        await super().kill()
