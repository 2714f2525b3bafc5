from __future__ import annotations

import asyncio
import io
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.node.logs import LogFile, LogOptions, LogReadError, last_of_log, read_log, tail_start


def line(text: str, second: int = 0, stream: str = "stdout", tag: str = "F") -> str:
    return f"2026-01-01T00:00:{second:02}Z {stream} {tag} {text}\n"


class Container:
    """Runs until `runs` is false."""

    def __init__(self) -> None:
        self.runs = True

    async def is_running(self) -> bool:
        return self.runs


async def read(path: Path, **options: Any) -> bytes:
    container = Container()
    container.runs = False
    pieces = read_log(path, LogOptions(**options), container.is_running)
    return b"".join([piece async for piece in pieces])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    path.write_text("".join(line(str(index), index) for index in range(5)))
    return path


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, b"0\n1\n2\n3\n4\n"),
        ({"tail_lines": 2}, b"3\n4\n"),
        ({"tail_lines": 0}, b""),
        ({"tail_lines": 9}, b"0\n1\n2\n3\n4\n"),
        ({"limit_bytes": 3}, b"0\n1"),
        ({"since": datetime(2026, 1, 1, 0, 0, 3, tzinfo=UTC)}, b"3\n4\n"),
        ({"tail_lines": 1, "timestamps": True}, b"2026-01-01T00:00:04Z 4\n"),
        ({"follow": True, "tail_lines": 1}, b"4\n"),
        ({"follow": True, "tail_lines": 0}, b""),
    ],
)
async def test_parts_of_a_log(log: Path, options: dict[str, Any], wanted: bytes) -> None:
    assert await read(log, **options) == wanted


async def test_pieces_become_one_line(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_text(line("he", tag="P") + line("llo") + line("err", stream="stderr"))
    assert await read(path) == b"hello\nerr\n"
    assert await read(path, streams=frozenset({"stderr"})) == b"err\n"


async def test_invalid_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_text(line("a") + "2026Tgarbage stdout F lost\n" + "broken\n" + line("b"))
    assert await read(path, since=datetime(2025, 1, 1, tzinfo=UTC)) == b"a\nb\n"


async def test_missing_or_invalid_log_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    with pytest.raises(LogReadError, match="failed to open log file"):
        await read(path)
    path.write_text("plain\n")
    with pytest.raises(LogReadError, match="failed to get parse function: unsupported log format"):
        await read(path)


async def test_a_log_that_is_being_rotated_is_read_once_it_is_there_again(log: Path) -> None:
    renamed = log.with_name(f"{log.name}.20261128-120000")
    await asyncio.to_thread(log.rename, renamed)
    reading = asyncio.create_task(read(log))
    # The reader misses the file now; it comes afterwards.
    await asyncio.sleep(0)
    await asyncio.to_thread(renamed.rename, log)
    assert await reading == b"0\n1\n2\n3\n4\n"


@pytest.mark.timeout(20)
async def test_pipe_in_place_of_a_log_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "0.log")
    with pytest.raises(LogReadError, match=r"failed to open log file .*: Invalid argument"):
        await read(tmp_path / "0.log")


async def test_following_ends_with_the_container_and_misses_nothing(log: Path) -> None:
    container, data = Container(), bytearray()
    arrived = asyncio.Event()

    async def follow() -> None:
        options = LogOptions(follow=True, tail_lines=1)
        async for piece in read_log(log, options, container.is_running):
            data.extend(piece)
            arrived.set()

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        await arrived.wait()
        arrived.clear()
        with log.open("a") as file:
            file.write(line("5"))
        await arrived.wait()
        container.runs = False
        with log.open("a") as file:
            file.write(line("last"))
    assert bytes(data) == b"4\n5\nlast\n"


def rotate(log: Path) -> None:
    """What an agent and an engine do together, with a last line in the old file."""
    renamed = log.rename(log.with_suffix(".rotated"))
    with renamed.open("a") as file:
        file.write(line("before"))
    log.write_text(line("after"))


async def test_following_continues_in_the_rotated_file(log: Path) -> None:
    container, data = Container(), bytearray()
    arrived = asyncio.Event()

    async def follow() -> None:
        async for piece in read_log(log, LogOptions(follow=True), container.is_running):
            data.extend(piece)
            arrived.set()

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        await arrived.wait()
        arrived.clear()
        rotate(log)
        container.runs = False
        await arrived.wait()
    assert bytes(data) == b"0\n1\n2\n3\n4\nbefore\nafter\n"


async def test_the_end_of_a_log_as_text(log: Path) -> None:
    assert await last_of_log(log, 2, 100) == "3\n4\n"
    assert await last_of_log(log, 2, 3) == "\n4\n"


@settings(deadline=None)
@given(st.lists(st.text("ab", max_size=3000), max_size=8), st.integers(0, 10))
def test_the_tail_is_the_last_lines(lines: list[str], count: int) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    start = tail_start(io.BytesIO(text), count)
    wanted = lines[-count:] if count else []
    assert text[start:] == "".join(f"{wanted_line}\n" for wanted_line in wanted).encode()


async def test_lines_that_come_while_a_tail_is_read_are_not_in_it(log: Path) -> None:
    """The end of a log has as many lines as were asked for, whatever the container writes."""
    reader = LogFile(log, LogOptions(tail_lines=2))
    reader.open()
    with log.open("a") as file:
        file.write(line("late") + line("later"))
    data = b"".join([piece async for piece in reader.present()])
    reader.close()
    assert data == b"3\n4\n"
