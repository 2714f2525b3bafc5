"""Expectations: requests of a controller that its informers have not shown yet.

The copy of the cluster lags behind the requests. A controller that counted pods before its own
creations have come back would create them twice, so it waits until they have, or until a timeout.
Source: `UIDTrackingControllerExpectations`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from moorage.api.clock import Clock

_LATE_S = 300.0


@dataclass(slots=True)
class _Expected:
    at: float
    creations: int = 0
    deletions: set[str] = field(default_factory=set)


class Expectations:
    """Expected creations (counted) and deletions (by uid) per controller key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_key: dict[str, _Expected] = {}

    def expect_creations(self, key: str, count: int) -> None:
        self._by_key[key] = _Expected(self._clock.monotonic(), creations=count)

    def expect_deletions(self, key: str, uids: set[str]) -> None:
        self._by_key[key] = _Expected(self._clock.monotonic(), deletions=set(uids))

    def expect(self, key: str, *, creations: int, deletions: set[str]) -> None:
        self._by_key[key] = _Expected(self._clock.monotonic(), creations, set(deletions))

    def creation_seen(self, key: str, count: int = 1) -> None:
        """Lower the expected creations by `count`: observed, or failed and not to be expected."""
        expected = self._by_key.get(key)
        if expected is not None:
            expected.creations -= count

    def deletion_seen(self, key: str, uid: str) -> None:
        expected = self._by_key.get(key)
        if expected is not None:
            expected.deletions.discard(uid)

    def are_met(self, key: str) -> bool:
        return self.seconds_left(key) <= 0

    def seconds_left(self, key: str) -> float:
        """Return the seconds to wait for the key at most; 0 if its expectations are met."""
        expected = self._by_key.get(key)
        if expected is None or (expected.creations <= 0 and not expected.deletions):
            return 0.0
        return max(0.0, expected.at + _LATE_S - self._clock.monotonic())

    def forget(self, key: str) -> None:
        self._by_key.pop(key, None)
