"""May this pod run on this node? One function per reason why not, in Kubernetes' order.

Each looks at one node alone; what depends on other nodes' pods is in `cross_checks`. A rejection is
resolvable when removing pods from the node could lift it: only then is preemption tried there.
Source: kube-scheduler's default plugins; the runtime handler filter is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from moorage.api.nodes import (
    NO_EXECUTE,
    NO_SCHEDULE,
    Taint,
    first_untolerated,
    matches_node,
    tolerates,
)
from moorage.scheduler.nodes import NodeInfo
from moorage.scheduler.query import HostPort, PodQuery

NAMED_NODES = "NamedNodes"
NODE_UNSCHEDULABLE = "NodeUnschedulable"
NODE_NAME = "NodeName"
TAINT_TOLERATION = "TaintToleration"
NODE_AFFINITY = "NodeAffinity"
RUNTIME_HANDLER = "RuntimeHandler"
NODE_PORTS = "NodePorts"
NODE_RESOURCES_FIT = "NodeResourcesFit"
VOLUME_RESTRICTIONS = "VolumeRestrictions"
VOLUME_BINDING = "VolumeBinding"
VOLUME_ZONE = "VolumeZone"
TOPOLOGY_SPREAD = "PodTopologySpread"
INTER_POD_AFFINITY = "InterPodAffinity"

VOLUME_FILTERS = frozenset({VOLUME_RESTRICTIONS, VOLUME_BINDING, VOLUME_ZONE})

_UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
_HARD_EFFECTS = (NO_SCHEDULE, NO_EXECUTE)


@dataclass(frozen=True, slots=True)
class Rejection:
    """The rejection of a node by a filter: the plugin name and its status reasons.

    `is_resolvable` means that preemption on the node may help.
    """

    filter: str
    reasons: tuple[str, ...]
    is_resolvable: bool = False


Check = Callable[[PodQuery, NodeInfo], Rejection | None]


def named_nodes(query: PodQuery, node: NodeInfo) -> Rejection | None:
    if query.named_nodes is None or node.name in query.named_nodes:
        return None
    return _NOT_NAMED


def unschedulable(query: PodQuery, node: NodeInfo) -> Rejection | None:
    if not node.node.spec.unschedulable:
        return None
    if any(tolerates(toleration, _UNSCHEDULABLE_TAINT) for toleration in query.tolerations):
        return None
    return _UNSCHEDULABLE


def node_name(query: PodQuery, node: NodeInfo) -> Rejection | None:
    wanted = query.spec.node_name
    return None if not wanted or wanted == node.name else _OTHER_NAME


def taints(query: PodQuery, node: NodeInfo) -> Rejection | None:
    if not node.hard_taints:
        return None
    if first_untolerated(node.hard_taints, query.tolerations, _HARD_EFFECTS) is None:
        return None
    return _TAINTED


def affinity(query: PodQuery, node: NodeInfo) -> Rejection | None:
    return None if matches_node(query.spec, node.node) else _NO_AFFINITY


def runtime_handler(query: PodQuery, node: NodeInfo) -> Rejection | None:
    """Reject a node that lacks the runtime handler of the pod's class.

    The default handler ("") and a node that reports no handlers at all always pass.
    """
    if not query.handler or node.handlers is None or query.handler in node.handlers:
        return None
    return Rejection(RUNTIME_HANDLER, (f'node(s) lack runtime handler "{query.handler}"',))


def ports(query: PodQuery, node: NodeInfo) -> Rejection | None:
    if not query.ports or not node.ports:
        return None
    if any(_collide(wanted, taken) for wanted in query.ports for taken in node.ports):
        return _NO_PORTS
    return None


def fit(query: PodQuery, node: NodeInfo) -> Rejection | None:
    """Reject a node without enough free resources, listing every insufficient one."""
    short = tuple(_shortages(query, node))
    if not short:
        return None
    reasons = tuple(reason for reason, _ in short)
    return Rejection(NODE_RESOURCES_FIT, reasons, all(can_free for _, can_free in short))


def _shortages(query: PodQuery, node: NodeInfo) -> Iterator[tuple[str, bool]]:
    """Yield (reason, whether the node would be large enough when empty)."""
    if len(node.pods) + 1 > node.max_pods:
        yield "Too many pods", True
    for name, wanted in query.needs:
        has = node.allocatable.get(name, 0)
        if wanted > has - node.used.get(name, 0):
            yield f"Insufficient {name}", wanted <= has


def has_room(query: PodQuery, node: NodeInfo) -> bool:
    """Return whether `fit` and `ports` pass, without building reasons.

    Hot path: under 1 µs (bench/scheduler.py).
    """
    if len(node.pods) >= node.max_pods:
        return False
    allocatable, used = node.allocatable, node.used
    for name, wanted in query.needs:
        if wanted > allocatable.get(name, 0) - used.get(name, 0):
            return False
    return not query.ports or ports(query, node) is None


STATIC_FILTERS: tuple[Check, ...] = (
    named_nodes,
    unschedulable,
    node_name,
    taints,
    affinity,
    runtime_handler,
)
"""Filters whose result changes only when the node object does."""

LOCAL_FILTERS: tuple[Check, ...] = (*STATIC_FILTERS, ports, fit)


def local_rejection(query: PodQuery, node: NodeInfo) -> Rejection | None:
    """Return the first filter's rejection, as kube-scheduler does; None if all filters pass."""
    for check in LOCAL_FILTERS:
        rejection = check(query, node)
        if rejection is not None:
            return rejection
    return None


def local_rejections(query: PodQuery, node: NodeInfo) -> list[Rejection]:
    """Return every filter's rejection, for explanations."""
    rejections = (check(query, node) for check in LOCAL_FILTERS)
    return [rejection for rejection in rejections if rejection is not None]


def passes_static(query: PodQuery, node: NodeInfo) -> bool:
    """Return whether all static filters pass."""
    return all(check(query, node) is None for check in STATIC_FILTERS)


def _collide(left: HostPort, right: HostPort) -> bool:
    if left[:2] != right[:2]:
        return False
    return left[2] == right[2] or not left[2] or not right[2]


_NOT_NAMED = Rejection(NAMED_NODES, ("node(s) didn't satisfy plugin(s) [NodeAffinity]",))
_UNSCHEDULABLE = Rejection(NODE_UNSCHEDULABLE, ("node(s) were unschedulable",))
_OTHER_NAME = Rejection(NODE_NAME, ("node(s) didn't match the requested node name",))
_TAINTED = Rejection(TAINT_TOLERATION, ("node(s) had untolerated taint(s)",))
_NO_AFFINITY = Rejection(NODE_AFFINITY, ("node(s) didn't match Pod's node affinity/selector",))
_NO_PORTS = Rejection(
    NODE_PORTS, ("node(s) didn't have free ports for the requested pod ports",), is_resolvable=True
)
