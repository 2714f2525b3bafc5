"""What `Adapter` promises, kept by each kind of it with a real runtime."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.engine.handlers.adapters import (
    STDERR,
    STDOUT,
    Adapter,
    AdapterError,
    Streams,
    Task,
    TaskNotFoundError,
    UnsupportedError,
)
from moorage.linux.process import state
from moorage.linux.reaper import Reaper
from tests.engine.handlers.adapters.bundles import process
from tests.engine.handlers.adapters.workbench import KINDS, Workbench, make_workbench
from tests.engine.handlers.programs import program

pytestmark = [pytest.mark.runtime, pytest.mark.usefixtures("crun_has_cgroups")]

DEADLINE_S = 20.0
SLEEP = ("sleep", "1000")


@pytest.fixture(params=KINDS)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Workbench]:
    async with Bench(request.param) as bench:
        yield bench


@pytest.fixture
async def runc(request: pytest.FixtureRequest) -> AsyncIterator[Workbench]:
    """For what is the same code whatever the runtime."""
    del request
    async with Bench("runc") as bench:
        yield bench


class Bench:
    """A bench that leaves nothing, however its test ends; a test that ends well must leave none."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._reaper = Reaper()
        self._root = Path(tempfile.mkdtemp(prefix="ma", dir="/tmp"))

    async def __aenter__(self) -> Workbench:
        try:
            self._bench = make_workbench(self._kind, self._root, self._reaper)
        except BaseException:
            shutil.rmtree(self._root)
            raise
        await self._reaper.__aenter__()
        return self._bench

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                async with asyncio.timeout(60):
                    await self._bench.delete_all()
                self._bench.assert_nothing_left()
        finally:
            await self._reaper.__aexit__()
            self._bench.clean()


def logged(task: Task) -> list[tuple[str, str, str]]:
    """The lines of a task's log: stream, tag and content."""
    assert task.log is not None
    lines = task.log.read_bytes().decode().split("\n")[:-1]
    return [(parts[1], parts[2], parts[3]) for parts in (line.split(" ", 3) for line in lines)]


async def everything(streams: Streams) -> dict[int, bytes]:
    came = {STDOUT: b"", STDERR: b""}
    while (piece := await streams.read()) is not None:
        came[piece[0]] += piece[1]
    return came


async def until_read(streams: Streams, expected: bytes) -> None:
    came = b""
    while expected not in came:
        piece = await streams.read()
        assert piece is not None, came
        came += piece[1]


async def until_logged(task: Task, line: str) -> None:
    assert task.log is not None
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if task.log.exists() and line in [text for _, _, text in logged(task)]:
                return
            await asyncio.sleep(0.02)


async def test_the_program_that_runs_is_the_handlers_own(bench: Workbench) -> None:
    lines = bench.record_program()
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await bench.run(adapter, *SLEEP)
        await adapter.kill(task, signal.SIGKILL)
        await adapter.wait(task)
        await adapter.delete(task)
    commands = [line.split() for line in lines.read_text().splitlines() if task.id in line]
    for verb in ("create", "start", "delete"):
        assert any(verb in words for words in commands), (verb, commands)


async def test_task_runs_writes_its_log_and_reports_its_exit(bench: Workbench) -> None:
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await bench.task(adapter, "sh", "-c", "echo out; echo err >&2; exit 3")
        pid = await adapter.create(task)
        assert state(pid)
        assert await adapter.is_alive(task)
        assert await adapter.exit_of(task) is None
        await adapter.start(task)
        how = await adapter.wait(task)
        assert (how.code, how.is_out_of_memory) == (3, False)
        assert abs(how.finished_at_ns - time.time_ns()) < 60e9
        assert sorted(logged(task)) == [("stderr", "F", "err"), ("stdout", "F", "out")]
        assert await adapter.exit_of(task) == how
        assert not await adapter.is_alive(task)
        assert await adapter.wait(task) == how


