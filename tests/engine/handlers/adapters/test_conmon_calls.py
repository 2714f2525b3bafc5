"""How conmon is started, and what is made of its answers: with a program in its place."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.handlers.adapters import AdapterError, Task, TaskNotFoundError
from moorage.engine.handlers.adapters.conmon import AttachedStreams, Conmon, TaskFiles
from moorage.linux.child import Child
from tests.descriptors import open_descriptors
from tests.engine.handlers.programs import program

ID = "a1" * 32


@pytest.fixture
def task(tmp_path: Path) -> Task:
    bundle = tmp_path / ID
    bundle.mkdir()
    return Task(id=ID, bundle=bundle, sandbox_id="s", log=tmp_path / "logs" / "c.log")


def conmon(directory: Path, answer: str) -> Conmon:
    """A conmon that writes its arguments and environment, and gives an answer."""
    # As conmon does, it ends if the pipe is closed with nothing in it.
    start = "[ $(head -c 1 < /dev/fd/$_OCI_STARTPIPE | wc -c) = 1 ] || exit 1; "
    script = (
        f'{start}printf "%s\\n" "$@" > {directory}/argv\n'
        f"env > {directory}/env; pwd > {directory}/pwd\n"
        f"printf '%s' '{answer}' > /dev/fd/$_OCI_SYNCPIPE"
    )
    return Conmon(program=program(directory / "bin", "conmon", script), exits=directory / "exits")


def arguments(directory: Path) -> list[str]:
    return (directory / "argv").read_text().splitlines()


async def test_the_whole_command_line(tmp_path: Path, task: Task) -> None:
    made = conmon(tmp_path, '{"data": 42}\n')
    placed: list[int] = []
    pid = await made.create(
        task, Path("/bin/runc"), ["--root", "/r"], ["--no-pivot"], place=placed.append
    )
    bundle = task.bundle
    assert pid == 42
    assert arguments(tmp_path) == [
        "--api-version", "1", "-c", ID, "-u", ID, "-n", ID[:12], "-r", "/bin/runc",
        "-b", str(bundle), "-p", str(TaskFiles(bundle).pid), "-P", str(TaskFiles(bundle).monitor),
        "-l", f"k8s-file:{task.log}", "--exit-dir", str(tmp_path / "exits"),
        "--persist-dir", str(bundle), "--socket-dir-path", str(bundle), "--full-attach",
        "--no-sync-log", "--log-level", "error", "--runtime-arg=--root", "--runtime-arg=/r",
        "--no-pivot",
    ]  # fmt: skip
    assert (tmp_path / "pwd").read_text().strip() == str(bundle)
    assert len(placed) == 1
    assert task.log is not None
    assert task.log.parent.is_dir()
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"_OCI_SYNCPIPE", "_OCI_STARTPIPE", "PATH"}


@pytest.mark.parametrize(
    ("fields", "added"),
    [
        ({}, []),
        ({"has_terminal": True}, ["-t"]),
        ({"has_stdin": True}, ["-i", "--leave-stdin-open"]),
        ({"has_stdin": True, "is_stdin_once": True}, ["-i"]),
        ({"has_terminal": True, "has_stdin": True}, ["-t", "-i", "--leave-stdin-open"]),
    ],
)
async def test_terminal_and_input(
    tmp_path: Path, task: Task, fields: dict[str, Any], added: list[str]
) -> None:
    await conmon(tmp_path, '{"data": 1}\n').create(replace(task, **fields), Path("/bin/runc"), ())
    argv = arguments(tmp_path)
    assert argv[argv.index("error") + 1 :] == added


async def test_without_a_log_and_with_systemds_cgroups(tmp_path: Path, task: Task) -> None:
    quiet = replace(task, log=None)
    made = conmon(tmp_path, '{"data": 1}\n')
    await made.create(quiet, Path("/bin/runc"), (), has_systemd_cgroups=True)
    argv = arguments(tmp_path)
    assert argv[argv.index("-l") + 1] == "none:"
    assert argv[-1] == "-s"


RUNC_LOG = r"""time="2026-01-01T00:00:00Z" level=warning msg="Failed to remove cgroup" error="busy"
time="2026-01-01T00:00:00Z" level=error msg="runc create failed: exec: \"x\": not found in $PATH"
"""
RUNC_ERROR = 'runc create failed: exec: "x": not found in $PATH'


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ('{"data": -1, "message": "no such file\\nsecond line"}\n', "no such file"),
        ('{"data": 0}\n', "/bin/runc create failed"),
        (json.dumps({"data": -1, "message": RUNC_LOG}) + "\n", f"^{re.escape(RUNC_ERROR)}$"),
        ("nonsense\n", "invalid reply, b'nonsense"),
        ('{"data": "x"}\n', "invalid reply"),
        ("", "exited before it started /bin/runc"),
    ],
)
async def test_answers_that_are_refusals(
    tmp_path: Path, task: Task, answer: str, message: str
) -> None:
    made = conmon(tmp_path, answer)
    with pytest.raises(AdapterError, match=message):
        await made.create(task, Path("/bin/runc"), ())


async def test_a_missing_program_is_named(tmp_path: Path, task: Task) -> None:
    missing = Conmon(program=tmp_path / "absent", exits=tmp_path)
    with pytest.raises(AdapterError, match="absent: No such file"):
        await missing.create(task, Path("/bin/runc"), ())


async def test_nothing_starts_when_it_cannot_be_placed(tmp_path: Path, task: Task) -> None:
    def refuse(pid: int) -> None:
        raise PermissionError(1, f"cgroup of {pid}")

    made = conmon(tmp_path, '{"data": 1}\n')
    before = open_descriptors()
    with pytest.raises((PermissionError, AdapterError)):
        await made.create(task, Path("/bin/runc"), (), place=refuse)
    # Those of earlier tests may be closed meanwhile.
    assert open_descriptors() <= before
    assert not (tmp_path / "argv").exists()
    assert not Child.awaited, "the launcher is a zombie"


@pytest.mark.parametrize(
    ("content", "code"),
    [("0", 0), ("7\n", 7), ("137", 137), ("-1", 255), ("256", 0), ("", None), ("x", None)],
)
def test_an_exit_file_is_a_code(tmp_path: Path, task: Task, content: str, code: int | None) -> None:
    made = Conmon(program=tmp_path / "conmon", exits=tmp_path)
    assert made.exit_of(task) is None
    TaskFiles(task.bundle).exit.write_text(content)
    os.utime(TaskFiles(task.bundle).exit, ns=(5, 7_000_000_000))
    status = made.exit_of(task)
    if code is None:
        assert status is None
        return
    assert status is not None
    assert (status.code, status.finished_at_ns, status.is_out_of_memory) == (
        code,
        7_000_000_000,
        False,
    )
    TaskFiles(task.bundle).out_of_memory.touch()
    again = made.exit_of(task)
    assert again is not None
    assert again.is_out_of_memory


async def test_the_end_of_a_task_without_a_monitor_is_known_at_once(
    tmp_path: Path, task: Task
) -> None:
    made = Conmon(program=tmp_path / "conmon", exits=tmp_path / "exits")
    (tmp_path / "exits").mkdir()
    assert not made.is_watched(task)
    status = await asyncio.wait_for(made.wait(task), 5)
    assert status.code == 137
    TaskFiles(task.bundle).exit.write_text("3")
    assert (await asyncio.wait_for(made.wait(task), 5)).code == 3
    (tmp_path / "exits" / ID).touch()
    made.forget(task)
    made.forget(task)
    assert list((tmp_path / "exits").iterdir()) == []


async def test_monitor_is_identified_by_its_task_and_awaited(tmp_path: Path, task: Task) -> None:
    made = Conmon(program=tmp_path / "conmon", exits=tmp_path)
    monitor = await asyncio.create_subprocess_exec("sh", "-c", "sleep 100; :", ID)
    try:
        TaskFiles(task.bundle).monitor.write_text(str(monitor.pid))
        assert made.is_watched(task)
        other = replace(task, id="b2" * 32)
        assert not made.is_watched(other)
        waiting = asyncio.create_task(made.wait(task))
        done, _ = await asyncio.wait({waiting}, timeout=0.05)
        assert not done
        TaskFiles(task.bundle).exit.write_text("9")
    finally:
        monitor.kill()
        await monitor.wait()
    assert (await asyncio.wait_for(waiting, 5)).code == 9


async def test_orders_go_to_the_control_pipe(tmp_path: Path, task: Task) -> None:
    made = Conmon(program=tmp_path / "conmon", exits=tmp_path)
    with pytest.raises(TaskNotFoundError, match="does not listen"):
        made.resize(task, 80, 24)
    control = TaskFiles(task.bundle).control
    os.mkfifo(control)
    reader = os.open(control, os.O_RDONLY | os.O_NONBLOCK)
    try:
        made.resize(task, 80, 24)
        assert os.read(reader, 100) == b"1 24 80\n"
        assert task.log is not None
        task.log.parent.mkdir()
        reopening = asyncio.create_task(made.reopen_log(task))
        done, _ = await asyncio.wait({reopening}, timeout=0.05)
        assert not done, "the new file is not there yet"
        task.log.touch()
        await asyncio.wait_for(reopening, 5)
        assert os.read(reader, 100) == b"2 0 0\n"
        await made.reopen_log(replace(task, log=None))
    finally:
        os.close(reader)


async def test_streams_are_packets_of_the_attach_socket(tmp_path: Path, task: Task) -> None:
    made = Conmon(program=tmp_path / "conmon", exits=tmp_path)
    with pytest.raises(TaskNotFoundError, match="are not served"):
        made.attach(task)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    directory = os.open(task.bundle, os.O_PATH)
    server.bind(f"/proc/self/fd/{directory}/attach")
    os.close(directory)
    server.listen()
    with server:
        async with made.attach(task) as streams:
            peer, _ = server.accept()
            with peer:
                for packet in (b"\x02out", b"\x03err", b"\x02", b"\x09odd", b"\x02end"):
                    peer.send(packet)
                result = [await streams.read() for _ in range(3)]
                assert result == [(1, b"out"), (2, b"err"), (1, b"end")]
                data = bytes(range(256)) * 80
                await streams.write(data)
                came = b""
                while len(came) < len(data):
                    piece = peer.recv(65536)
                    assert len(piece) <= 8192
                    came += piece
                assert came == data
                await streams.end_input()
                await streams.end_input()
                assert peer.recv(10) == b""
            assert await asyncio.wait_for(streams.read(), 5) is None


@pytest.mark.parametrize(("has_terminal", "sizes"), [(True, [(80, 24)]), (False, [])])
async def test_only_a_terminal_has_a_size(
    tmp_path: Path, task: Task, *, has_terminal: bool, sizes: list[tuple[int, int]]
) -> None:
    seen: list[tuple[int, int]] = []

    class FakeConmon(Conmon):
        def resize(self, _: Task, width: int, height: int) -> None:
            seen.append((width, height))

    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fake = FakeConmon(program=tmp_path, exits=tmp_path)
    with other:
        async with AttachedStreams(fake, replace(task, has_terminal=has_terminal), own) as streams:
            await streams.resize(80, 24)
    assert seen == sizes
