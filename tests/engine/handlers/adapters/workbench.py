"""One bench for every kind of adapter: directories, bundles, a sandbox where a runtime needs
one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from moorage.engine.handlers import CgroupDriver, RunscOptions, ShimOptions, search_path
from moorage.engine.handlers.adapters import Adapter, Task
from moorage.engine.handlers.adapters.conmon import Conmon
from moorage.engine.handlers.adapters.oci import OciAdapter, OciRuntime
from moorage.engine.handlers.adapters.runsc import RunscAdapter, runsc_options
from moorage.engine.handlers.adapters.shim.adapter import ShimAdapter
from moorage.engine.handlers.adapters.shim.program import ShimProgram, TaskOptions
from moorage.linux.cgroup_control import kill_processes, remove_cgroup
from moorage.linux.cgroups import current_cgroups
from moorage.linux.process import parent, state
from moorage.linux.reaper import Reaper
from tests.engine.handlers.adapters.bundles import skip_without, write_bundle
from tests.engine.handlers.programs import program
from tests.running import until

SHIM = "containerd-shim-runc-v2"
# Kind → the programs it needs here.
KINDS = {
    "runc": ("runc", "conmon"),
    "crun": ("crun", "conmon"),
    "gvisor": ("runsc", "conmon"),
    "shim": (SHIM, "runc"),
}


@dataclass
class Workbench:
    """What a test makes, and adapters for it: each as another engine would open it."""

    kind: str
    root: Path
    reaper: Reaper
    program: Path | None = None
    create_deadline_s: float = 60.0
    """In place of the runtime's own."""
    tasks: list[Task] = field(default_factory=list)
    sandbox: Task | None = None

    @property
    def cgroup(self) -> str:
        return f"/moorage-test-{self.root.name}"

    @property
    def is_gvisor(self) -> bool:
        return self.kind == "gvisor"

    @property
    def has_conmon(self) -> bool:
        return "conmon" in KINDS[self.kind]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Adapter]:
        adapter = self._adapter()
        try:
            yield adapter
        finally:
            await adapter.close()

    async def task(
        self,
        adapter: Adapter,
        *command: str,
        has_terminal: bool = False,
        has_stdin: bool = False,
        is_stdin_once: bool = False,
        memory_bytes: int | None = None,
    ) -> Task:
        """A task that is not created yet, in a sandbox that is there."""
        if adapter.needs_sandbox and self.sandbox is None:
            self.sandbox = self._task("sandbox", "", "sleep", "100000")
            await adapter.create(self.sandbox)
            await adapter.start(self.sandbox)
        sandbox = self.sandbox.id if self.sandbox else "pod"
        made = self._task(
            "container", sandbox, *command, has_terminal=has_terminal, memory_bytes=memory_bytes
        )
        task = Task(
            id=made.id,
            bundle=made.bundle,
            sandbox_id=sandbox,
            log=self.root / "logs" / f"{made.id}.log",
            has_terminal=has_terminal,
            has_stdin=has_stdin,
            is_stdin_once=is_stdin_once,
        )
        self.tasks.append(task)
        return task

    async def run(self, adapter: Adapter, *command: str, **fields: bool) -> Task:
        """A started task."""
        task = await self.task(adapter, *command, **fields)
        await adapter.create(task)
        await adapter.start(task)
        return task

    async def delete_all(self) -> None:
        async with self.open() as adapter:
            for task in self.tasks:
                await adapter.delete(task)
            if self.sandbox is not None:
                await adapter.delete(self.sandbox)

    def record_program(self) -> Path:
        """Put a program in place of the runtime that writes each of its command lines to a file."""
        real = _found("runc" if self.kind == "shim" else KINDS[self.kind][0])
        lines = self.root / "lines"
        self.program = program(
            self.root / "bin", "recorder", f'echo "$*" >> {lines}\nexec {real} "$@"'
        )
        return lines

    def processes(self) -> list[str]:
        return [line for _, line in self._related()]

    def assert_nothing_left(self) -> None:
        until(lambda: not self._related(), "the end of every process", 5)
        assert not [path for path in (self.root / "x").iterdir() if not path.name.startswith("ev")]
        left = [
            str(cgroup) for cgroup in self._cgroups() if cgroup != cgroup.parent / self.cgroup[1:]
        ]
        assert not left

    def clean(self) -> None:
        for pid, _ in self._related():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        cgroups = current_cgroups()
        until(lambda: not _killed(self.cgroup), "the end of what is in the cgroups", 5)
        remove_cgroup(cgroups, self.cgroup)
        shutil.rmtree(self.root)

    def _task(self, kind: str, sandbox: str, *command: str, **fields: bool | int | None) -> Task:
        task_id = secrets.token_hex(16)
        sandbox = sandbox or task_id
        bundle = write_bundle(
            self.root / "b" / task_id,
            *command,
            cgroup=f"{self.cgroup}/{task_id}",
            annotations={
                "io.kubernetes.cri.container-type": kind,
                "io.kubernetes.cri.sandbox-id": sandbox,
            },
            **fields,  # type: ignore[arg-type]
        )
        return Task(id=task_id, bundle=bundle, sandbox_id=sandbox)

    def _adapter(self) -> Adapter:
        scratch, state_root = self.root / "x", self.root / "r"
        if self.kind == "shim":
            options = ShimOptions(
                runtime_type="io.containerd.runc.v2",
                runtime_binary=None if self.program is None else str(self.program),
                needs_sandbox=False,
            )
            return ShimAdapter(
                ShimProgram(_found(SHIM), scratch / "events", search_path()),
                TaskOptions(options, CgroupDriver.CGROUPFS, search_path(), state_root),
            )
        conmon = Conmon(
            program=_found("conmon"),
            exits=self.root / "e",
            create_deadline_s=self.create_deadline_s,
        )
        runtime_program = self.program or _found(KINDS[self.kind][0])
        if self.is_gvisor:
            flags = runsc_options(
                RunscOptions(platform="ptrace", network="host", ignore_cgroups=True), state_root
            )
            return RunscAdapter(
                runtime_program, flags, conmon, self.reaper, scratch, current_cgroups()
            )
        runtime = OciRuntime(program=runtime_program, root=state_root)
        return OciAdapter(runtime, conmon, self.reaper, scratch)

    def _related(self) -> list[tuple[int, str]]:
        related = []
        for directory in Path("/proc").iterdir():
            if not directory.name.isdecimal() or int(directory.name) == os.getpid():
                continue
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                pid = int(directory.name)
                line = os.fsdecode((directory / "cmdline").read_bytes()).replace("\0", " ")
                place = (directory / "cgroup").read_text()
                if state(pid) == "Z" and parent(pid) == 1:
                    continue
                if f"{self.root}/" in line or self.cgroup in place:
                    related.append((pid, line))
        return related

    def _cgroups(self) -> Iterator[Path]:
        for root in current_cgroups().hierarchies:
            yield from (root / self.cgroup[1:]).glob("**/")


def make_workbench(kind: str, root: Path, reaper: Reaper) -> Workbench:
    """A bench on an empty directory, whose path is short. Skips what cannot run here."""
    skip_without(*KINDS[kind])
    for name in ("b", "e", "r", "x"):
        (root / name).mkdir()
    return Workbench(kind, root, reaper)


def _found(program: str) -> Path:
    return Path(shutil.which(program, path=search_path()) or program)


def _killed(path: str) -> bool:
    """Whether something had to be killed in a cgroup."""
    processes = kill_processes(current_cgroups(), path)
    for process in processes:
        process.close()
    return bool(processes)
