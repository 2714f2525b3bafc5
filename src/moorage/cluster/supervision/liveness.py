"""Liveness of parts: when a part is probed, and when it counts as hung.

A part is restarted only after several probes in a row have failed, and not before a deadline. Time
in which the supervisor itself did not run (a stopped process, a frozen VM) does not count; the
monotonic clock of a suspended host stops anyway.
"""

from __future__ import annotations

import msgspec


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines in seconds. A part is probed every `period_s`, with `answer_s` for each answer.

    After `quiet_after` missed answers it is reported as not answering; after `hung_after` of them,
    and not before `deadline_s`, it is restarted. So is a part that is not ready `start_s` after its
    start; the next start has twice the time, up to `longest_start_s`: a slow start (a large store
    on a slow disk) must succeed in the end.
    """

    period_s: float = 5.0
    answer_s: float = 5.0
    deadline_s: float = 30.0
    quiet_after: int = 2
    hung_after: int = 4
    start_s: float = 120.0
    longest_start_s: float = 960.0


class AttendedClock:
    """Counts the seconds in which this process ran, from a monotonic clock."""

    def __init__(self, now: float, longest_wait_s: float) -> None:
        self._last = now
        self._longest_wait_s = longest_wait_s
        self.seconds = 0.0

    def tick(self, now: float) -> float:
        """Record the time after a wait. Return the seconds attended since the start."""
        self.seconds += min(now - self._last, self._longest_wait_s)
        self._last = now
        return self.seconds


class Liveness(msgspec.Struct):
    """The answers of one process. Times are of an `AttendedClock`."""

    patience: Patience
    answered_at: float
    misses: int = 0

    def answered(self, now: float) -> None:
        """Record an answer."""
        self.answered_at = now
        self.misses = 0

    def missed(self) -> None:
        """Record that an answer did not come in time."""
        self.misses += 1

    @property
    def is_quiet(self) -> bool:
        """Whether the process is reported as not answering."""
        return self.misses >= self.patience.quiet_after

    def is_hung(self, now: float) -> bool:
        """Return whether the process has to be restarted."""
        return (
            self.misses >= self.patience.hung_after
            and now - self.answered_at >= self.patience.deadline_s
        )
