"""Containers behind a real shim: containerd's, with each runtime it can drive here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pytest

from moorage.engine.handlers import CgroupDriver, ShimOptions, search_path
from moorage.engine.handlers.adapters import (
    STDERR,
    STDOUT,
    AdapterError,
    Streams,
    Task,
    TaskNotFoundError,
    TaskUsage,
)
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.shim.adapter import ShimAdapter
from moorage.engine.handlers.adapters.shim.keeper import TaskDirectory
from moorage.engine.handlers.adapters.shim.program import ShimProgram, TaskOptions
from moorage.engine.handlers.adapters.shim.service import ShimConnections
from moorage.engine.handlers.features import this_machine
from moorage.linux.cgroups import current_cgroups
from moorage.linux.process import state
from tests.engine.handlers.adapters.bundles import process, skip_without, write_bundle
from tests.engine.handlers.programs import program
from tests.running import until

pytestmark = pytest.mark.runtime

SHIM = "containerd-shim-runc-v2"
DEADLINE_S = 20.0


@dataclass
class Shims:
    """One engine's directory, its tasks, and what opens an adapter for it, again and again."""

    root: Path
    runtime: str
    cgroup: str
    tasks: list[Task] = field(default_factory=list)

    def open(self) -> ShimAdapter:
        return open_adapter(self.root, self.runtime)

    def task(
        self,
        *command: str,
        sandbox_id: str = "",
        has_terminal: bool = False,
        has_stdin: bool = False,
        is_stdin_once: bool = False,
        memory_bytes: int | None = None,
    ) -> Task:
        task_id = secrets.token_hex(8)
        sandbox_id = sandbox_id or f"s{task_id}"
        bundle = write_bundle(
            self.root / task_id,
            *command,
            cgroup=f"{self.cgroup}/{task_id}",
            has_terminal=has_terminal,
            memory_bytes=memory_bytes,
            annotations={
                "io.kubernetes.cri.container-type": "container",
                "io.kubernetes.cri.sandbox-id": sandbox_id,
            },
        )
        task = Task(
            id=task_id,
            bundle=bundle,
            sandbox_id=sandbox_id,
            log=self.root / "logs" / f"{task_id}.log",
            has_terminal=has_terminal,
            has_stdin=has_stdin,
            is_stdin_once=is_stdin_once,
        )
        self.tasks.append(task)
        return task


def open_adapter(root: Path, runtime: str, shim: Path | None = None) -> ShimAdapter:
    result = shutil.which(SHIM, path=search_path())
    assert result is not None
    options = ShimOptions(
        runtime_type="io.containerd.runc.v2", runtime_binary=runtime, needs_sandbox=False
    )
    return ShimAdapter(
        ShimProgram(shim or Path(result), root / "events", search_path()),
        TaskOptions(options, CgroupDriver.CGROUPFS, search_path(), root / "state"),
    )


@pytest.fixture(params=["runc", "crun"])
def runtime(request: pytest.FixtureRequest) -> str:
    skip_without(SHIM, request.param)
    if request.param == "crun" and this_machine().is_hugetlb_apart:
        pytest.skip("crun needs hugetlb on cgroup version 1")
    return str(request.param)


@pytest.fixture
async def shims(runtime: str) -> AsyncIterator[Shims]:
    """Gone at the end with all that the test made, however it ended."""
    root = Path(tempfile.mkdtemp(prefix="ms-", dir="/run"))
    result = Shims(root, runtime, f"/moorage-test-{root.name}")
    try:
        yield result
        async with result.open() as adapter, asyncio.timeout(60):
            for task in result.tasks:
                await adapter.delete(task)
        assert_nothing_left(result)
    finally:
        kill_what_names(str(root))
        try:
            remove_cgroups(result.cgroup)
        finally:
            shutil.rmtree(root)


def processes_naming(text: str) -> Iterator[tuple[int, str]]:
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with contextlib.suppress(OSError):
                line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if text in line:
                    yield int(path.name), line


def kill_what_names(text: str) -> None:
    for pid, _ in processes_naming(text):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def remove_cgroups(path: str) -> None:
    """End what runs in the test's cgroups, and remove them."""

    def is_gone() -> bool:
        for directory in Path("/sys/fs/cgroup").glob(f"*{path}"):
            for file in (*sorted(directory.rglob("*/"), reverse=True), directory):
                with contextlib.suppress(OSError):
                    for pid in (file / "cgroup.procs").read_text().split():
                        os.kill(int(pid), signal.SIGKILL)
                    file.rmdir()
        return not list(Path("/sys/fs/cgroup").glob(f"*{path}"))

    until(is_gone, f"the end of {path}", within_s=5)


