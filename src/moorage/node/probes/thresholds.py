"""Probe thresholds: turn single results into a verdict, pure.

A verdict changes only after enough consecutive equal results. A failed liveness probe and any
startup verdict are final for the container. Source: core/v1 Probe, kubelet `prober/worker.go`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from moorage.api.containers import Probe


class ProbeKind(Enum):
    """Kind of probe; the value is its name in events."""

    LIVENESS = "Liveness"
    READINESS = "Readiness"
    STARTUP = "Startup"


@dataclass(slots=True)
class Thresholds:
    """Consecutive results of one probe of one container."""

    kind: ProbeKind
    failures: int
    successes: int
    _last: bool | None = field(default=None)
    _in_a_row: int = field(default=0)

    @classmethod
    def of(cls, kind: ProbeKind, probe: Probe) -> Thresholds:
        return cls(kind, max(probe.failure_threshold, 1), max(probe.success_threshold, 1))

    def add(self, is_success: bool) -> bool | None:
        """Count a result; return the verdict it leads to, or None."""
        self._in_a_row = self._in_a_row + 1 if self._last is is_success else 1
        self._last = is_success
        enough = self.successes if is_success else self.failures
        return is_success if self._in_a_row >= enough else None

    def is_final(self, verdict: bool) -> bool:
        """Return whether probing ends with this verdict."""
        match self.kind:
            case ProbeKind.STARTUP:
                return True
            case ProbeKind.LIVENESS:
                return not verdict
        return False
