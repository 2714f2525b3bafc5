"""Operations of a pod worker: named tasks, and the retry times of failed ones.

An operation is a task that runs until it completes or is cancelled; its name is busy meanwhile. A
failed operation is retried after an exponential delay, or at the time that the failure gives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.wire.client.backoff import Backoff

log = Log(__name__)

Work = Coroutine[Any, Any, None]


class Operations:
    """Named operations of one pod. `on_end` is called whenever one has ended."""

    def __init__(
        self,
        clock: Clock,
        on_end: Callable[[], None],
        *,
        first_pause_s: float = 1.0,
        longest_pause_s: float = 60.0,
    ) -> None:
        self._clock = clock
        self._on_end = on_end
        self._first_pause_s = first_pause_s
        self._longest_pause_s = longest_pause_s
        self._running: dict[str, asyncio.Task[None]] = {}
        self._due: dict[str, float] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._now_s = clock.monotonic()

    def __contains__(self, name: str) -> bool:
        return name in self._running

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._running)

    def begin_step(self) -> None:
        """Begin a step: until the next one, due times are compared with this moment.

        A single moment per step: an operation that becomes due in the middle of a step would
        otherwise neither be started nor be waited for.
        """
        self._now_s = self._clock.monotonic()

    def may_start(self, name: str) -> bool:
        """Return whether the operation is neither running nor waiting for its retry."""
        return name not in self._running and self._now_s >= self._due.get(name, self._now_s)

    def start(self, name: str, work: Work, tasks: asyncio.TaskGroup) -> None:
        """Start an operation under a name that is not busy."""
        task = tasks.create_task(self._run(name, work))
        self._running[name] = task
        # Not in `_run`: it never runs if the task is cancelled before its first step.
        task.add_done_callback(lambda _: self._ended(name, work))

    def succeeded(self, name: str) -> None:
        """Reset the operation's failures."""
        self._due.pop(name, None)
        self._backoffs.pop(name, None)

    def failed(self, name: str, *, retry_s: float | None = None) -> None:
        """Schedule a retry: at `retry_s` (monotonic seconds), else after an exponential delay."""
        if retry_s is None:
            backoff = self._backoffs.get(name)
            if backoff is None:
                backoff = Backoff(self._first_pause_s, self._longest_pause_s)
                self._backoffs[name] = backoff
            retry_s = self._clock.monotonic() + backoff.next_s()
        self._due[name] = retry_s

    def retry_now(self, name: str) -> None:
        """Clear the retry time, as the cause of the failure has changed."""
        self._due.pop(name, None)

    def postpone(self, name: str, until_s: float) -> None:
        """Delay the next start of an operation until `until_s`, in monotonic seconds."""
        self._due[name] = until_s

    def next_due_s(self) -> float | None:
        """Return seconds until the first waiting operation is due; None when none waits."""
        waiting = [due for name, due in self._due.items() if name not in self._running]
        first = min((due for due in waiting if due > self._now_s), default=None)
        return None if first is None else max(0.0, first - self._clock.monotonic())

    def cancel(self, names: Iterable[str]) -> None:
        """Cancel operations; they count as running until they have ended."""
        for name in names:
            if name in self._running:
                self._running[name].cancel()

    def forget(self, name: str) -> None:
        """Drop the retry state of an operation that is no longer needed."""
        self._due.pop(name, None)
        self._backoffs.pop(name, None)

    async def _run(self, name: str, work: Work) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception:
            # A bug in handling one pod must not end the others: log it and retry.
            log.exception("operation broke", operation=name)
            self.failed(name)

    def _ended(self, name: str, work: Work) -> None:
        work.close()
        del self._running[name]
        self._on_end()