async def test_a_deletion_at_any_stage_is_whole_and_can_be_repeated(bench: Workbench) -> None:
    async with bench.open() as adapter, asyncio.timeout(2 * DEADLINE_S):
        never = await bench.task(adapter, *SLEEP)
        await adapter.delete(never)
        created = await bench.task(adapter, *SLEEP)
        await adapter.create(created)
        await adapter.delete(created)
        running = await bench.run(adapter, *SLEEP)
        await adapter.delete(running)
        ended = await bench.run(adapter, "true")
        await adapter.wait(ended)
        await adapter.kill(ended, signal.SIGTERM)
        for task in (never, created, running, ended):
            await adapter.delete(task)
            assert not await adapter.is_alive(task)


async def test_a_signal_reaches_the_task_and_its_code_says_so(bench: Workbench) -> None:
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        script = "trap 'echo asked; exit 5' TERM; echo up; while true; do sleep 0.05; done"
        obeying = await bench.run(adapter, "sh", "-c", script)
        await until_logged(obeying, "up")
        await adapter.kill(obeying, signal.SIGTERM)
        assert (await adapter.wait(obeying)).code == 5
        assert [text for _, _, text in logged(obeying)] == ["up", "asked"]
        killed = await bench.run(adapter, *SLEEP)
        waiting = [asyncio.create_task(adapter.wait(killed)) for _ in range(2)]
        await adapter.kill(killed, signal.SIGKILL)
        assert [(await task).code for task in waiting] == [137, 137]


async def test_a_command_that_is_not_there_fails_the_start(bench: Workbench) -> None:
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await bench.task(adapter, "/no-such-command")
        with pytest.raises(AdapterError, match="no-such-command") as raised:
            await _create_and_start(adapter, task)
        assert "\n" not in str(raised.value)
        await adapter.delete(task)
        assert not await adapter.is_alive(task)


async def _create_and_start(adapter: Adapter, task: Task) -> None:
    """runc notices when it starts the command, crun when it makes the container."""
    await adapter.create(task)
    await adapter.start(task)


async def test_a_second_command_has_streams_and_a_code_of_its_own(bench: Workbench) -> None:
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await bench.run(adapter, *SLEEP)
        command = process("sh", "-c", "cat; echo wrong >&2; exit 7")
        async with await adapter.exec(task, command, has_stdin=True, has_terminal=False) as running:
            writing = asyncio.create_task(running.write(b"given " * 20_000))
            reading = asyncio.create_task(everything(running))
            await writing
            await running.end_input()
            assert await reading == {STDOUT: b"given " * 20_000, STDERR: b"wrong\n"}
            assert await running.wait() == 7
        with pytest.raises(AdapterError, match="absent"):
            await adapter.exec(task, process("/absent"), has_stdin=False, has_terminal=False)
        command = process("sh", "-c", "kill -9 $$")
        async with await adapter.exec(
            task, command, has_stdin=False, has_terminal=False
        ) as running:
            assert await running.wait() == 137


async def test_leaving_a_second_command_ends_it(bench: Workbench) -> None:
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await bench.run(adapter, *SLEEP)
        async with await adapter.exec(
            task, process("sleep", "4711"), has_stdin=False, has_terminal=False
        ):
            assert await _sees(bench, task, "4711")
        async with asyncio.timeout(5):
            while True:
                if not await _sees(bench, task, "4711"):
                    break
                await asyncio.sleep(0.05)
        assert await adapter.is_alive(task)


async def _sees(bench: Workbench, task: Task, word: str) -> bool:
    """Whether a process with that word runs in a task, as the task itself sees it."""
    script = f"cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | busybox grep -q '[s]leep {word}'"
    async with bench.open() as adapter:
        command = process("sh", "-c", script)
        async with await adapter.exec(task, command, has_stdin=False, has_terminal=False) as asking:
            return await asking.wait() == 0


