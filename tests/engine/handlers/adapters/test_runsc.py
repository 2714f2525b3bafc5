"""gVisor's flags, and what is made of it when it does not do what it should: programs of a test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.handlers.adapters import AdapterError, Task, UnsupportedError
from moorage.engine.handlers.adapters.adapter import ExecFiles
from moorage.engine.handlers.adapters.conmon import Conmon
from moorage.engine.handlers.adapters.runsc import GvisorProcess, RunscAdapter, runsc_options
from moorage.engine.handlers.definition import RunscOptions
from moorage.linux.reaper import Reaper

ROOT = Path("/run/e/runsc")


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({}, [f"--root={ROOT}"]),
        ({"root": "/r"}, ["--root=/r"]),
        ({"platform": "kvm"}, [f"--root={ROOT}", "--platform=kvm"]),
        ({"network": "host"}, [f"--root={ROOT}", "--network=host"]),
        ({"ignore_cgroups": True}, [f"--root={ROOT}", "--ignore-cgroups"]),
        ({"ignore_cgroups": False}, [f"--root={ROOT}"]),
        ({"debug_log": "/l"}, [f"--root={ROOT}", "--debug", "--debug-log=/l/"]),
        ({"global_arguments": ("-a", "-b")}, [f"--root={ROOT}", "-a", "-b"]),
    ],
)
def test_each_option_is_a_flag(options: dict[str, Any], flags: list[str]) -> None:
    assert runsc_options(RunscOptions(**options), ROOT) == tuple(flags)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "bundle").mkdir()
    return Task(id="t", bundle=tmp_path / "bundle", sandbox_id="s", log=None)


class Commands:
    """The runtime's command line: refuses as often as it is configured to."""

    program = Path("/usr/bin/runsc")
    options = ("--root=/r",)

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals
        self.ran: list[str] = []

    async def delete(self, task_id: str) -> None:
        await self.run("delete", task_id)

    async def run(self, *words: str) -> str:
        self.ran.append(" ".join(words))
        if self.refusals:
            self.refusals -= 1
            raise AdapterError("refused")
        return ""


@dataclass
class Ends:
    """How the tasks of a monitor end, and who was forgotten; `create` runs the command line."""

    ends: bool = True
    forgotten: int = 0
    create: Callable[[list[str]], Coroutine[Any, Any, int]] | None = None


@dataclass(frozen=True, kw_only=True)
class Monitor(Conmon):
    """A conmon whose task ends, or never."""

    state: Ends = field(default_factory=Ends)

    async def create(
        self, task: Task, runtime: Path, runtime_arguments: Any, *_: Any, **__: Any
    ) -> int:
        assert self.state.create is not None
        argv = [str(runtime), *runtime_arguments, "create", "--bundle", str(task.bundle)]
        return await self.state.create(argv)

    async def wait(self, _task: Task) -> Any:
        if not self.state.ends:
            await asyncio.get_running_loop().create_future()

    def forget(self, _task: Task) -> None:
        self.state.forgotten += 1

    def exit_of(self, _task: Task) -> Any:
        return "ended"


@pytest.fixture
def monitor(tmp_path: Path) -> Monitor:
    return Monitor(program=Path("/usr/bin/conmon"), exits=tmp_path)


@pytest.fixture
def adapter(tmp_path: Path, monitor: Monitor) -> RunscAdapter:
    return RunscAdapter(Commands.program, Commands.options, monitor, Reaper(), tmp_path)


def with_commands(adapter: RunscAdapter, refusals: int = 0) -> Commands:
    commands = Commands(refusals)
    adapter.command_line = commands  # type: ignore[assignment]
    return commands


async def test_a_container_that_went_with_its_pod_is_deleted_at_the_second_try(
    adapter: RunscAdapter, monitor: Monitor, task: Task
) -> None:
    commands = with_commands(adapter, refusals=1)
    await adapter.delete(task)
    assert commands.ran == ["delete t", "delete t"]
    assert monitor.state.forgotten == 1


@pytest.mark.parametrize(("is_sandbox", "tries"), [(True, 1), (False, 2)])
async def test_a_deletion_that_is_refused_is_an_error(
    adapter: RunscAdapter, monitor: Monitor, task: Task, is_sandbox: bool, tries: int
) -> None:
    commands = with_commands(adapter, refusals=9)
    sandbox_id = task.id if is_sandbox else "s"
    asked = Task(id=task.id, bundle=task.bundle, sandbox_id=sandbox_id, log=None)
    assert asked.is_sandbox == is_sandbox
    with pytest.raises(AdapterError, match="refused"):
        await adapter.delete(asked)
    assert len(commands.ran) == tries
    assert monitor.state.forgotten == 0


async def test_a_task_that_does_not_end_is_an_error(
    adapter: RunscAdapter, monitor: Monitor, task: Task
) -> None:
    with_commands(adapter)
    monitor.state.ends = False
    adapter.end_deadline_s = 0.01
    with pytest.raises(AdapterError, match=r"gVisor task t is still running .* after delete"):
        await adapter.delete(task)
    assert monitor.state.forgotten == 0


async def test_delete_ends_a_task_that_waits_at_its_gate(adapter: RunscAdapter, task: Task) -> None:
    with_commands(adapter)
    os.mkfifo(task.bundle / "gate")
    reader = os.open(task.bundle / "gate", os.O_RDONLY | os.O_NONBLOCK)
    await adapter.delete(task)
    assert os.read(reader, 10) == b"no\n"
    os.close(reader)


