"""The audit log's file: order, rotation, what a full queue and a broken disk do."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from moorage.apiserver.audit import AuditLog, FileLimits


def line(text: str) -> Callable[[], bytes]:
    return text.encode


async def test_lines_are_written_in_order_to_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path)
    for number in range(200):
        log.add(line(str(number)), 1)
    await log.close()
    assert path.read_text().split() == [str(number) for number in range(200)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_files_are_rotated_and_the_oldest_removed(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path, FileLimits(file_bytes=10, old_files=2))
    for number in range(10):
        log.add(line(f"line {number}"), 1)
    await log.close()
    kept = {name: (tmp_path / name).read_text() for name in os.listdir(tmp_path)}
    assert kept == {
        "audit.log": "line 9\n", "audit.log.1": "line 8\n", "audit.log.2": "line 7\n"
    }  # fmt: skip


async def test_a_file_that_exists_is_continued_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("torn")
    log = AuditLog(path)
    log.add(line("next"), 1)
    await log.close()
    assert path.read_text() == "torn\nnext\n"


async def test_requests_wait_while_too_much_is_unwritten(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log", FileLimits(unwritten=2))
    release = threading.Event()

    def held() -> bytes:
        assert release.wait(20)
        return b"held"

    log.add(held, 1)
    assert await log.room()
    log.add(line("second"), 1)
    waiting = asyncio.ensure_future(log.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    release.set()
    async with asyncio.timeout(20):
        assert await waiting
    await log.close()


async def test_a_line_that_cannot_be_written_is_counted_and_the_next_goes_on(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "absent"
    log = AuditLog(directory / "audit.log", FileLimits(unwritten=1))
    log.add(line("lost"), 1)
    async with asyncio.timeout(20):
        assert await log.room()
    assert (log.written, log.failed) == (0, 1)
    directory.mkdir()
    log.add(line("kept"), 1)
    await log.close()
    assert (directory / "audit.log").read_text() == "kept\n"
