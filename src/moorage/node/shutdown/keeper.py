"""Shutdown keeper: holds the lock that delays a shutdown, and ends the pods when one is announced.

    lock ─▶ announced ─▶ node not ready, pods end group by group ─▶ lock released
      ▲                                                                  │
      └──────────────────────────── cancelled ◀──────────────────────────┘

Source: kubelet `nodeshutdown_manager.go`, `nodeshutdown_manager_linux.go`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from moorage.api.clock import Clock, format_micro_time, parse_time, sleep_unless_done
from moorage.api.logs import Log
from moorage.linux.atomic_file import write_durably
from moorage.node.failures import log_failure
from moorage.node.machine.shutdown import NodeShutdown
from moorage.node.metrics import Metrics
from moorage.node.pods.worker import PodWorker
from moorage.node.shutdown.logind import InhibitLock, Logind, LogindError
from moorage.node.shutdown_periods import ShutdownPeriod, grouped
from moorage.node.status.inputs import TerminationReason

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
