"""The sentences people read when a pod finds no node, in Kubernetes 1.36's form.

0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). no new claims
to deallocate, preemption: 0/3 nodes are available: …
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from moorage.scheduler.filters import Rejection

NO_NODES = "no nodes available to schedule pods"
GATED = "Scheduling is blocked due to non-empty scheduling gates"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
NEVER_PREEMPTS = "not eligible due to preemptionPolicy=Never."
VICTIM_LEAVING = "not eligible due to a terminating pod on the nominated node."

_NOTE_LIMIT = 1024


def unavailable(node_count: int, reasons: Mapping[str, int], conclusion: str = "") -> str:
    """How many nodes failed for which reason, then what preemption would do (if said)."""
    counted = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return _joined(node_count, counted, conclusion)


def unavailable_anywhere(node_count: int, why: str, conclusion: str = "") -> str:
    """The same when one reason, found before any node was looked at, rules them all out."""
    return _joined(node_count, why, conclusion)


def _joined(node_count: int, reason: str, conclusion: str) -> str:
    parts = [f"0/{node_count} nodes are available:"]
    if reason:
        parts.append(f"{reason}.")
    if conclusion:
        parts.append(conclusion)
    return " ".join(parts)


def histogram(rejections: Iterable[Rejection]) -> Counter[str]:
    """How many nodes gave each reason."""
    return Counter(reason for rejection in rejections for reason in rejection.reasons)


def after_preemption(message: str) -> str:
    """The conclusion of a failed preemption, next to what device claims would have said."""
    return f"no new claims to deallocate, preemption: {message}"


def event_note(message: str) -> str:
    """A message cut to what an event may hold."""
    return message if len(message) <= _NOTE_LIMIT else message[: _NOTE_LIMIT - 4] + " ..."
