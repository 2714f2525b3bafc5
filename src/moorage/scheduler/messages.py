"""FailedScheduling messages, in the form of kube-scheduler 1.36.

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
    """Return the message with the node count per reason, then the preemption result, if given."""
    counted = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return _joined(node_count, counted, conclusion)


def unavailable_anywhere(node_count: int, why: str, conclusion: str = "") -> str:
    """Return the message for one reason, known before filtering, that rules out all nodes."""
    return _joined(node_count, why, conclusion)


def _joined(node_count: int, reason: str, conclusion: str) -> str:
    parts = [f"0/{node_count} nodes are available:"]
    if reason:
        parts.append(f"{reason}.")
    if conclusion:
        parts.append(conclusion)
    return " ".join(parts)


def histogram(rejections: Iterable[Rejection]) -> Counter[str]:
    """Count the nodes that gave each reason."""
    return Counter(reason for rejection in rejections for reason in rejection.reasons)


def after_preemption(message: str) -> str:
    """Return the conclusion of a failed preemption, after the part about device claims (DRA)."""
    return f"no new claims to deallocate, preemption: {message}"


def event_note(message: str) -> str:
    """Cut the message to 1024 characters, the limit of an event's note."""
    return message if len(message) <= _NOTE_LIMIT else message[: _NOTE_LIMIT - 4] + " ..."