async def test_a_start_passes_the_gate_and_answers(adapter: RunscAdapter, task: Task) -> None:
    for name in ("gate", "answer"):
        os.mkfifo(task.bundle / name)
    gate = os.open(task.bundle / "gate", os.O_RDWR | os.O_NONBLOCK)
    answer = os.open(task.bundle / "answer", os.O_RDWR | os.O_NONBLOCK)
    os.write(answer, b"0\n")
    await adapter.start(task)
    assert os.read(gate, 10) == b"go\n"
    os.write(answer, b"3\n")
    (task.bundle / "start.log").write_text('{"level": "error", "msg": "no such file"}\n')
    with pytest.raises(AdapterError, match="no such file"):
        await adapter.start(task)
    os.write(answer, b"what\n")
    with pytest.raises(
        AdapterError, match="the runtime cannot be signalled to start it: invalid literal"
    ):
        await adapter.start(task)
    os.close(gate)
    os.close(answer)


async def test_a_start_that_is_not_answered(adapter: RunscAdapter, task: Task) -> None:
    with pytest.raises(AdapterError, match="the runtime cannot be signalled to start it"):
        await adapter.start(task)
    os.mkfifo(task.bundle / "answer")
    adapter.start_deadline_s = 0.01
    with pytest.raises(AdapterError, match="gVisor did not start it within"):
        await adapter.start(task)


async def test_a_sandbox_is_started_by_its_command(adapter: RunscAdapter, task: Task) -> None:
    commands = with_commands(adapter)
    await adapter.start(Task(id="t", bundle=task.bundle, sandbox_id="t", log=None))
    assert commands.ran == ["start t"]


@pytest.mark.parametrize("status", [0, 3])
async def test_the_sandboxes_input_is_a_pipe_and_not_the_hosts_null_device(
    tmp_path: Path,
    adapter: RunscAdapter,
    monitor: Monitor,
    task: Task,
    status: int,
) -> None:
    # Without network = "host", gVisor changes the owner of its standard input to `nobody`.
    program = tmp_path / "runsc"
    program.write_text(
        f'#!/bin/sh\necho "$@" $(readlink /proc/$$/fd/0) >{tmp_path}/seen\nexit {status}\n'
    )
    program.chmod(0o755)
    with_commands(adapter).program = program

    async def create(argv: list[str]) -> int:
        argv = [*argv[:-1], "a b", "t"]
        child = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.DEVNULL)
        return await child.wait()

    monitor.state.create = create
    sandbox = Task(id="t", bundle=task.bundle, sandbox_id="t", log=None)
    assert await adapter.create(sandbox) == status
    seen = (tmp_path / "seen").read_text()
    assert seen.startswith("--root=/r create --bundle a b t pipe:")


@pytest.mark.parametrize("has_input", [False, True])
async def test_a_containers_input_is_never_the_hosts_null_device(
    tmp_path: Path,
    adapter: RunscAdapter,
    monitor: Monitor,
    task: Task,
    has_input: bool,
) -> None:
    program = tmp_path / "runsc"
    program.write_text(
        f"""#!/bin/sh
case "$*" in
*" start t") readlink /proc/$$/fd/0 >{tmp_path}/seen; head -c 5 >{tmp_path}/read; exit 3 ;;
esac
"""
    )
    program.chmod(0o755)
    with_commands(adapter).program = program
    made: list[asyncio.subprocess.Process] = []

    async def create(argv: list[str]) -> int:
        made.append(
            await asyncio.create_subprocess_exec(
                *argv, "--pid-file", str(tmp_path / "pid"), "t",
                stdin=asyncio.subprocess.PIPE if has_input else asyncio.subprocess.DEVNULL,
            )
        )  # fmt: skip
        assert made[0].stdin is None or has_input
        if made[0].stdin is not None:
            made[0].stdin.write(b"input")
        return await made[0].wait()

    monitor.state.create = create
    assert await adapter.create(task) == 0
    with pytest.raises(AdapterError):
        await adapter.start(task)
    assert (tmp_path / "seen").read_text().startswith("pipe:")
    assert (tmp_path / "read").read_text() == ("input" if has_input else "")


async def test_containers_cannot_be_checkpointed(adapter: RunscAdapter, task: Task) -> None:
    with pytest.raises(UnsupportedError, match="whole pods, not single containers"):
        await adapter.checkpoint(task, Path("/a"), keeps_running=False)


class Streams:
    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("has_inner", [True, False])
@pytest.mark.parametrize("refusals", [0, 1])
async def test_a_command_is_killed_inside_and_beside(
    task: Task, tmp_path: Path, has_inner: bool, refusals: int
) -> None:
    files = ExecFiles.write(tmp_path, {"args": ["x"]}, has_terminal=False)
    child = await asyncio.create_subprocess_exec("sleep", "600")
    files.pid_file.write_text(str(child.pid))
    if has_inner:
        files.inner_pid_file.write_text("7")
    commands: Any = Commands(refusals)
    streams: Any = Streams()
    process = GvisorProcess(files, streams, _Unwatching(), commands, task)
    await process.kill()
    assert await child.wait() == -9
    assert commands.ran == (["kill --pid 7 t KILL"] if has_inner else [])
    process._ending.set_result(0)
    await process.kill()
    assert len(commands.ran) == has_inner


class _Unwatching(Reaper):
    """Watches nothing: the test's loop has the child's end."""

    def watch(self, _pid: int) -> asyncio.Future[int]:
        return asyncio.get_running_loop().create_future()
