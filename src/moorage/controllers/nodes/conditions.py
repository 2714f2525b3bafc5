"""Node conditions for a node that reports none itself. Pure.

Source: API docs "Node heartbeats", "Node conditions"; node lifecycle controller.
"""

from __future__ import annotations

from datetime import datetime

from moorage.api.clock import format_time
from moorage.api.nodes import NodeCondition
from moorage.controllers.objects import Node

READY = "Ready"
TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"

_REPORTED = (READY, "MemoryPressure", "DiskPressure", "PIDPressure")


def ready_status(node: Node) -> str | None:
    """Return the status of the condition Ready; None if the node has never reported it."""
    return next(
        (condition.status for condition in node.status.conditions if condition.type == READY), None
    )


def unknown_conditions(node: Node, now: datetime) -> list[NodeCondition]:
    """Return the conditions to set to Unknown for a node without heartbeats, only those."""
    present = {condition.type: condition for condition in node.status.conditions}
    return [
        _unknown(node, type_, present.get(type_), now)
        for type_ in _REPORTED
        if type_ not in present or present[type_].status != UNKNOWN
    ]


def _unknown(node: Node, type_: str, before: NodeCondition | None, now: datetime) -> NodeCondition:
    if before is None:
        reason, message = "NodeStatusNeverUpdated", "Kubelet never posted node status."
        heartbeat = node.metadata.creation_timestamp
    else:
        reason, message = "NodeStatusUnknown", "Kubelet stopped posting node status."
        heartbeat = before.last_heartbeat_time
    return NodeCondition(
        type=type_,
        status=UNKNOWN,
        reason=reason,
        message=message,
        last_heartbeat_time=heartbeat,
        last_transition_time=format_time(now),
    )
