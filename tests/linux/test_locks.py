"""One process at a time holds a cluster's lock file."""

from __future__ import annotations

import asyncio
import multiprocessing
from pathlib import Path
from typing import Any

from moorage.linux.locks import exclusive, exclusive_async


def _count(path: str, barrier: Any) -> None:
    barrier.wait()
    for _ in range(50):
        with exclusive(Path(path).with_suffix(".lock")):
            number = int(Path(path).read_text())
            Path(path).write_text(str(number + 1))


def test_one_at_a_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    path, barrier = tmp_path / "number", context.Barrier(3)
    path.write_text("0")
    counters = [context.Process(target=_count, args=(str(path), barrier)) for _ in range(3)]
    for counter in counters:
        counter.start()
    for counter in counters:
        counter.join(20)
    assert path.read_text() == "150"


async def test_waiting_for_the_lock_does_not_block_the_event_loop(tmp_path: Path) -> None:
    path, order = tmp_path / "lock", list[str]()

    async def second() -> None:
        async with exclusive_async(path):
            order.append("second")

    with exclusive(path):
        waiting = asyncio.create_task(second())
        # The task runs, finds the lock taken and gives the loop back.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        order.append("first")
        assert not waiting.done()
    await waiting
    assert order == ["first", "second"]


def test_another_user_cannot_take_the_lock(tmp_path: Path) -> None:
    (tmp_path / "earlier").touch(mode=0o644)
    for name in ("new", "earlier"):
        with exclusive(tmp_path / name):
            # A user who can open it for reading can hold it.
            assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