def assert_nothing_left(shims: Shims) -> None:
    deadline = time.monotonic() + 5
    while (left := list(processes_naming(str(shims.root)))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
    for task in shims.tasks:
        assert not TaskDirectory(task.bundle).path.exists()
        assert not list((shims.root / "state").rglob(task.id))


def logged(task: Task) -> list[tuple[str, str, str]]:
    """The lines of a task's log: stream, tag and content."""
    assert task.log is not None
    lines = task.log.read_bytes().decode().split("\n")[:-1]
    return [(parts[1], parts[2], parts[3]) for parts in (line.split(" ", 3) for line in lines)]


async def read_until(streams: Streams, text: bytes) -> bytes:
    seen = b""
    async with asyncio.timeout(DEADLINE_S):
        while text not in seen:
            piece = await streams.read()
            assert piece is not None, seen
            seen += piece[1]
    return seen


async def read_all(streams: Streams) -> dict[int, bytes]:
    seen = {STDOUT: b"", STDERR: b""}
    async with asyncio.timeout(DEADLINE_S):
        while piece := await streams.read():
            seen[piece[0]] += piece[1]
    return seen


async def test_container_runs_writes_its_log_and_reports_its_exit(shims: Shims) -> None:
    task = shims.task("sh", "-c", "echo out; echo err >&2; exit 3")
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        pid = await adapter.create(task)
        assert state(pid)
        assert await adapter.is_alive(task)
        assert await adapter.exit_of(task) is None
        await adapter.start(task)
        how = await adapter.wait(task)
        assert how.code == 3
        assert abs(how.finished_at_ns - time.time_ns()) < 60e9
        assert sorted(logged(task)) == [("stderr", "F", "err"), ("stdout", "F", "out")]
        assert not await adapter.is_alive(task)
        assert await adapter.exit_of(task) == how
        await adapter.kill(task, signal.SIGTERM)
        await adapter.delete(task)
        await adapter.delete(task)
        with pytest.raises(TaskNotFoundError):
            await adapter.start(task)


async def test_a_task_is_made_once_and_a_second_try_harms_it_not(shims: Shims) -> None:
    task = shims.task("sleep", "1000")
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        await adapter.create(task)
        with pytest.raises(AdapterError, match="already exists"):
            await adapter.create(task)
        assert await adapter.is_alive(task)


async def test_many_tasks_and_commands_at_once_leave_nothing(shims: Shims) -> None:
    tasks = [shims.task("sleep", "1000", sandbox_id=f"pod{number % 2}") for number in range(6)]

    async def run(adapter: ShimAdapter, task: Task) -> None:
        await create_and_start(adapter, task)
        async with await adapter.exec(
            task, process("echo", task.id), has_stdin=False, has_terminal=False
        ) as running:
            assert (await read_all(running))[STDOUT].decode() == f"{task.id}\n"
            assert await running.wait() == 0
        await adapter.delete(task)

    async with shims.open() as adapter, asyncio.timeout(60):
        await asyncio.gather(*(run(adapter, task) for task in tasks))


async def test_a_creation_that_is_cancelled_is_undone(shims: Shims) -> None:
    async with shims.open() as adapter, asyncio.timeout(60):
        for delay_s in (0.0, 0.01, 0.03, 0.05):
            task = shims.task("sleep", "1000")
            creating = asyncio.create_task(adapter.create(task))
            done, _ = await asyncio.wait({creating}, timeout=delay_s)
            if done:
                await adapter.delete(task)
                continue
            creating.cancel()
            with pytest.raises(asyncio.CancelledError):
                await creating
            assert TaskDirectory(task.bundle).record() is None


async def test_a_killed_container_says_the_signal(shims: Shims) -> None:
    task = shims.task("sleep", "1000")
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        await adapter.create(task)
        await adapter.start(task)
        assert len(await adapter.processes(task)) == 1
        waiting = asyncio.create_task(adapter.wait(task))
        await adapter.kill(task, signal.SIGKILL)
        assert (await waiting).code == 137


async def test_exec_has_streams_of_its_own_and_an_exit_code(shims: Shims) -> None:
    task = shims.task("sleep", "1000")
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        await adapter.create(task)
        await adapter.start(task)
        command = process("sh", "-c", "cat; echo wrong >&2; exit 7")
        async with await adapter.exec(task, command, has_stdin=True, has_terminal=False) as running:
            await running.write(b"given " * 50_000)
            await running.end_input()
            seen = await read_all(running)
            assert seen == {STDOUT: b"given " * 50_000, STDERR: b"wrong\n"}
            assert await running.wait() == 7
        assert [
            path.name for path in TaskDirectory(task.bundle).path.iterdir() if path.is_dir()
        ] == []


async def test_leaving_an_exec_kills_it(shims: Shims) -> None:
    task = shims.task("sleep", "1000")
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        await adapter.create(task)
        await adapter.start(task)
        async with await adapter.exec(
            task, process("sleep", "2000"), has_stdin=False, has_terminal=False
        ):
            assert len(await adapter.processes(task)) == 2
        assert len(await adapter.processes(task)) == 1


async def test_missing_command_is_refused_with_the_runtimes_message(shims: Shims) -> None:
    task = shims.task("sleep", "1000")
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        await adapter.create(task)
        await adapter.start(task)
        with pytest.raises(AdapterError, match="absent"):
            await adapter.exec(task, process("absent"), has_stdin=False, has_terminal=False)
        missing = shims.task("absent")
        # runc notices when it starts the command, crun when it makes the container.
        with pytest.raises(AdapterError, match="absent"):
            await create_and_start(adapter, missing)


async def create_and_start(adapter: ShimAdapter, task: Task) -> None:
    await adapter.create(task)
    await adapter.start(task)


async def test_a_terminal_is_one_stream_that_can_be_sized(shims: Shims) -> None:
    task = shims.task("sh", has_terminal=True, has_stdin=True)
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        await adapter.create(task)
        async with await adapter.attach(task) as streams:
            await adapter.start(task)
            await streams.resize(101, 43)
            await streams.write(b"stty size; exit 5\n")
            await read_until(streams, b"43 101")
        assert (await adapter.wait(task)).code == 5
        assert {stream for stream, _, _ in logged(task)} == {"stdout"}


async def test_attach_streams_output_and_input_until_it_ends(shims: Shims) -> None:
    task = shims.task("cat", has_stdin=True, is_stdin_once=True)
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        await adapter.create(task)
        await adapter.start(task)
        async with (
            await adapter.attach(replace(task, is_stdin_once=False)) as other,
            await adapter.attach(task) as streams,
        ):
            await streams.write(b"hello\n")
            assert await read_until(streams, b"hello\n") == b"hello\n"
            assert await read_until(other, b"hello\n") == b"hello\n"
        assert (await adapter.wait(task)).code == 0
        assert logged(task) == [("stdout", "F", "hello")]


async def test_reopened_log_continues_without_loss(shims: Shims) -> None:
    task = shims.task("sh", "-c", "seq 1 20000; sleep 0.2; seq 20001 40000")
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        await adapter.create(task)
        await adapter.start(task)
        assert task.log is not None
        rotated = task.log.with_suffix(".1")
        task.log.rename(rotated)
        await adapter.reopen_log(task)
        assert (await adapter.wait(task)).code == 0
        pieces = "".join(
            line.split(" ", 3)[3] + ("\n" if line.split(" ", 3)[2] == "F" else "")
            for path in (rotated, task.log)
            for line in path.read_text().splitlines()
        )
        assert pieces.split() == [str(number) for number in range(1, 40001)]


async def test_containers_outlive_the_engine_with_their_logs_and_exit_codes(shims: Shims) -> None:
    brief = shims.task("sh", "-c", "echo before; sleep 0.3; echo after; exit 9")
    lasting = shims.task("sh", "-c", "echo up; cat", has_stdin=True)
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        for task in (brief, lasting):
            await adapter.create(task)
            await adapter.start(task)
    # No engine now: the brief one ends meanwhile.
    await ended(brief)
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        assert (await adapter.wait(brief)).code == 9
        assert [line for _, _, line in logged(brief)] == ["before", "after"]
        assert await adapter.is_alive(lasting)
        async with await adapter.attach(lasting) as streams:
            await streams.write(b"still here\n")
            await read_until(streams, b"still here\n")
            await streams.end_input()
        assert (await adapter.wait(lasting)).code == 0
    assert [line for _, _, line in logged(lasting)] == ["up", "still here"]
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        assert (await adapter.wait(brief)).code == 9


_ENGINE = """
import asyncio, sys
from pathlib import Path
import msgspec
from moorage.engine.handlers.adapters import Task
from tests.engine.handlers.adapters.shim.test_adapter import open_adapter

async def main():
    root, runtime, given = sys.argv[1:]
    task = msgspec.json.decode(given, type=Task, dec_hook=lambda kind, text: kind(text))
    async with open_adapter(Path(root), runtime) as adapter:
        await adapter.create(task)
        async with await adapter.attach(task) as streams:
            await adapter.start(task)
            seen = b""
            while b"\\n500\\n" not in seen:
                seen += (await streams.read())[1]
            print("written", flush=True)
            await adapter.wait(task)

asyncio.run(main())
"""


async def test_an_engine_that_is_killed_loses_no_line_of_a_container_that_ended_meanwhile(
    shims: Shims,
) -> None:
    task = shims.task("sh", "-c", "seq 1 500; sleep 1; seq 501 1000; exit 4")
    encoded_task = msgspec.json.encode(task, enc_hook=str).decode()
    engine = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _ENGINE, str(shims.root), shims.runtime, encoded_task),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[5],
    )
    assert engine.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            assert await engine.stdout.readline() == b"written\n"
    finally:
        with contextlib.suppress(ProcessLookupError):
            engine.kill()
        await engine.wait()
    # The shim itself is asked, so that no engine reads the pipes before the container has ended.
    await ended(task)
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        assert (await adapter.wait(task)).code == 4
    assert [line for _, _, line in logged(task)] == [str(number) for number in range(1, 1001)]


