"""Placement of a DaemonSet: which nodes get a pod, and which keep one they have.

Decided by the template's node name, selector and affinity, by its tolerations with those that
every daemon pod gets, and by its RuntimeClass: the class's node selector and tolerations count as
the template's own, as admission adds them to the pods, and a node that lacks the class's handler
gets no pod. Upstream ignores the class, so its pods for other nodes stay Pending for ever. Source:
API docs "How Daemon Pods are scheduled", KEP-585 "Scheduling".
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from moorage.api.meta import Object, Raw
from moorage.api.nodes import NO_EXECUTE, NO_SCHEDULE, first_untolerated, matches_node
from moorage.api.nodes import Node as FullNode
from moorage.api.pods import Affinity, PodSpec, Toleration
from moorage.api.runtime_group import RuntimeClass, Scheduling
from moorage.controllers.objects import Node

_TAINTS = {
    "node.kubernetes.io/not-ready": NO_EXECUTE,
    "node.kubernetes.io/unreachable": NO_EXECUTE,
    "node.kubernetes.io/disk-pressure": NO_SCHEDULE,
    "node.kubernetes.io/memory-pressure": NO_SCHEDULE,
    "node.kubernetes.io/pid-pressure": NO_SCHEDULE,
    "node.kubernetes.io/unschedulable": NO_SCHEDULE,
}
_HOST_NETWORK_TAINTS = {"node.kubernetes.io/network-unavailable": NO_SCHEDULE}


class _TemplateSpec(Object, frozen=True):
    """The fields of a template's pod specification that decide where its pods run."""

    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a node without a pod gets one, and whether a pod that is there stays."""

    gets_pod: bool
    keeps_pod: bool


NO_FIT = Fit(gets_pod=False, keeps_pod=False)


def daemon_tolerations(spec: Raw) -> list[Raw]:
    """Return the tolerations, as JSON, of the pods of a template's pod specification.

    Daemon pods tolerate the taints of a node's conditions, without limit of time.
    """
    taints = {**_TAINTS, **(_HOST_NETWORK_TAINTS if spec.get("hostNetwork") else {})}
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in taints.items()]
    # One of the template that differs only in its seconds is replaced.
    merged = {
        tuple(toleration.get(part) or "" for part in ("key", "operator", "value", "effect")):
            toleration
        for toleration in (*(spec.get("tolerations") or ()), *added)
    }  # fmt: skip
    return list(merged.values())


def class_name(template: Raw) -> str:
    """Return the name of the RuntimeClass of a template's pods, `""` without one."""
    return (template.get("spec") or {}).get("runtimeClassName") or ""


class Placement:
    """The nodes of one template; `runtime_class` is None without one, or where it is missing."""

    def __init__(self, template: Raw, runtime_class: RuntimeClass | None) -> None:
        spec = template.get("spec") or {}
        tolerations = daemon_tolerations(spec)
        parsed = msgspec.convert({**spec, "tolerations": tolerations}, _TemplateSpec)
        scheduling = (runtime_class.scheduling if runtime_class else None) or Scheduling()
        self._node_name = parsed.node_name
        self._spec = PodSpec(node_selector=parsed.node_selector, affinity=parsed.affinity)
        self._class_spec = PodSpec(node_selector=scheduling.node_selector)
        self._tolerations = (*parsed.tolerations, *scheduling.tolerations)
        self._handler = runtime_class.handler if runtime_class else ""

    def fit(self, node: Node) -> Fit:
        """Return whether the node gets and keeps a pod."""
        if self._node_name not in ("", node.metadata.name):
            return NO_FIT
        full = FullNode(metadata=node.metadata)
        if not (matches_node(self._spec, full) and matches_node(self._class_spec, full)):
            return NO_FIT
        taints, tolerations = node.spec.taints, self._tolerations
        keeps_pod = first_untolerated(taints, tolerations, (NO_EXECUTE,)) is None
        is_tolerated = first_untolerated(taints, tolerations, (NO_EXECUTE, NO_SCHEDULE)) is None
        return Fit(is_tolerated and self._has_handler(node), keeps_pod)

    def _has_handler(self, node: Node) -> bool:
        """Return whether the node has the class's handler; one that reports none may have it."""
        handlers = node.status.runtime_handlers
        return (
            not self._handler
            or not handlers
            or any(handler.name == self._handler for handler in handlers)
        )