async def test_a_second_command_can_have_a_terminal(bench: Workbench) -> None:
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await bench.run(adapter, *SLEEP)
        command = process("sh", "-c", "read word; echo got $word >&2; exit 4")
        async with await adapter.exec(task, command, has_stdin=True, has_terminal=True) as running:
            await running.resize(101, 43)
            await running.write(b"typed\n")
            came = await everything(running)
            assert b"got typed" in came[STDOUT]
            assert not came[STDERR]
            assert await running.wait() == 4


async def test_a_task_can_have_a_terminal_of_a_size(bench: Workbench) -> None:
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        # gVisor of 2022 has terminals that do not report their size.
        ask = "echo 43 101" if bench.is_gvisor else "stty size"
        task = await bench.task(adapter, "sh", has_terminal=True, has_stdin=True)
        await adapter.create(task)
        async with await adapter.attach(task) as streams:
            await adapter.start(task)
            await adapter.resize(task, 101, 43)
            await streams.write(f"{ask}; exit 6\n".encode())
            await until_read(streams, b"43 101")
        assert (await adapter.wait(task)).code == 6
        assert {stream for stream, _, _ in logged(task)} == {"stdout"}


async def test_stdin_once_ends_with_the_first_attached_client(bench: Workbench) -> None:
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await bench.run(
            adapter, "sh", "-c", "cat; echo over", has_stdin=True, is_stdin_once=True
        )
        async with await adapter.attach(task) as streams:
            await streams.write(b"typed\n")
            await until_read(streams, b"typed\n")
            await streams.end_input()
            await until_read(streams, b"over")
        assert (await adapter.wait(task)).code == 0
        assert [text for _, _, text in logged(task)] == ["typed", "over"]


async def test_tasks_are_taken_over_by_another_engine(bench: Workbench) -> None:
    script = "trap 'exit 9' USR1; echo up; while true; do sleep 0.05; done"
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        running = await bench.run(adapter, "sh", "-c", script)
        leaving = await bench.run(adapter, "sh", "-c", script)
        created = await bench.task(adapter, "sh", "-c", "exit 6")
        await adapter.create(created)
        for task in (running, leaving):
            await until_logged(task, "up")
        await adapter.kill(leaving, signal.SIGUSR1)
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        assert (await adapter.wait(leaving)).code == 9
        assert await adapter.is_alive(running)
        assert await adapter.exit_of(running) is None
        async with await adapter.exec(
            running, process("echo", "in"), has_stdin=False, has_terminal=False
        ) as command:
            assert (await everything(command))[STDOUT] == b"in\n"
        waiting = asyncio.create_task(adapter.wait(running))
        await adapter.kill(running, signal.SIGUSR1)
        assert (await waiting).code == 9
        await adapter.start(created)
        assert (await adapter.wait(created)).code == 6


async def test_reopened_log_continues_without_loss(bench: Workbench) -> None:
    script = "i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); busybox usleep 2000; done"
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await bench.run(adapter, "sh", "-c", script)
        assert task.log is not None
        await until_logged(task, "20")
        first = task.log.rename(task.log.with_suffix(".first"))
        await adapter.reopen_log(task)
        await adapter.wait(task)
        lines = [line.split(" ", 3)[3] for line in first.read_text().splitlines()]
        lines += [text for _, _, text in logged(task)]
        assert lines == [str(number) for number in range(200)]


async def test_limits_are_changed_or_nothing_is(bench: Workbench) -> None:
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await bench.run(adapter, *SLEEP)
        await adapter.update(task, {"memory": {"limit": 96 << 20}})
        files = (
            Path(f"/sys/fs/cgroup/memory{bench.cgroup}/{task.id}/memory.limit_in_bytes"),
            Path(f"/sys/fs/cgroup{bench.cgroup}/{task.id}/memory.max"),
        )
        limits = [int(file.read_text()) for file in files if file.exists()]
        assert (limits == [96 << 20]) != bench.is_gvisor


async def test_memory_that_ran_out_is_the_reason(bench: Workbench) -> None:
    if bench.is_gvisor:
        pytest.skip("its tasks have no limits of their own here")
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        eat = "head -c 200000000 /dev/zero | busybox tail -c 100000000"
        task = await bench.task(adapter, "sh", "-c", eat, memory_bytes=24 << 20)
        await adapter.create(task)
        await adapter.start(task)
        how = await adapter.wait(task)
        assert how.is_out_of_memory