async def ended(task: Task) -> None:
    """Wait until a task has ended, without touching its pipes."""
    record = TaskDirectory(task.bundle).record()
    assert record is not None
    connections = ShimConnections()
    try:
        request = pb.WaitRequest(id=task.id)
        await connections.call(record.address, "Wait", request, pb.WaitResponse, deadline_s=20)
    finally:
        connections.close()


async def test_tasks_of_a_pod_share_a_shim(shims: Shims) -> None:
    first = shims.task("sleep", "1000", sandbox_id="pod")
    second = shims.task("sleep", "1000", sandbox_id="pod")
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        await adapter.create(first)
        await adapter.create(second)
        records = [TaskDirectory(task_.bundle).record() for task_ in (first, second)]
        assert records[0] is not None
        assert records[1] is not None
        assert records[0].address == records[1].address
        await adapter.delete(first)
        assert await adapter.is_alive(second)


async def test_a_shim_that_is_killed_takes_its_task_along(shims: Shims) -> None:
    task = shims.task("sleep", "1000")
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        pid = await adapter.create(task)
        await adapter.start(task)
        record = TaskDirectory(task.bundle).record()
        assert record is not None
        assert record.shim is not None
        waiting = asyncio.create_task(adapter.wait(task))
        os.kill(record.shim.pid, signal.SIGKILL)
        assert (await waiting).code == 137
        assert not await adapter.is_alive(task)
        assert state(pid) in ("", "Z")


