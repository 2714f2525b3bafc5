"""runc's command line: the options before each command, and a container that does not end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.handlers.adapters import AdapterError, Exit, Task
from moorage.engine.handlers.adapters.adapter import ExecFiles
from moorage.engine.handlers.adapters.conmon import Conmon, TaskFiles, monitor_pid
from moorage.engine.handlers.adapters.monitored import CriLog
from moorage.engine.handlers.adapters.oci import OciAdapter, OciRuntime
from moorage.engine.handlers.adapters.shim.keeper import end_process, start_keeper
from moorage.linux.reaper import Reaper
from tests.descriptors import open_descriptors


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "t").mkdir()
    return Task(id="t", bundle=tmp_path / "t", sandbox_id="s", log=None)


class Commands:
    def __init__(self) -> None:
        self.ran: list[str] = []

    async def run(self, *words: str, **_: Any) -> str:
        self.ran.append(" ".join(words))
        return ""

    async def delete(self, task_id: str) -> None:
        self.ran.append(f"delete {task_id}")


class Monitor(Conmon):
    """A conmon whose task ends when a test says so."""

    def exit_of(self, _task: Task) -> Any:
        return None

    def is_watched(self, _task: Task) -> bool:
        return True

    async def wait(self, _task: Task) -> Any:
        await asyncio.get_running_loop().create_future()

    async def abandon(self, _task: Task) -> None:
        """There is nothing to abandon."""

    def forget(self, _task: Task) -> None:
        raise AssertionError


async def test_a_container_that_does_not_end_is_an_error_and_not_deleted(
    task: Task, tmp_path: Path
) -> None:
    runtime = OciRuntime(program=Path("/bin/runc"), root=tmp_path)
    conmon = Monitor(program=Path("/bin/conmon"), exits=tmp_path)
    adapter = OciAdapter(runtime, conmon, Reaper(), tmp_path)
    adapter.end_deadline_s = 0.01
    commands = Commands()
    adapter.command_line = commands  # type: ignore[assignment]
    TaskFiles(task.bundle).pid.write_text("1")
    with pytest.raises(AdapterError, match=r"container t is still running .* after SIGKILL"):
        await adapter.delete(task)
    assert commands.ran[0].startswith("kill ")
    assert commands.ran[0].endswith(f"t {int(signal.SIGKILL)}")
    assert not any(command.startswith("delete") for command in commands.ran)


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, ("--root=/r",)),
        ({"has_systemd_cgroups": True}, ("--root=/r", "--systemd-cgroup")),
        ({"arguments": ("-a", "-b")}, ("--root=/r", "-a", "-b")),
    ],
)
def test_options_before_each_command(fields: dict[str, Any], options: tuple[str, ...]) -> None:
    assert OciRuntime(program=Path("/bin/runc"), root=Path("/r"), **fields).options == options


def test_an_exit_is_of_its_own_unless_memory_ran_out() -> None:
    assert Exit(1, 2) == Exit(1, 2, is_out_of_memory=False)


def test_a_command_without_an_id_is_an_error(tmp_path: Path) -> None:
    files = ExecFiles.write(tmp_path, {"args": ["x"], "terminal": False}, has_terminal=True)
    assert files.process.read_bytes() == b'{"args":["x"],"terminal":true}'
    for text in (None, "", "x"):
        if text is not None:
            files.pid_file.write_text(text)
        with pytest.raises(AdapterError, match="did not write the command's process ID"):
            files.pid()
    files.pid_file.write_text("7\n")
    assert files.pid() == 7
    names = {files.process.suffix, files.pid_file.suffix, files.inner_pid_file.suffix,
             files.console.suffix}  # fmt: skip
    assert len(names) == 4
    files.remove()
    assert list(tmp_path.iterdir()) == []


async def test_the_keeper_of_pipes_is_apart_and_ends(tmp_path: Path) -> None:
    pipes = {1: tmp_path / "out", 2: tmp_path / "err"}
    for pipe in pipes.values():
        os.mkfifo(pipe)
    before = open_descriptors()
    keeper = start_keeper(pipes, os.environ["PATH"])
    assert open_descriptors() == before
    assert os.getsid(keeper.pid) == keeper.pid
    # A writer finds a reader, until the keeper is ended.
    os.close(os.open(pipes[1], os.O_WRONLY | os.O_NONBLOCK))
    os.close(os.open(pipes[2], os.O_WRONLY | os.O_NONBLOCK))
    await end_process(keeper)
    await end_process(keeper)
    await end_process(None)
    with pytest.raises(OSError, match="No such device or address"):
        os.open(pipes[1], os.O_WRONLY | os.O_NONBLOCK)


def test_a_closed_log_is_closed(tmp_path: Path) -> None:
    before = open_descriptors()
    log = CriLog(tmp_path / "0.log")
    assert open_descriptors() == before + 1
    log.write(1, b"")
    assert log.is_at_line_end
    assert (tmp_path / "0.log").read_bytes() == b""
    log.close()
    assert open_descriptors() == before


async def test_a_monitor_is_known_by_its_container(task: Task) -> None:
    files = TaskFiles(task.bundle)
    assert monitor_pid(task.bundle) is None
    before = open_descriptors()
    for argument, wanted in (("t", True), ("other", False)):
        child = await asyncio.create_subprocess_exec("/bin/sh", "-c", "sleep 600; :", argument)
        files.monitor.write_text(str(child.pid))
        # Its words are the new program's once it has begun.
        async with asyncio.timeout(20):
            while b"sleep" not in Path(f"/proc/{child.pid}/cmdline").read_bytes():  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(0.001)
        assert monitor_pid(task.bundle) == (child.pid if wanted else None)
        child.kill()
        await child.wait()
        assert monitor_pid(task.bundle) is None
    files.monitor.write_text("what")
    assert monitor_pid(task.bundle) is None
    await asyncio.sleep(0)
    assert open_descriptors() <= before + 1
