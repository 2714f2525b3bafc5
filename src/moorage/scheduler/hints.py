"""Which waiting pods an event may help.

Each hint tries the event on the pod's query itself, so a pod wakes only for a change that lets it
in as far as one node can tell. What looks at other pods wakes on any change of pods or nodes.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.scheduler.cycle import NO_NODES_REASON
from moorage.scheduler.filters import (
    INTER_POD_AFFINITY,
    NODE_PORTS,
    NODE_RESOURCES_FIT,
    TOPOLOGY_SPREAD,
    has_room,
    passes_static,
)
from moorage.scheduler.nodes import NodeInfo
from moorage.scheduler.query import PodQuery
from moorage.scheduler.queue import Waiting

Hint = Callable[[Waiting], bool]

_LOOKS_AT_PODS = frozenset({INTER_POD_AFFINITY, TOPOLOGY_SPREAD})
_WANTS_ROOM = frozenset({NODE_RESOURCES_FIT, NODE_PORTS})


def node_changed(before: NodeInfo | None, after: NodeInfo) -> Hint:
    """A node came, or changed in what it offers."""

    def helps(query: PodQuery) -> bool:
        if query.missing_class or not passes_static(query, after):
            return False
        if not _is_large_enough(query, after):
            return False
        return (
            before is None
            or before.allocatable != after.allocatable
            or not passes_static(query, before)
        )

    remembered = _once_a_query(helps)
    is_about_labels = before is None or before.labels != after.labels

    def hint(waiting: Waiting) -> bool:
        if NO_NODES_REASON in waiting.rejected_by:
            return True
        if is_about_labels and waiting.rejected_by & _LOOKS_AT_PODS:
            return True
        return remembered(waiting)

    return hint


def node_gone() -> Hint:
    """A node went, and with it a topology domain perhaps."""
    return lambda waiting: TOPOLOGY_SPREAD in waiting.rejected_by


def room_freed(node: NodeInfo | None) -> Hint:
    """A pod left a node, or takes less of it."""

    def helps(query: PodQuery) -> bool:
        return node is not None and passes_static(query, node) and has_room(query, node)

    remembered = _once_a_query(helps)

    def hint(waiting: Waiting) -> bool:
        if waiting.rejected_by & _LOOKS_AT_PODS:
            return True
        return bool(waiting.rejected_by & _WANTS_ROOM) and remembered(waiting)

    return hint


def pod_placed() -> Hint:
    """A pod came onto a node, or changed its labels there."""
    return lambda waiting: bool(waiting.rejected_by & _LOOKS_AT_PODS)


def class_changed(name: str) -> Hint:
    """A RuntimeClass came, or stands for another handler now."""
    return lambda waiting: waiting.pod.spec.runtime_class_name == name


def namespace_changed() -> Hint:
    """A namespace's labels changed, which namespace selectors see."""
    return lambda waiting: INTER_POD_AFFINITY in waiting.rejected_by


def _once_a_query(helps: Callable[[PodQuery], bool]) -> Hint:
    """Ask once for all pods of a template."""
    known: dict[PodQuery, bool] = {}

    def hint(waiting: Waiting) -> bool:
        query = waiting.query
        if query is None:
            return True
        if query not in known:
            known[query] = helps(query)
        return known[query]

    return hint


def _is_large_enough(query: PodQuery, node: NodeInfo) -> bool:
    return all(wanted <= node.allocatable.get(name, 0) for name, wanted in query.needs)
