"""OCI command line runtimes: runc, crun, youki and compatible ones.

    conmon ── runtime create ── the container's first process, waiting
    runtime start · kill · exec · update · delete

conmon is the container's parent; a process of `exec` becomes the engine's child, as the engine is a
subreaper, so that its exit code is known. Source: OCI runtime command line interface; the runtimes'
manual pages.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shlex
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from moorage.engine.handlers.adapters.adapter import (
    AdapterError,
    Task,
    TaskUsage,
    checkpoint_refusal,
)
from moorage.engine.handlers.adapters.command_line import CommandLine
from moorage.engine.handlers.adapters.conmon import Conmon
from moorage.engine.handlers.adapters.monitored import MonitoredAdapter
from moorage.linux.reaper import Reaper

_CREATE_SCRIPT = Path(__file__).with_name("oci_create.sh")
_SCRIPT_MODE = 0o700


@dataclass(frozen=True, slots=True, kw_only=True)
class OciRuntime:
    """A runtime's command line. `root` is the directory of its containers' state."""

    program: Path
    root: Path
    arguments: tuple[str, ...] = ()
    create_arguments: tuple[str, ...] = ()
    has_systemd_cgroups: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """Global options, which precede every command."""
        systemd = ("--systemd-cgroup",) if self.has_systemd_cgroups else ()
        return (f"--root={self.root}", *systemd, *self.arguments)


class OciAdapter(MonitoredAdapter):
    """Adapter for one runtime. `Adapter` documents the methods."""

    needs_sandbox = False
    end_deadline_s = 20.0

    def __init__(self, runtime: OciRuntime, conmon: Conmon, reaper: Reaper, scratch: Path) -> None:
        command_line = CommandLine(runtime.program, runtime.options, scratch)
        super().__init__(command_line, conmon, reaper, scratch)
        self.runtime = runtime

    async def create(self, task: Task) -> int:
        """Create the task under a new conmon; deletes it again when that fails."""
        runtime = self.runtime
        try:
            return await self.conmon.create(
                task,
                self._script(task) if task.has_user_namespace else runtime.program,
                runtime.options,
                runtime.create_arguments,
                has_systemd_cgroups=runtime.has_systemd_cgroups,
            )
        except BaseException:
            await self._end_creation(task)
            await self.command_line.delete(task.id)
            raise

    def _script(self, task: Task) -> Path:
        """Write the script between conmon and `create` into the bundle; return its path."""
        script = task.bundle / "create.sh"
        command = shlex.quote(str(self.runtime.program))
        script.write_text(_CREATE_SCRIPT.read_text().replace("@COMMAND@", command))
        script.chmod(_SCRIPT_MODE)
        return script

    async def start(self, task: Task) -> None:
        await self.command_line.run("start", task.id)

    async def delete(self, task: Task) -> None:
        """Kill the task, wait up to 20 s for its end, and delete it.

        Raises AdapterError when it does not end.
        """
        await self._end_creation(task)
        if await self.is_alive(task):
            # The runtimes' own forced deletion polls every 100 ms.
            await self.kill(task, signal.SIGKILL)
            try:
                async with asyncio.timeout(self.end_deadline_s):
                    await self.conmon.wait(task)
            except TimeoutError:
                raise AdapterError(
                    f"container {task.id} is still running {self.end_deadline_s:g} s after SIGKILL"
                ) from None
        await self.command_line.delete(task.id)
        self.conmon.forget(task)

    async def update(self, task: Task, resources: Mapping[str, Any]) -> None:
        file = self.scratch / f"{secrets.token_hex(8)}.resources"
        file.write_bytes(msgspec.json.encode(resources))
        try:
            await self.command_line.run("update", "--resources", str(file), task.id)
        finally:
            file.unlink(missing_ok=True)

    async def checkpoint(self, task: Task, archive: Path, *, keeps_running: bool) -> None:
        """Checkpoint a container into an archive. Raises AdapterError, also without CRIU."""
        running = ("--leave-running",) if keeps_running else ()
        place = ("--image-path", str(archive), "--work-path", str(archive))
        try:
            await self.command_line.run("checkpoint", *place, *running, task.id)
        except AdapterError as error:
            raise checkpoint_refusal(error) from None

    async def processes(self, task: Task) -> tuple[int, ...]:
        output = await self.command_line.run("ps", "--format", "json", task.id)
        return tuple(json.loads(output or "[]") or ())

    async def usage(self, task: Task) -> TaskUsage | None:
        """Return None: the task's processes are in a cgroup of the host."""
        del task
        return None
