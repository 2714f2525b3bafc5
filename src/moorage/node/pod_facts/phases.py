"""Pod phases. Source: core/v1 PodPhase."""

from __future__ import annotations

FAILED = "Failed"
SUCCEEDED = "Succeeded"
RUNNING = "Running"
PENDING = "Pending"
TERMINAL = frozenset({FAILED, SUCCEEDED})
