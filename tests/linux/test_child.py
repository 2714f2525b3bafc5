"""Programs of ours: started, awaited by many, ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.linux.child import Child, until_readable
from moorage.linux.process import state
from tests.descriptors import open_descriptors


@pytest.fixture
async def descriptors() -> AsyncIterator[int]:
    """Those open before; a test must leave no other, and no child."""
    before, awaited = open_descriptors(), set(Child.awaited)
    yield before
    # One of each list is the descriptor that the list itself was read by.
    assert open_descriptors() == before
    assert set(Child.awaited) <= awaited


pytestmark = pytest.mark.usefixtures("descriptors")


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -signal.SIGKILL)]
)
async def test_several_tasks_learn_one_end(script: str, status: int) -> None:
    child = Child(["sh", "-c", script])
    assert await asyncio.gather(*(child.wait() for _ in range(3))) == [status] * 3
    assert child.has_ended
    assert await child.wait() == status
    assert await child.end() == status
    child.close()
    child.close()


async def test_the_loop_goes_on_while_a_program_runs() -> None:
    child = Child(["sleep", "1000"])
    waiting = asyncio.create_task(child.wait())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert not child.has_ended
    assert await child.end() == -signal.SIGKILL
    assert await waiting == -signal.SIGKILL
    child.close()


async def test_taking_back_a_wait_leaves_the_program() -> None:
    child = Child(["sleep", "1000"])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await child.wait()
    assert not child.has_ended
    assert await child.end() == -signal.SIGKILL
    child.close()


async def test_one_that_is_apart_ends_with_all_it_started(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    child = Child(["sh", "-c", f"sleep 1000 & echo $! >{file}; wait"], is_apart=True)
    async with asyncio.timeout(5):
        while True:
            if file.exists() and file.read_text().strip():
                break
            await asyncio.sleep(0.01)
    await child.end()
    child.close()
    grandchild = int(file.read_text())
    async with asyncio.timeout(5):
        while True:
            if state(grandchild) in ("", "Z"):
                break
            await asyncio.sleep(0.01)


async def test_streams_environment_directory_and_descriptors_are_handed_on(tmp_path: Path) -> None:
    reading, writing = os.pipe2(os.O_CLOEXEC)
    extra, write_end = os.pipe2(os.O_CLOEXEC)
    os.write(write_end, b"passed\n")
    child = Child(
        ["sh", "-c", f"pwd; echo $WORD; head -n 1 /dev/fd/{extra}"],
        stdout=writing,
        environment={"WORD": "said", "PATH": os.environ["PATH"]},
        passing=(extra,),
        directory=tmp_path,
    )
    for descriptor in (writing, write_end, extra):
        os.close(descriptor)
    assert await child.wait() == 0
    await until_readable(reading)
    assert os.read(reading, 1000).decode().splitlines() == [str(tmp_path), "said", "passed"]
    os.close(reading)
    child.close()


async def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        Child(["/no/such/program"])


async def test_files_of_a_program_are_as_readable_as_it_says_whatever_this_process_does() -> None:
    reading, writing = os.pipe()
    before = os.umask(0o077)
    try:
        child = Child(["sh", "-c", "umask"], stdout=writing)
    finally:
        os.umask(before)
        os.close(writing)
    assert await child.wait() == 0
    assert os.read(reading, 100).strip() == b"0022"
    os.close(reading)
    child.close()


async def test_one_that_is_not_apart_is_in_our_session(tmp_path: Path) -> None:
    sessions = []
    for is_apart in (False, True):
        child = Child(
            ["sh", "-c", f"cut -d' ' -f6 /proc/$$/stat > {tmp_path}/sid"], is_apart=is_apart
        )
        assert await child.wait() == 0
        child.close()
        sessions.append((child.pid, int((tmp_path / "sid").read_text())))
    assert [own == session for own, session in sessions] == [False, True]
    assert sessions[0][1] == os.getsid(0)


@pytest.mark.parametrize("is_apart", [False, True])
async def test_only_a_child_apart_has_a_session_of_its_own(is_apart: bool) -> None:
    argv = ["sleep", "1000"]
    child = Child(argv, is_apart=True) if is_apart else Child(argv)
    try:
        assert (os.getsid(child.pid) == child.pid) == is_apart
    finally:
        await child.end()
        child.close()
