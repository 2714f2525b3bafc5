"""Exponential backoff with jitter, so that many clients do not retry at the same time."""

from __future__ import annotations

import random


class Backoff:
    """Doubling pauses from `first_s` to `limit_s` seconds, each with a jitter of up to 20 %."""

    def __init__(self, first_s: float, limit_s: float) -> None:
        self._first_s = first_s
        self._limit_s = limit_s
        self._failures = 0

    def next_s(self) -> float:
        """Count a failure. Returns the pause before the next attempt, in seconds."""
        # The exponent is bounded so that a year of failures does not overflow the float.
        pause_s = min(self._limit_s, self._first_s * 2.0 ** min(self._failures, 64))
        self._failures += 1
        return pause_s * random.uniform(1.0, 1.2)

    def reset(self) -> None:
        """Start over at `first_s`: the last attempt succeeded."""
        self._failures = 0
