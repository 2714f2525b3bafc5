"""systemd-logind: its announcement of a shutdown, and the lock that delays it.

Spoken to through systemd's own programs, which are wherever logind is: `busctl monitor` prints the
signal PrepareForShutdown, `systemd-inhibit` holds a delay lock for as long as its child lives, and
that is until this process closes the pipe or dies. Source: org.freedesktop.login1(5), "Inhibitor
Locks"; kubelet `nodeshutdown/systemd/inhibit_linux.go`.
"""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from moorage.api.clock import Clock
from moorage.linux.atomic_file import replace_file

_LOGIN = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
_SYSTEMD = (
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
)
# With its sender: any user of the host may send a signal of this name.
_MATCH = (
    f"type='signal',sender='{_LOGIN[0]}',path='{_LOGIN[1]}',interface='{_LOGIN[2]}',"
    "member='PrepareForShutdown'"
)
_MONITOR = ("busctl", "--json=short", "monitor", "--match", _MATCH)
_DELAY = ("busctl", "--json=short", "get-property", *_LOGIN, "InhibitDelayMaxUSec")
_RELOAD = ("busctl", "call", *_SYSTEMD, "KillUnit", "ssi", "systemd-logind.service", "all", "1")
_HELD = b"held\n"
_INHIBIT = (
    "systemd-inhibit",
    "--what=shutdown",
    "--mode=delay",
    "--who=moorage",
    "--why=The node agent ends its pods before the host shuts down",
    "sh",
    "-c",
    "echo held && exec cat",
)
_CONFIGURATION = Path("/etc/systemd/logind.conf.d")
_FILE = "99-moorage.conf"

_ANSWER_S = 10.0
_RELOAD_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6)


class LogindError(Exception):
    """logind cannot be used on this host; the text says which call failed and how."""


class InhibitLock:
    """A delay lock that logind has given."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def release(self) -> None:
        """Give the lock back: a shutdown that waits for it goes on. Idempotent."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await _end(self._process, is_ending=True)


class Logind:
    """The logind of this host. Every method raises LogindError where there is none.

    `configuration` is the directory of its drop-in files.
    """

    def __init__(self, clock: Clock, configuration: Path = _CONFIGURATION) -> None:
        self._clock = clock
        self._configuration = configuration

    async def allow_delay(self, wanted_s: int) -> None:
        """Have logind wait for locks for at least this long, by a drop-in file where it does not.

        Source: kubelet `OverrideInhibitDelay`.
        """
        if await self._delay_s() >= wanted_s:
            return
        text = f"# Written by the node agent of Moorage\n[Login]\nInhibitDelayMaxSec={wanted_s}\n"
        try:
            await asyncio.to_thread(self._write, text)
        except OSError as error:
            raise LogindError(f"{self._configuration / _FILE}: {error.strerror}") from error
        await _run(_RELOAD)
        for pause_s in _RELOAD_PAUSES_S:
            if await self._delay_s() >= wanted_s:
                return
            await self._clock.sleep(pause_s)
        raise LogindError(
            f"InhibitDelayMaxSec stays below {wanted_s} after {self._configuration / _FILE} was "
            "written: restart systemd-logind"
        )

    async def inhibit(self) -> InhibitLock:
        """Take a delay lock against shutdowns; refused while a shutdown is in progress."""
        process = await _start(_INHIBIT)
        has_lock = False
        try:
            async with asyncio.timeout(_ANSWER_S):
                assert process.stdout is not None
                answer = await process.stdout.readline()
                has_lock = answer == _HELD
                if not has_lock:
                    answer += await process.stdout.read()
        except TimeoutError:
            raise LogindError(f"systemd-inhibit: no answer after {_ANSWER_S:.0f} s") from None
        finally:
            if not has_lock:
                await _end(process)
        if not has_lock:
            raise LogindError(f"systemd-inhibit: {_text(answer)}")
        return InhibitLock(process)

    @asynccontextmanager
    async def events(self) -> AsyncGenerator[AsyncIterator[bool]]:
        """Follow the announcements: true for a shutdown that begins, false for one cancelled.

        The iterator ends with the connection. Nothing is missed after the context was entered.
        """
        process = await _start(_MONITOR)
        try:
            assert process.stdout is not None
            # Its first line says that it listens; a version that prints none is taken to.
            with suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_S):
                    first = await process.stdout.readline()
                    if not first.startswith(b"Monitoring"):
                        text = _text(first + await process.stdout.read())
                        raise LogindError(f"busctl monitor: {text}")
            yield _announcements(process.stdout)
        finally:
            await _end(process)

    async def _delay_s(self) -> float:
        answer = await _run(_DELAY)
        try:
            return int(json.loads(answer)["data"]) / 1e6
        except (ValueError, KeyError, TypeError):
            raise LogindError(f"InhibitDelayMaxUSec of logind: {_text(answer)}") from None

    def _write(self, text: str) -> None:
        self._configuration.mkdir(parents=True, exist_ok=True)
        replace_file(self._configuration / _FILE, text.encode(), mode=0o644)


async def _announcements(lines: asyncio.StreamReader) -> AsyncIterator[bool]:
    async for line in lines:
        with suppress(ValueError, KeyError, IndexError, TypeError):
            yield json.loads(line)["payload"]["data"][0] is True


async def _run(command: Sequence[str]) -> bytes:
    """Run a program and return its output. Raises LogindError when it fails."""
    process = await _start(command)
    try:
        async with asyncio.timeout(_ANSWER_S):
            output, _ = await process.communicate()
    except TimeoutError:
        raise LogindError(f"{command[0]}: no answer after {_ANSWER_S:.0f} s") from None
    finally:
        await _end(process)
    if process.returncode:
        raise LogindError(f"{command[0]}: {_text(output)}")
    return output


async def _start(command: Sequence[str]) -> Process:
    environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "info", "SYSTEMD_COLORS": "0"}
    stdin = PIPE if command is _INHIBIT else DEVNULL
    try:
        return await asyncio.create_subprocess_exec(
            *command, stdin=stdin, stdout=PIPE, stderr=STDOUT, env=environment
        )
    except OSError as error:
        raise LogindError(f"{command[0]}: {error.strerror}") from error


async def _end(process: Process, *, is_ending: bool = False) -> None:
    """Wait for a program that ends, and kill one that does not."""
    try:
        if is_ending:
            with suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_S):
                    await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _text(output: bytes) -> str:
    return " ".join(output.decode(errors="replace").split())[:500] or "it ended without an answer"