async def test_processes_are_listed_as_far_as_the_host_sees_them(bench: Workbench) -> None:
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await bench.run(adapter, *SLEEP)
        pids = await adapter.processes(task)
        assert len(pids) == 1
        assert state(pids[0])


async def test_a_checkpoint_is_unsupported_where_the_runtime_cannot(bench: Workbench) -> None:
    if shutil.which("criu") is not None and not bench.is_gvisor:
        pytest.skip("criu is installed")
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await bench.run(adapter, *SLEEP)
        with pytest.raises(UnsupportedError):
            await adapter.checkpoint(task, bench.root / "archive", keeps_running=True)
        assert await adapter.is_alive(task)


async def test_a_creation_that_is_taken_back_leaves_nothing(bench: Workbench) -> None:
    async with bench.open() as adapter, asyncio.timeout(60):
        for delay_s in (0.0, 0.01, 0.04):
            task = await bench.task(adapter, *SLEEP)
            creating = asyncio.create_task(adapter.create(task))
            await asyncio.wait({creating}, timeout=delay_s)
            creating.cancel()
            await asyncio.gather(creating, return_exceptions=True)
            await adapter.delete(task)
            assert not await adapter.is_alive(task)
            assert not any(task.id in line for line in bench.processes())


async def test_a_task_ends_with_its_monitor(bench: Workbench) -> None:
    if not bench.has_conmon:
        pytest.skip("its tasks have no conmon")
    async with bench.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await bench.run(adapter, "sleep", "4321")
        os.kill(int((task.bundle / "monitor").read_text()), signal.SIGKILL)
        how = await adapter.wait(task)
        assert how.code == 137
        assert await adapter.exit_of(task) is not None
        assert not await adapter.is_alive(task)
        with pytest.raises(TaskNotFoundError):
            await adapter.attach(task)
        with pytest.raises(AdapterError):
            await adapter.reopen_log(task)


async def test_a_create_that_does_not_come_back_is_ended(runc: Workbench) -> None:
    script = 'case "$*" in *" create "*) sleep 7654; exit 1;; esac; exec runc "$@"'
    runc.program = program(runc.root / "bin", "fake_hanging", script)
    runc.create_deadline_s = 0.5
    async with runc.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await runc.task(adapter, *SLEEP)
        with pytest.raises(AdapterError, match="did not create the container within"):
            await adapter.create(task)
        assert not runc.processes()


async def test_killed_create_is_an_error(runc: Workbench) -> None:
    script = 'case "$*" in *" create "*) kill -9 $$;; esac; exec runc "$@"'
    runc.program = program(runc.root / "bin", "fake_killed", script)
    async with runc.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await runc.task(adapter, *SLEEP)
        with pytest.raises(AdapterError):
            await adapter.create(task)
        assert not runc.processes()


async def test_missing_runtime_is_an_error(runc: Workbench) -> None:
    runc.program = runc.root / "no-such-runtime"
    async with runc.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await runc.task(adapter, *SLEEP)
        with pytest.raises(AdapterError, match="no-such-runtime"):
            await adapter.create(task)
        runc.program = None


async def test_runtime_message_is_the_last_error_of_its_log(runc: Workbench) -> None:
    log_line = json.dumps({"level": "error", "msg": "first\nthen  second"})
    script = f"""
case "$*" in *" start "*)
    for word; do [ "$before" = --log ] && printf '%s\\n' '{log_line}' >"$word"; before=$word; done
    exit 1
esac
exec runc "$@"
"""
    runc.program = program(runc.root / "bin", "fake_wordy", script)
    async with runc.open() as adapter, asyncio.timeout(DEADLINE_S):
        task = await runc.task(adapter, *SLEEP)
        await adapter.create(task)
        with pytest.raises(AdapterError, match=r"^first then second$"):
            await adapter.start(task)
