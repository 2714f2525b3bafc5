"""Queueing hints: which unschedulable pods an event may make schedulable.

Each hint checks the event against the pods' query, so for filters that depend on one node a pod is
requeued only if that node would now accept it. Pods rejected by inter-pod affinity or topology
spread are requeued on any change of pods or node labels.
"""

from __future__ import annotations

from moorage.scheduler.cycle import NO_NODES_REASON
from moorage.scheduler.filters import (
    INTER_POD_AFFINITY,
    NODE_PORTS,
    NODE_RESOURCES_FIT,
    TOPOLOGY_SPREAD,
    VOLUME_FILTERS,
    VOLUME_RESTRICTIONS,
    has_room,
    passes_static,
)
from moorage.scheduler.nodes import NodeInfo
from moorage.scheduler.query import PodQuery
from moorage.scheduler.queue import Hint

_LOOKS_AT_PODS = frozenset({INTER_POD_AFFINITY, TOPOLOGY_SPREAD})
_LOOKS_AT_LABELS = _LOOKS_AT_PODS | VOLUME_FILTERS
_WANTS_ROOM = frozenset({NODE_RESOURCES_FIT, NODE_PORTS})


def node_changed(before: NodeInfo | None, after: NodeInfo) -> Hint:
    """Return the hint for a node added, or updated in a way scheduling depends on."""
    is_about_labels = before is None or before.labels != after.labels

    def helps(query: PodQuery, rejected_by: frozenset[str]) -> bool:
        if NO_NODES_REASON in rejected_by:
            return True
        if is_about_labels and rejected_by & _LOOKS_AT_LABELS:
            return True
        return _newly_takes(query, before, after)

    return helps


def _newly_takes(query: PodQuery, before: NodeInfo | None, after: NodeInfo) -> bool:
    if query.missing_class or not passes_static(query, after):
        return False
    if any(wanted > after.allocatable.get(name, 0) for name, wanted in query.needs):
        return False
    return (
        before is None
        or before.allocatable != after.allocatable
        or not passes_static(query, before)
    )


def node_gone() -> Hint:
    """Return the hint for a removed node, which may remove a topology domain."""
    return lambda _, rejected_by: TOPOLOGY_SPREAD in rejected_by


def room_freed(node: NodeInfo | None) -> Hint:
    """Return the hint for a pod that left its node or lowered its requests."""

    def helps(query: PodQuery, rejected_by: frozenset[str]) -> bool:
        if rejected_by & _LOOKS_AT_PODS or VOLUME_RESTRICTIONS in rejected_by:
            return True
        if node is None or not rejected_by & _WANTS_ROOM:
            return False
        return has_room(query, node) and passes_static(query, node)

    return helps


def pod_placed() -> Hint:
    """Return the hint for a pod placed on a node, or with changed labels there."""
    return lambda _, rejected_by: bool(rejected_by & _LOOKS_AT_PODS)


def class_changed(name: str) -> Hint:
    """Return the hint for a RuntimeClass created, or with a changed handler."""
    return lambda query, _: query.spec.runtime_class_name == name


def storage_changed() -> Hint:
    """Return the hint for a free volume, or a storage class that may provision where it did not."""
    return lambda _, rejected_by: bool(rejected_by & VOLUME_FILTERS)


def namespace_changed() -> Hint:
    """Return the hint for changed namespace labels, which namespace selectors match on."""
    return lambda _, rejected_by: INTER_POD_AFFINITY in rejected_by
