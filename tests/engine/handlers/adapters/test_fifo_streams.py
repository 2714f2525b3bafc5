"""Output through named pipes: to a log and to readers of every pace. Real pipes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.engine.handlers.adapters import STDERR, STDOUT
from moorage.engine.handlers.adapters.fifo_streams import (
    ProcessInput,
    ProcessOutput,
    make_pipes,
    pipes_in,
)
from moorage.engine.handlers.adapters.monitored import CriLog
from tests.descriptors import descriptors, opened_since

DEADLINE_S = 5.0


@pytest.fixture
def pipes(tmp_path: Path) -> dict[int, Path]:
    return make_pipes(tmp_path, has_stdin=True, has_stderr=True)


@pytest.fixture
def writer(pipes: dict[int, Path]) -> Iterator[int]:
    """The shim's end of standard output; it keeps a reader too, as shims do."""
    descriptor = os.open(pipes[STDOUT], os.O_RDWR | os.O_NONBLOCK)
    yield descriptor
    os.close(descriptor)


def outputs(pipes: dict[int, Path]) -> dict[int, Path]:
    return {key: path for key, path in pipes.items() if key}


def log_of(directory: Path) -> CriLog:
    return CriLog(directory / "log")


async def test_pipes_without_a_writer_yet_have_not_ended(pipes: dict[int, Path]) -> None:
    output = ProcessOutput(outputs(pipes), None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await output.ended.wait()
    output.close()


async def test_it_ends_when_every_writer_has_gone_and_all_is_read(
    pipes: dict[int, Path], tmp_path: Path
) -> None:
    output = ProcessOutput(outputs(pipes), log_of(tmp_path))
    queue = output.attach()
    for descriptor in (STDOUT, STDERR):
        pipe = os.open(pipes[descriptor], os.O_WRONLY)
        os.write(pipe, b"%d\n" % descriptor)
        os.close(pipe)
    seen = set()
    async with asyncio.timeout(DEADLINE_S):
        while piece := await queue.read():
            seen.add(piece)
        await output.ended.wait()
    assert seen == {(STDOUT, b"1\n"), (STDERR, b"2\n")}
    assert len((tmp_path / "log").read_text().splitlines()) == 2


async def test_what_was_left_in_kept_pipes_is_read_to_its_end(
    pipes: dict[int, Path], tmp_path: Path
) -> None:
    kept = [os.open(path, os.O_RDONLY | os.O_NONBLOCK) for path in outputs(pipes).values()]
    pipe = os.open(pipes[STDOUT], os.O_WRONLY)
    os.write(pipe, b"last words\n" * 1000)
    os.close(pipe)
    output = ProcessOutput(outputs(pipes_in(tmp_path)), log_of(tmp_path))
    async with asyncio.timeout(1):
        await output.finish(DEADLINE_S)
    assert (tmp_path / "log").read_text().count("last words") == 1000
    for descriptor in kept:
        os.close(descriptor)


async def test_child_that_keeps_a_pipe_delays_finish_no_longer_than_its_limit(
    pipes: dict[int, Path], writer: int
) -> None:
    output = ProcessOutput(outputs(pipes), None)
    os.write(writer, b"x")
    async with asyncio.timeout(DEADLINE_S):
        await output.finish(0.05)
    assert output.ended.is_set()


async def test_stuck_reader_is_detached_and_the_log_continues(
    pipes: dict[int, Path], writer: int, tmp_path: Path
) -> None:
    output = ProcessOutput(outputs(pipes), log_of(tmp_path), attached_patience_s=0.05)
    stuck = output.attach()
    line = b"y" * 1023 + b"\n"
    written = 0
    async with asyncio.timeout(DEADLINE_S):
        while written < 1024:
            try:
                os.write(writer, line)
                written += 1
            except BlockingIOError:
                writable = asyncio.Event()
                loop = asyncio.get_running_loop()
                loop.add_writer(writer, writable.set)
                await writable.wait()
                loop.remove_writer(writer)
        while await stuck.read():
            pass
        await output.finish(0.05)
    assert len((tmp_path / "log").read_text().splitlines()) == 1024


async def test_a_slow_reader_gets_everything(pipes: dict[int, Path], writer: int) -> None:
    output = ProcessOutput(outputs(pipes), None)
    queue = output.attach()
    total = 3 * 1024 * 1024

    def fill() -> None:
        os.set_blocking(writer, True)
        for _ in range(total // 4096):
            os.write(writer, b"z" * 4096)

    filling = asyncio.create_task(asyncio.to_thread(fill))
    size = 0
    async with asyncio.timeout(DEADLINE_S):
        while size < total:
            piece = await queue.read()
            assert piece is not None
            size += len(piece[1])
            await asyncio.sleep(0)
        await filling
    output.close()
    assert await queue.read() is None


async def test_a_log_is_reopened_at_a_lines_end_or_after_a_while(
    pipes: dict[int, Path], writer: int, tmp_path: Path
) -> None:
    output = ProcessOutput(outputs(pipes), log_of(tmp_path))
    queue = output.attach()
    os.write(writer, b"half")
    await queue.read()
    (tmp_path / "log").rename(tmp_path / "old")
    reopening = asyncio.create_task(output.reopen_log())
    await asyncio.sleep(0)
    os.write(writer, b" line\n")
    await reopening
    os.write(writer, b"prompt$ ")
    await queue.read()
    await queue.read()
    assert (tmp_path / "old").read_text().count("stdout") == 2
    (tmp_path / "log").rename(tmp_path / "older")
    async with asyncio.timeout(DEADLINE_S):
        await output.reopen_log()
    assert (tmp_path / "log").read_text() == ""
    output.close()


async def test_a_log_at_a_lines_end_is_reopened_at_once(
    pipes: dict[int, Path], writer: int, tmp_path: Path
) -> None:
    output = ProcessOutput(outputs(pipes), log_of(tmp_path))
    queue = output.attach()
    os.write(writer, b"line\n")
    await queue.read()
    (tmp_path / "log").rename(tmp_path / "old")
    await output.reopen_log()
    assert (tmp_path / "log").read_text() == ""
    output.close()


async def test_input_waits_for_its_reader_and_is_refused_without_one(
    pipes: dict[int, Path],
) -> None:
    with pytest.raises(OSError, match="no process reads its input"):
        await ProcessInput(pipes[0], 0.1).write(b"x")
    stdin = ProcessInput(pipes[0], DEADLINE_S)
    writing = asyncio.create_task(stdin.write(b"x"))
    await asyncio.sleep(0)
    reader = await asyncio.to_thread(os.open, pipes[0], os.O_RDONLY)
    await writing
    assert os.read(reader, 10) == b"x"
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        await stdin.write(b"y")
    stdin.close()


async def test_input_larger_than_the_pipe_is_not_watched_afterwards(pipes: dict[int, Path]) -> None:
    before = descriptors()
    stdin, data = ProcessInput(pipes[0]), b"x" * 300_000
    # A writer too, so that the read waits for input instead of seeing its end.
    with os.fdopen(os.open(pipes[0], os.O_RDWR), "rb") as reader:
        writing = asyncio.create_task(stdin.write(data))
        assert await asyncio.to_thread(reader.read, len(data)) == data
        await writing
        loop = asyncio.get_running_loop()
        opened = opened_since(before)
        assert len(opened) == 2
        assert not any(loop.remove_writer(descriptor) for descriptor in opened)
        stdin.close()


async def test_a_write_that_is_given_up_leaves_no_thread_waiting(pipes: dict[int, Path]) -> None:
    writing = asyncio.create_task(ProcessInput(pipes[0]).write(b"x"))
    done, _ = await asyncio.wait({writing}, timeout=0.05)
    assert not done
    pipes[0].unlink()
    writing.cancel()
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(asyncio.CancelledError):
            await writing


async def test_a_flood_is_read_for_the_log_at_a_limited_rate(
    pipes: dict[int, Path], writer: int, tmp_path: Path
) -> None:
    """Two chunks are over the limit of the first period: the third waits for the next one."""
    chunk = b"x" * 65535 + b"\n"
    os.set_blocking(writer, True)
    loop = asyncio.get_running_loop()
    output = ProcessOutput(outputs(pipes), log_of(tmp_path), log_bytes_per_s=2 * len(chunk))
    queue = output.attach()
    start_s, received = loop.time(), 0
    writing = asyncio.create_task(asyncio.to_thread(os.write, writer, 3 * chunk))
    async with asyncio.timeout(DEADLINE_S):
        while received < 3 * len(chunk):
            piece = await queue.read()
            assert piece is not None
            received += len(piece[1])
        await writing
    assert loop.time() - start_s >= 1.0
    output.close()


async def test_output_without_a_log_is_not_limited(pipes: dict[int, Path], writer: int) -> None:
    output = ProcessOutput(outputs(pipes), None, log_bytes_per_s=1)
    queue = output.attach()
    for _ in range(2):
        os.write(writer, b"line\n")
        assert await asyncio.wait_for(queue.read(), DEADLINE_S) == (STDOUT, b"line\n")
    output.close()
