"""Graceful node shutdown: logind announces it, and the pods end before the host does."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from moorage.api.clock import Clock, format_micro_time, parse_time, sleep_unless_done
from moorage.api.logs import Log
from moorage.linux.atomic_file import replace_file, write_durably
from moorage.node.failures import log_failure
from moorage.node.machine.node_status import NodeShutdown
from moorage.node.metrics import Metrics
from moorage.node.pods.worker import PodWorker
from moorage.node.shutdown_periods import ShutdownPeriod, grouped
from moorage.node.status.inputs import TerminationReason

# systemd-logind: its announcement of a shutdown, and the lock that delays it.
#
# Spoken to through systemd's own programs, which are wherever logind is: `busctl monitor` prints
# the signal PrepareForShutdown, `systemd-inhibit` holds a delay lock for as long as its child
# lives, and that is until this process closes the pipe or dies. Source:
# org.freedesktop.login1(5), "Inhibitor Locks"; kubelet `nodeshutdown/systemd/inhibit_linux.go`.

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

    `configuration` is the directory of its drop-in files, `environment` that of its programs.
    """

    def __init__(
        self,
        clock: Clock,
        configuration: Path = _CONFIGURATION,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._clock = clock
        self._environment = environment
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
        await _run(self._environment, _RELOAD)
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
        process = await _start(self._environment, _INHIBIT)
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
        process = await _start(self._environment, _MONITOR)
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
        answer = await _run(self._environment, _DELAY)
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


async def _run(environment: Mapping[str, str], command: Sequence[str]) -> bytes:
    """Run a program and return its output. Raises LogindError when it fails."""
    process = await _start(environment, command)
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


async def _start(given: Mapping[str, str], command: Sequence[str]) -> Process:
    environment = {**given, "SYSTEMD_LOG_LEVEL": "info", "SYSTEMD_COLORS": "0"}
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


# Shutdown keeper: holds the lock that delays a shutdown, and ends the pods when one is announced.
#
#     lock ─▶ announced ─▶ node not ready, pods end group by group ─▶ lock released
#       ▲                                                                  │
#       └──────────────────────────── cancelled ◀──────────────────────────┘
#
# Source: kubelet `nodeshutdown_manager.go`, `nodeshutdown_manager_linux.go`.

log = Log(__name__)

_AGAIN_S = 10.0
_REASON = TerminationReason(
    "Terminated",
    "Pod was terminated in response to imminent node shutdown.",
    is_disruption=True,
)
_START, _END = "startTime", "endTime"


class ShutdownKeeper:
    """Ends this node's pods before the host shuts down. `run()` blocks until cancelled.

    `report` is called when a shutdown begins or is cancelled. `record` is the file with the times
    of the last shutdown, which the metrics show after the next start.
    """

    def __init__(
        self,
        *,
        periods: Sequence[ShutdownPeriod],
        logind: Logind,
        shutdown: NodeShutdown,
        workers: Callable[[], Iterable[PodWorker]],
        report: Callable[[], None],
        metrics: Metrics,
        record: Path,
        clock: Clock,
    ) -> None:
        self._periods = periods
        self._logind = logind
        self._shutdown = shutdown
        self._workers = workers
        self._report = report
        self._metrics = metrics
        self._record = record
        self._clock = clock
        self._problem = ""

    async def run(self) -> None:
        """Follow logind; where it cannot be reached, say so and try again."""
        with log_failure("reading the times of the last shutdown"):
            self._show(await asyncio.to_thread(self._load))
        while True:
            try:
                await self.follow()
                problem = "logind closed the connection"
            except LogindError as error:
                problem = str(error)
            if problem != self._problem:
                self._problem = problem
                log.warning(
                    "shutdowns of the host are not noticed: pods get no grace period then",
                    error=problem,
                    retry_s=_AGAIN_S,
                )
            await self._clock.sleep(_AGAIN_S)

    async def follow(self) -> None:
        """Hold the lock and act on announcements until logind's end. Raises LogindError."""
        await self._logind.allow_delay(sum(period.grace_s for period in self._periods))
        async with self._logind.events() as events:
            lock = await self._logind.inhibit()
            # logind refuses a lock while it shuts down.
            self._shutdown.update(False)
            self._problem = ""
            log.info("shutdowns of the host wait for the pods", periods=list(self._periods))
            try:
                async for is_begun in events:
                    lock = await self._announced(is_begun, lock)
            finally:
                await lock.release()

    async def _announced(self, is_begun: bool, lock: InhibitLock) -> InhibitLock:
        """Act on an announcement; return the lock to hold from now on."""
        self._shutdown.update(is_begun)
        self._report()
        if is_begun:
            log.warning("the host shuts down")
            await self.end_pods()
            await lock.release()
            return lock
        log.info("the host's shutdown was cancelled")
        await lock.release()
        return await self._logind.inhibit()

    async def end_pods(self) -> None:
        """End all pods, those of one period after those of the period before."""
        times = {_START: format_micro_time(self._clock.now())}
        await self._note(times)
        active = [worker for worker in self._workers() if worker.is_active]
        for period, workers in grouped(self._periods, active, _priority):
            log.info("pods end", count=len(workers), priority=period.priority, s=period.grace_s)
            for worker in workers:
                worker.terminate(_REASON, grace_s=period.grace_s)
            await sleep_unless_done(self._clock, period.grace_s, _all_over(workers))
        await self._note({**times, _END: format_micro_time(self._clock.now())})

    async def _note(self, times: dict[str, str]) -> None:
        self._show(times)
        with log_failure("storing the times of a shutdown"):
            await asyncio.to_thread(write_durably, self._record, json.dumps(times).encode())

    def _show(self, times: dict[str, str]) -> None:
        for name, gauge in (
            (_START, self._metrics.shutdown_start),
            (_END, self._metrics.shutdown_end),
        ):
            gauge.set(int(parse_time(times[name]).timestamp()) if name in times else 0)

    def _load(self) -> dict[str, str]:
        """Return the stored times; none if there are none. Raises OSError."""
        try:
            times = json.loads(self._record.read_bytes())
            return {name: text for name, text in times.items() if parse_time(text)}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError) as error:
            raise OSError(f"{self._record} is damaged: {error}") from error


def _priority(worker: PodWorker) -> int:
    return worker.pod.spec.priority or 0


async def _all_over(workers: Iterable[PodWorker]) -> None:
    for worker in workers:
        await worker.wait_over()
