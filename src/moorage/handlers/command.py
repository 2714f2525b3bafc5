"""Runs a program of the machine for its answer, never longer than a deadline.

Output goes to files in memory instead of pipes: a program that leaves children behind, which hold
a pipe open, would otherwise keep its reader waiting. The program gets a process group of its own,
so that what is over the deadline ends with all it started.
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
    """What a program left: exit status (negative for a signal), and both outputs, cut at 4 MiB."""

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
        """The last line the program said, for an error message."""
        said = (self.error.strip() or self.output.strip()).decode(errors="replace")
        return said.rpartition("\n")[2] or f"exit status {self.status}"


class CommandError(Exception):
    """A program that could not be run, did not answer in time, or (with `must_run`) failed."""

    def __init__(self, argv: Sequence[str], why: str) -> None:
        super().__init__(f"`{' '.join(argv)}`: {why}")
        self.argv = tuple(argv)
        self.why = why


async def run(
    argv: Sequence[str | Path],
    *,
    deadline_s: float = DEADLINE_S,
    given: bytes = b"",
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Answer:
    """Run a program to its end, with `given` on its standard input, in a directory.

    Raises CommandError when it cannot be started or is not done after `deadline_s` seconds; it
    and its process group are killed then. A failing exit status is an answer, not an error.
    """
    words = tuple(map(str, argv))
    with _memory("input") as source, _memory("output") as output, _memory("error") as error:
        if given:
            source.write(given)
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
    given: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> Answer:
    """As `run`, but an exit status other than 0 raises CommandError with the program's words."""
    answer = await run(argv, deadline_s=deadline_s, given=given, environment=environment)
    if not answer.is_success:
        raise CommandError(answer.argv, answer.complaint)
    return answer


def _memory(name: str) -> FileIO:
    return FileIO(os.memfd_create(name), "w+")


def _content(file: FileIO) -> bytes:
    return os.pread(file.fileno(), _MOST_BYTES, 0)
