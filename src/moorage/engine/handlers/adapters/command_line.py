"""Command line of a runtime: runs commands with its global options and raises its errors.

Source: OCI runtime command line interface; runc, crun and runsc all have `--log FILE` and
`--log-format json`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from moorage.api.logs import Log
from moorage.engine.handlers.adapters.adapter import AdapterError, TaskNotFoundError
from moorage.linux.child import Child
from moorage.linux.descriptors import read_tail

commands_log = Log(__name__)

COMMAND_DEADLINE_S = 30.0
_MOST_WORDS = 4096
_MOST_PRINTED_BYTES = 64 * 1024
_LOG_TAIL_BYTES = 1024 * 1024
# One line of logrus' text format, which runc also writes to standard error.
_LOGGED_ERROR = re.compile(r'level=(?:fatal|error) msg="((?:[^"\\]|\\.)*)"')
_SAYS_WHAT_IS_GONE = ("kill", "delete")
_GONE = (
    "does not exist", "not running", "no such", "not found", "already stopped", "is stopped",
    "already finished",
)  # fmt: skip

Descriptors = tuple[int, int, int]
"""Standard input, output and error."""


class CommandLine:
    """One runtime, with the global options that precede every command."""

    def __init__(self, program: Path, options: Sequence[str], scratch: Path) -> None:
        self.program = program
        self.options = tuple(options)
        self.scratch = scratch

    async def run(self, *words: str, streams: Descriptors | None = None) -> str:
        """Run a command and return its output; empty if `streams` are given.

        Raises AdapterError when it fails, and TaskNotFoundError when `kill` or `delete` fails
        because the task does not exist or has ended.
        """
        log = self.scratch / f"{secrets.token_hex(8)}.log"
        printed = os.memfd_create("output")
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            status = await self._status(words, log, streams or (nothing, printed, printed))
            message = os.pread(printed, _MOST_PRINTED_BYTES, 0).decode(errors="replace")
            if status != 0:
                raise refusal(words[0], status, last_log_error(log) or message)
            return message
        finally:
            os.close(printed)
            os.close(nothing)
            log.unlink(missing_ok=True)

    async def delete(self, task_id: str) -> None:
        """Delete a task with force, killing its processes; no-op when it does not exist."""
        try:
            await self.run("delete", "--force", task_id)
        except TaskNotFoundError:
            return

    def start(self, words: Sequence[str], log: Path, streams: Descriptors) -> Child:
        """Start a command without waiting for it. Raises AdapterError."""
        stdin, stdout, stderr = streams
        argv = [str(self.program), *self.options, "--log", str(log), "--log-format", "json"]
        try:
            commands_log.debug("runtime command", program=self.program, words=" ".join(words))
            return Child([*argv, *words], stdin=stdin, stdout=stdout, stderr=stderr)
        except OSError as error:
            raise AdapterError(f"{self.program}: {error.strerror}") from error

    async def _status(self, words: Sequence[str], log: Path, streams: Descriptors) -> int:
        child = self.start(words, log, streams)
        try:
            async with asyncio.timeout(COMMAND_DEADLINE_S):
                return await child.wait()
        except TimeoutError:
            raise AdapterError(
                f"{self.program} {words[0]} did not end within {COMMAND_DEADLINE_S:g} s"
            ) from None
        finally:
            await child.end()
            child.close()


def last_log_error(log: Path) -> str:
    """Return the last error in the end of a runtime's JSON log; empty without one."""
    try:
        lines = read_tail(log, _LOG_TAIL_BYTES).splitlines()
    except FileNotFoundError:
        return ""
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("level", "error") in ("error", "fatal"):
            return str(entry.get("msg", ""))
    return ""


def logged_error(text: str) -> str:
    """Return the last error of a log in logrus' text format; text in another format unchanged."""
    errors = _LOGGED_ERROR.findall(text)
    return re.sub(r"\\(.)", r"\1", errors[-1]) if errors else text


def refusal(command: str, status: int, error_text: str) -> AdapterError:
    """Return the error for a command that failed with a status and a message."""
    message = one_line(error_text)[:_MOST_WORDS] or f"{command} ended with status {status}"
    if command in _SAYS_WHAT_IS_GONE and any(word in message.lower() for word in _GONE):
        return TaskNotFoundError(message)
    return AdapterError(message)


def one_line(text: str) -> str:
    """Return a program's message on one line."""
    return " ".join(text.split())
