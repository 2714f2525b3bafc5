from __future__ import annotations

from typing import Any, Self

import pytest

from moorage.engine.containers.exec import SandboxedExec
from moorage.engine.handlers.adapters import STDERR, STDOUT

OWN = b"waiting on pid 3: urpc method failed: EOF\n"
TEXT = b"the command exceeded the memory limit of its pod: in the sandbox of container app all"


class Process:
    """A command with this output and exit code; `waits` are counted."""

    def __init__(self, code: int, *chunks: tuple[int, bytes]) -> None:
        self._code, self._chunks, self.waits = code, list(chunks), 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._chunks.clear()

    async def read(self) -> tuple[int, bytes] | None:
        return self._chunks.pop(0) if self._chunks else None

    async def wait(self) -> int:
        self.waits += 1
        return self._code

    async def write(self, data: bytes) -> None:
        del data

    async def end_input(self) -> None:
        return

    async def resize(self, width: int, height: int) -> None:
        del width, height

    async def kill(self) -> None:
        return


async def outcome(
    process: Process, before: int | None, after: int | None, **options: Any
) -> tuple[list[tuple[int, bytes]], int]:
    async def count() -> int | None:
        return after

    options = {"has_terminal": False, **options}
    async with SandboxedExec(process, "app", count, before, **options) as wrapped:
        chunks = []
        while (chunk := await wrapped.read()) is not None:
            chunks.append(chunk)
        assert await wrapped.read() is None
        return chunks, await wrapped.wait()


@pytest.mark.parametrize("before", [None, 0, 2])
async def test_a_command_that_took_its_pod_along_says_why(before: int | None) -> None:
    process = Process(128, (STDOUT, b"out"), (STDERR, OWN))
    chunks, code = await outcome(process, before, (before or 0) + 1)
    assert chunks[0] == (STDOUT, b"out")
    ((stream, text),) = chunks[1:]
    assert (stream, text[: len(TEXT)], code) == (STDERR, TEXT, 137)


async def test_a_terminal_has_one_stream() -> None:
    chunks, _ = await outcome(Process(128, (STDOUT, OWN)), 0, 1, has_terminal=True)
    assert [stream for stream, _ in chunks] == [STDOUT]


@pytest.mark.parametrize(
    ("code", "before", "after"), [(0, 0, 0), (128, 0, 0), (128, 1, 1), (128, 0, None), (1, 0, 1)]
)
async def test_any_other_end_is_passed_on(code: int, before: int, after: int | None) -> None:
    output = [(STDERR, OWN), (STDOUT, b"more")]
    assert await outcome(Process(code, *output), before, after) == (output, code)


async def test_a_command_that_writes_such_a_line_is_not_waited_for() -> None:
    process = Process(0, (STDERR, OWN))

    async def count() -> int:
        return 0

    wrapped = SandboxedExec(process, "app", count, 0, has_terminal=False)
    assert await wrapped.read() == (STDERR, OWN)
    assert process.waits == 0
