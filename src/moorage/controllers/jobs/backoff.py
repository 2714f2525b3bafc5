"""Back-off between a pod's failure and its replacement: 10 s, doubled by each further failure.

The failures since the last success are kept in memory, as by upstream: a restarted controller
counts from zero. With a back-off limit per index, each index counts for itself, in an annotation of
its pods. Source: API docs "Pod backoff failure policy".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from moorage.controllers.jobs.job_pods import all_index_failures, finish_time
from moorage.controllers.objects import Pod

_FIRST_S = 10.0
_LONGEST_S = 600.0


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures since the last success, and the time of the last one."""

    count: int = 0
    last: datetime | None = None

    def after(self, succeeded: Sequence[Pod], failed: Sequence[Pod]) -> Failures:
        """Return the record after further pods have ended."""
        if not succeeded and not failed:
            return self
        times = sorted(map(finish_time, failed))
        if not succeeded:
            return Failures(self.count + len(times), times[-1])
        last_success = max(map(finish_time, succeeded))
        later = [time for time in times if time > last_success]
        return Failures(len(later), later[-1] if later else None)

    def seconds_left(self, now: datetime) -> float:
        """Return the seconds until a pod may be created; 0 if it may be now."""
        return _seconds_left(self.count, self.last, now)


def index_seconds_left(failed: Pod | None, now: datetime) -> float:
    """Return the seconds until the failed pod of an index may be replaced."""
    if failed is None:
        return 0.0
    return _seconds_left(all_index_failures(failed) + 1, finish_time(failed), now)


def _seconds_left(failures: int, last: datetime | None, now: datetime) -> float:
    if failures == 0 or last is None:
        return 0.0
    # Six doublings are above the longest pause already.
    pause_s = min(_LONGEST_S, _FIRST_S * (1 << min(failures - 1, 6)))
    return max(0.0, pause_s - (now - last).total_seconds())