async def test_memory_that_ran_out_is_the_reason(shims: Shims) -> None:
    eater = "x=a; while true; do x=$x$x; done"
    task = shims.task("sh", "-c", eater, memory_bytes=16 * 1024 * 1024)
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        await adapter.create(task)
        await adapter.start(task)
        how = await adapter.wait(task)
        assert how.code == 137
        assert how.is_out_of_memory


async def test_limits_change_while_it_runs(shims: Shims) -> None:
    task = shims.task("sleep", "1000", memory_bytes=32 * 1024 * 1024)
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        await adapter.create(task)
        await adapter.start(task)
        await adapter.update(task, {"memory": {"limit": 64 * 1024 * 1024}})
        record = TaskDirectory(task.bundle).record()
        assert record is not None
        limits = [
            path.read_text().strip()
            for name in ("memory.limit_in_bytes", "memory.max")
            if (path := Path(record.memory).with_name(name)).exists()
        ]
        assert limits == [str(64 * 1024 * 1024)]


async def test_a_shim_that_cannot_start_leaves_nothing(shims: Shims, tmp_path: Path) -> None:
    broken = tmp_path / "containerd-shim-broken-v1"
    broken.write_text("#!/bin/sh\necho no virtual machines here >&2\nexit 1\n")
    broken.chmod(0o755)
    task = shims.task("true")
    async with open_adapter(shims.root, "runc", broken) as adapter:
        with pytest.raises(AdapterError, match="no virtual machines here"):
            await adapter.create(task)
    assert not TaskDirectory(task.bundle).path.exists()


