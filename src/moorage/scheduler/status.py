"""Status patches of pods written by the scheduler, as JSON values."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from moorage.api.clock import format_time
from moorage.api.disruptions import DISRUPTION_TARGET
from moorage.api.pods import Pod, PodCondition
from moorage.scheduler.preemption import PREEMPTED

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULING_GATED = "SchedulingGated"
SCHEDULER_ERROR = "SchedulerError"

Patch = dict[str, Any]


def condition_of(pod: Pod, kind: str) -> PodCondition | None:
    """Return the pod's condition of the type; None without one."""
    return next((condition for condition in pod.status.conditions if condition.type == kind), None)


def not_scheduled(pod: Pod, reason: str, message: str, now: datetime) -> Patch:
    """Return a patch that sets PodScheduled=False with the reason and message."""
    return _with_condition(pod, POD_SCHEDULED, "False", reason, message, now)


def disrupted(victim: Pod, scheduler_name: str, now: datetime) -> Patch:
    """Return a patch that sets DisruptionTarget on a pod about to be preempted."""
    message = f"{scheduler_name}: preempting to accommodate a higher priority pod"
    return _with_condition(victim, DISRUPTION_TARGET, "True", PREEMPTED, message, now)


def with_nomination(patch: Patch, node_name: str | None) -> Patch:
    """Return the patch with the nominated node set; None removes the nomination."""
    return {**patch, "status": {**patch.get("status", {}), "nominatedNodeName": node_name}}


def without_nomination(pod: Pod) -> Pod:
    """Return the pod without a nominated node."""
    pod_status = replace(pod.status, nominated_node_name="")
    return replace(pod, status=pod_status)


def no_change(pod: Pod) -> Patch:
    """Return an empty patch, which applies only to the pod with this uid."""
    return {"metadata": {"uid": pod.metadata.uid}}


def binding(pod: Pod, node_name: str) -> Patch:
    """Return the Binding of the pod to the node; its uid excludes a later pod of that name."""
    meta = pod.metadata
    return {
        "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        "target": {"kind": "Node", "name": node_name},
    }


def _with_condition(
    pod: Pod, kind: str, status: str, reason: str, message: str, now: datetime
) -> Patch:
    condition: dict[str, Any] = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastProbeTime": None,
    }
    if pod.metadata.generation:
        condition["observedGeneration"] = pod.metadata.generation
    before = condition_of(pod, kind)
    if before is None or before.status != status:
        condition["lastTransitionTime"] = format_time(now)
    return {**no_change(pod), "status": {"conditions": [condition]}}
