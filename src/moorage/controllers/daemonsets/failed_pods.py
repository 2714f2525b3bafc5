"""Pauses before failed daemon pods are deleted, so that a node that rejects them is not flooded.

Source: `failedPodsBackoff` of the DaemonSet controller: from one second up to fifteen minutes.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.api.clock import Clock

_FIRST_S = 1.0
_LIMIT_S = 900.0

Key = tuple[str, int, str]
"""A DaemonSet's uid and observed generation, and a node."""


@dataclass(frozen=True, slots=True)
class _Pause:
    since: float
    seconds: float


class FailedPods:
    """The pauses of all DaemonSets' nodes. A new specification begins with none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pauses: dict[Key, _Pause] = {}

    def seconds_left(self, key: Key) -> float:
        """Return the seconds until the next failed pod there may be deleted, 0 for now."""
        pause = self._pauses.get(key)
        if pause is None:
            return 0.0
        return max(0.0, pause.since + pause.seconds - self._clock.monotonic())

    def deleted(self, key: Key) -> None:
        """Begin a pause after a deletion, twice as long as the last."""
        now = self._clock.monotonic()
        old = [other for other, pause in self._pauses.items() if now - pause.since > 2 * _LIMIT_S]
        for other in old:
            del self._pauses[other]
        last = self._pauses.get(key)
        seconds = min(_LIMIT_S, 2 * last.seconds) if last is not None else _FIRST_S
        self._pauses[key] = _Pause(now, seconds)
