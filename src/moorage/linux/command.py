"""Command execution under a deadline, with the output captured.

Output goes to memory files (memfd) instead of pipes: child processes that a program leaves behind
and that hold a pipe open would block its reader. The program runs in its own process group, so that
the deadline also kills its children.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from moorage.linux.child import Child

DEADLINE_S = 5.0
_MOST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a program: exit status (negative for a signal), and both outputs, cut at 4 MiB."""

    argv: tuple[str, ...]
    status: int
    output: bytes
    error: bytes

    @property
    def is_success(self) -> bool:
        return self.status == 0

    @property
    def text(self) -> str:
        return self.output.decode(errors="replace")

    @property
    def complaint(self) -> str:
        """Return the last line of standard error, else of standard output, for an error message."""
        message = (self.error.strip() or self.output.strip()).decode(errors="replace")
        before, _, last = message.rpartition("\n")
        # `ip -batch` ends with the place of the command that failed, after the reason.
        if before and last.startswith("Command failed "):
            last = before.rpartition("\n")[2]
        return last or f"exit status {self.status}"


class CommandError(Exception):
    """A program that could not be run, did not answer in time, or (with `must_run`) failed."""

    def __init__(self, argv: Sequence[str], why: str) -> None:
        super().__init__(f"`{' '.join(argv)}`: {why}")
        self.why = why


async def run(
    argv: Sequence[str | Path],
    *,
    deadline_s: float = DEADLINE_S,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Answer:
    """Run a program in a directory with `stdin` on its standard input; blocks until it exits.

    Returns its exit status and output; a non-zero exit status is not an error. Raises CommandError
    when the program cannot be started or does not exit within `deadline_s` seconds; the program and
    its process group are then killed.
    """
    words = tuple(map(str, argv))
    with _memory("input") as source, _memory("output") as output, _memory("error") as error:
        if stdin:
            source.write(stdin)
            source.seek(0)
        try:
            process = Child(
                words,
                stdin=source.fileno(),
                stdout=output.fileno(),
                stderr=error.fileno(),
                environment=environment,
                directory=directory,
                is_apart=True,
            )
        except OSError as failure:
            raise CommandError(words, failure.strerror or str(failure)) from failure
        try:
            async with asyncio.timeout(deadline_s):
                status = await process.wait()
        except TimeoutError:
            raise CommandError(words, f"no answer within {deadline_s:g} s") from None
        finally:
            await process.end()
            process.close()
        return Answer(words, status, _content(output), _content(error))


async def must_run(
    argv: Sequence[str | Path],
    *,
    deadline_s: float = DEADLINE_S,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> Answer:
    """Run a program as `run` does.

    Raises CommandError with its error message for a non-zero exit status.
    """
    answer = await run(argv, deadline_s=deadline_s, stdin=stdin, environment=environment)
    if not answer.is_success:
        raise CommandError(answer.argv, answer.complaint)
    return answer


def _memory(name: str) -> FileIO:
    return FileIO(os.memfd_create(name), "w+")


def _content(file: FileIO) -> bytes:
    return os.pread(file.fileno(), _MOST_BYTES, 0)
