"""Whether a part answers: when it is asked, and when silence means that it hangs.

A part is started again only after it has failed to answer several times in a row and for a while.
Time in which the supervisor itself did not run (a stopped process, a frozen machine) counts for
nothing: nobody asked then. A suspended machine's clock stands still anyway.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds. A part is asked every `period_s` and has `answer_s` for each answer.

    After `quiet_after` answers that did not come it is shown as not answering; after `hung_after`
    of them, and not before `deadline_s`, it is started again. So is one that is not ready
    `start_s` after its start, with twice the time, up to `longest_start_s`: what takes long (a
    large store on a slow disk) must not be ended for ever.
    """

    period_s: float = 5.0
    answer_s: float = 5.0
    deadline_s: float = 30.0
    quiet_after: int = 2
    hung_after: int = 4
    start_s: float = 120.0
    longest_start_s: float = 960.0


class AttendedClock:
    """Counts the seconds in which this process ran, on top of a monotonic clock."""

    def __init__(self, now: float, longest_wait_s: float) -> None:
        self._last = now
        self._longest_wait_s = longest_wait_s
        self.seconds = 0.0

    def tick(self, now: float) -> float:
        """Note the time after a wait. Returns the seconds attended since the start."""
        self.seconds += min(now - self._last, self._longest_wait_s)
        self._last = now
        return self.seconds


@dataclass(slots=True)
class Liveness:
    """The answers of one process. Times are of an `AttendedClock`."""

    patience: Patience
    answered_at: float
    misses: int = 0

    def answered(self, now: float) -> None:
        """Note an answer."""
        self.answered_at = now
        self.misses = 0

    def missed(self) -> None:
        """Note that an answer did not come in time."""
        self.misses += 1

    @property
    def is_quiet(self) -> bool:
        """Whether people should be told that it does not answer."""
        return self.misses >= self.patience.quiet_after

    def is_hung(self, now: float) -> bool:
        """Whether it has to be started again."""
        return (
            self.misses >= self.patience.hung_after
            and now - self.answered_at >= self.patience.deadline_s
        )
