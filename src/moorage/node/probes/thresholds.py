"""From single results to a verdict: thresholds, pure.

A verdict changes only after enough equal results in a row. A failed liveness probe and any
startup verdict are final for the container. Source: core/v1 Probe, kubelet `prober/worker.go`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from moorage.api.containers import Probe


class ProbeKind(Enum):
    """Which probe; the value is how events call it."""

    LIVENESS = "Liveness"
    READINESS = "Readiness"
    STARTUP = "Startup"


@dataclass(slots=True)
class Thresholds:
    """The results of one probe of one container so far."""

    kind: ProbeKind
    failures: int
    successes: int
    _last: bool | None = field(default=None)
    _in_a_row: int = field(default=0)

    @classmethod
    def of(cls, kind: ProbeKind, probe: Probe) -> Thresholds:
        return cls(kind, max(probe.failure_threshold, 1), max(probe.success_threshold, 1))

    def add(self, is_success: bool) -> bool | None:
        """Count a result; the verdict it leads to, None while it leads to none."""
        self._in_a_row = self._in_a_row + 1 if self._last is is_success else 1
        self._last = is_success
        enough = self.successes if is_success else self.failures
        return is_success if self._in_a_row >= enough else None

    def is_final(self, verdict: bool) -> bool:
        """Whether the container need not be asked again after this verdict."""
        match self.kind:
            case ProbeKind.STARTUP:
                return True
            case ProbeKind.LIVENESS:
                return not verdict
        return False