async def test_an_event_socket_that_cannot_be_made_is_named(shims: Shims) -> None:
    task = shims.task("true")
    async with open_adapter(shims.root, "runc") as adapter:
        (shims.root / "events").mkdir()
        with pytest.raises(AdapterError, match=f"^{shims.root}/events: "):
            await adapter.create(task)
    assert not TaskDirectory(task.bundle).path.exists()


async def test_a_runtime_that_is_not_found_is_refused_before_a_shim_starts(
    shims: Shims, tmp_path: Path
) -> None:
    # With an empty name the shim would run its default, which is not what the handler names.
    started = tmp_path / "started"
    shim = program(tmp_path, SHIM, f"touch {started}; exit 1")
    task = shims.task("true")
    async with open_adapter(shims.root, "absent-runtime", shim) as adapter:
        with pytest.raises(AdapterError, match="the runtime absent-runtime behind the shim is not"):
            await adapter.create(task)
    assert not started.exists()
    assert not TaskDirectory(task.bundle).path.exists()


async def test_what_a_failed_create_left_is_removed_by_the_shims_delete(
    shims: Shims, tmp_path: Path
) -> None:
    """The real shim, whose command lines are recorded: it does not know the task by then."""
    real = shutil.which(SHIM, path=search_path())
    shim = program(tmp_path, SHIM, f'echo "$*" >> {tmp_path}/lines; exec {real} "$@"')
    task = shims.task("true")
    config = task.bundle / "config.json"
    config.write_text("{}")
    async with open_adapter(shims.root, shims.runtime, shim) as adapter:
        with pytest.raises(AdapterError):
            await adapter.create(task)
    last = (tmp_path / "lines").read_text().splitlines()[-1]
    assert last.endswith(" delete")
    assert f"-id {task.id} " in last


async def test_a_runtime_installed_later_is_found(shims: Shims) -> None:
    task = shims.task("sleep", "1000")
    # Not in tmp_path, which is removed before the shim deletes the task.
    late = shims.root / "late-runtime"
    real = shutil.which(shims.runtime, path=search_path())
    assert real is not None
    async with open_adapter(shims.root, str(late)) as adapter, asyncio.timeout(DEADLINE_S):
        with pytest.raises(AdapterError, match="late-runtime"):
            await adapter.create(task)
        late.symlink_to(real)
        await adapter.create(task)
        assert await adapter.is_alive(task)


async def test_failed_log_reopen_names_the_file(shims: Shims) -> None:
    task = shims.task("sleep", "600")
    async with shims.open() as adapter, asyncio.timeout(DEADLINE_S):
        await adapter.create(task)
        assert task.log is not None
        task.log.unlink()
        task.log.mkdir()
        with pytest.raises(AdapterError, match=f"{task.log}: Is a directory"):
            await adapter.reopen_log(task)
        task.log.rmdir()
        await adapter.reopen_log(task)


async def test_the_shim_counts_what_a_container_uses(shims: Shims) -> None:
    """The shim reads cgroups of version 1 only where it finds every one of them mounted."""
    hugetlb = shims.root / "hugetlb"
    hugetlb.mkdir()
    shim = shutil.which(SHIM, path=search_path())
    unmounted = this_machine().is_hugetlb_apart or "hugetlb" not in current_cgroups().v1
    script = f'exec {shim} "$@"'
    if unmounted:
        mount = f"mount -t cgroup -o hugetlb hugetlb {hugetlb} && {script}"
        script = f"exec unshare --mount --propagation private sh -c '{mount}' sh \"$@\""
    apart = program(shims.root / "bin", "apart", script)
    async with open_adapter(shims.root, shims.runtime, apart) as adapter:
        task = shims.task("sh", "-c", "head -c 8000000 /dev/zero | tr x y >/tmp/a; exec sleep 1000")
        await adapter.create(task)
        await adapter.start(task)
        if "cannot find cgroup" in (task.bundle / "log").read_text():
            pytest.skip("the shim does not find the cgroups of this machine")
        async with asyncio.timeout(DEADLINE_S):
            usage = TaskUsage()
            while (usage.memory or 0) < 8_000_000:
                usage = await adapter.usage(task) or TaskUsage()
        assert usage.memory is not None
        assert usage.rss is not None
        assert usage.rss < usage.memory
        assert usage.cpu_ns
        assert usage.pids
        assert usage.memory_limit is None
