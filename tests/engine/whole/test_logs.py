"""Output in amounts: all of it in the log, none of it in the engine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.engine.whole.engines import Caller, RunningEngine, shell, until

pytestmark = [pytest.mark.runtime]

_LINE_BYTES = 1000
# More in `make soak`: what is looked for shows in a tenth as well.
_MIB = 100 if os.environ.get("MOORAGE_ENGINE_PODS") else 30
_ROOM_BYTES = 24 << 20


async def test_a_flood_of_output_is_in_the_log_and_not_in_the_engine(
    caller: Caller, engine: RunningEngine
) -> None:
    pod = await caller.run_pod()
    await caller.ended(await caller.run(pod, "true", name="first"))
    before = engine.rss_bytes
    lines = (_MIB << 20) // _LINE_BYTES
    text = "x" * (_LINE_BYTES - 1)
    main = await caller.run(pod, *shell(f"yes {text} | head -n {lines}"))
    status = await caller.ended(main, 60)
    assert status.exit_code == 0
    assert _whole_lines(Path(status.log_path), text) == lines
    assert engine.rss_bytes - before < _ROOM_BYTES


async def test_a_flood_from_a_command_is_cut_at_what_fits_an_answer(
    caller: Caller, engine: RunningEngine
) -> None:
    main = await caller.run(await caller.run_pod(), "sleep", "1000")
    answer = await caller.exec(main, *shell("head -c 40m /dev/zero; echo end >&2"), limit_s=60)
    assert (16 << 20) - len(answer.stdout) < 1 << 20
    assert (answer.stderr, answer.exit_code) == (b"end\n", 0)
    assert (await caller.exec(main, "true")).exit_code == 0
    assert engine.rss_bytes < 250 << 20


async def test_a_container_that_floods_its_log_is_throttled(
    caller: Caller, engine: RunningEngine
) -> None:
    pod = await caller.run_pod()
    quiet = await caller.run(pod, "sleep", "1000", name="quiet")
    flooding = await caller.run(pod, "yes", name="flooding")

    def is_throttled(container: str) -> bool:
        pid = int((engine.run / "b" / container / "monitor").read_text())
        return "/throttled-monitors" in Path(f"/proc/{pid}/cgroup").read_text()

    await asyncio.to_thread(until, lambda: is_throttled(flooding), "the monitor is throttled")
    assert not is_throttled(quiet)
    log = Path((await caller.status(flooding)).log_path)
    size = await asyncio.to_thread(_size, log)
    await asyncio.to_thread(until, lambda: _size(log) > size, "the log grows")
    await caller.stop(flooding)
    await caller.remove(flooding)


def _size(file: Path) -> int:
    return file.stat().st_size


async def test_a_line_without_an_end_is_kept_in_pieces(caller: Caller) -> None:
    main = await caller.run(
        await caller.run_pod(), *shell("head -c 100000 /dev/zero | tr '\\0' y; echo; printf tail")
    )
    await caller.ended(main)
    assert await caller.log_of(main) == ["y" * 100_000, "tail"]


def _whole_lines(file: Path, text: str) -> int:
    """How many lines a log has; each must be that text. Pieces of a line are put together."""
    wanted, count, pieces = text.encode(), 0, b""
    with file.open("rb") as log:
        for line in log:
            _, _, tag, piece = line.rstrip(b"\n").split(b" ", 3)
            pieces += piece
            if tag == b"F":
                assert pieces == wanted
                count, pieces = count + 1, b""
    assert not pieces
    return count
