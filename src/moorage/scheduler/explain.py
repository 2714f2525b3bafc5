"""Explanation of a pod's placement: every rejection of every node, each with a remedy.

Pure, used by `moor explain`: applies the scheduler's own filters to the current objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.api.runtime_group import (
    HANDLER_AVAILABLE,
    HANDLER_GATE,
    RuntimeClass,
    handler_condition,
    handler_label,
)
from moorage.runtimeclass import ClassMissing, resolve_handler
from moorage.runtimeclass.validation import is_implicit
from moorage.scheduler import filters, messages
from moorage.scheduler.cluster_state import ClusterState, occupies_node
from moorage.scheduler.filters import Rejection
from moorage.scheduler.inter_pod_affinity import InterPodAffinity
from moorage.scheduler.nodes import NodeInfo
from moorage.scheduler.query import PodQuery, QueryCache, make_query
from moorage.scheduler.storage_state import StorageState
from moorage.scheduler.volume_checks import Blocked, VolumeCheck, check_volumes
from moorage.wire.client.informer import object_key

# Handler gate: why a pod with the scheduling gate of its handler waits, and what ends it.
#
# The controller of gates writes a condition on such pods, which says what they wait for; it removes
# the gate by itself. Pure.

_NOT_NEEDED = (
    f"the gate {HANDLER_GATE} is for pods with a RuntimeClass: remove it from spec.schedulingGates"
)


class Wait(msgspec.Struct, frozen=True):
    """What a pod waits for, in a sentence, and what ends it. `lacking` nodes miss the handler."""

    message: str
    remedy: str
    lacking: frozenset[str] = frozenset()


def wait_of(pod: Pod, handler: str | None, nodes: Iterable[Node]) -> Wait | None:
    """Return the wait of a pod with the gate, None for one without it.

    `handler` is that of its class, None if the class does not exist.
    """
    if not any(gate.name == HANDLER_GATE for gate in pod.spec.scheduling_gates):
        return None
    name = pod.spec.runtime_class_name
    if is_implicit(name):
        return Wait(f"scheduling gate {HANDLER_GATE}", _NOT_NEEDED)
    if handler is None:
        return Wait(
            _said(pod) or f"RuntimeClass {name} does not exist",
            f"create the RuntimeClass {name}, or delete the pod",
        )
    label, nodes = handler_label(handler), tuple(nodes)
    names = {node.metadata.name for node in nodes}
    lacking = frozenset(
        node.metadata.name for node in nodes if node.metadata.labels.get(label) != "true"
    )
    message = (
        _said(pod) or f'waiting for a node with the handler "{handler}" of RuntimeClass {name}'
    )
    if names - lacking:
        return Wait(message, _elsewhere(handler), lacking)
    failing = problems_of(handler, nodes)
    if failing:
        return Wait(message, _correct(handler, failing), lacking)
    return Wait(message, _install(handler, str(name)), lacking)


def problems_of(handler: str, nodes: Iterable[Node]) -> dict[str, str]:
    """Return the failure of a handler's probe by node, without nodes where it works."""
    type_ = handler_condition(handler)
    return {
        node.metadata.name: condition.message
        for node in nodes
        for condition in node.status.conditions
        if condition.type == type_ and condition.status == "False"
    }


def _said(pod: Pod) -> str:
    """Return the message of the gates' controller in the pod's condition."""
    conditions = pod.status.conditions
    return next(
        (one.message for one in conditions
         if one.type == HANDLER_AVAILABLE and one.status == "False"), ""
    )  # fmt: skip


def _install(handler: str, class_name: str) -> str:
    return (
        f'install the handler "{handler}" of RuntimeClass {class_name} on a node: '
        f"`moor runtime add {handler}` there, or a RuntimeInstallation for many nodes; or name "
        "another class: kubectl get runtimeclasses. The gate goes by itself"
    )


def _correct(handler: str, failing: Mapping[str, str]) -> str:
    node, problem = min(failing.items())
    return (
        f'node {node} has the handler "{handler}", and its probe fails: {problem}. It is probed '
        "again, and the gate goes, by itself"
    )


def _elsewhere(handler: str) -> str:
    return (
        f'nodes that the pod may not use have the handler "{handler}", or they lack a feature '
        f"that it needs: see `moor runtimes features`; change what it selects or needs, "
        f"or install the handler on the nodes that it may use: `moor runtime add {handler}`"
    )


@dataclass(frozen=True, slots=True)
class Objection:
    """One filter's reasons for rejecting a node, the node's values it compared, and a remedy."""

    filter: str
    reasons: tuple[str, ...]
    detail: str
    remedy: str


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """The result for one node: every objection; none if the node is suitable."""

    node_name: str
    objections: tuple[Objection, ...]

    @property
    def is_suitable(self) -> bool:
        return not self.objections


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdicts of all nodes. `blocked_by` is what stops the pod before any node is considered.

    `summary` is one sentence in the form of the scheduler's event; `handler` is the CRI handler of
    the pod's RuntimeClass, None when the class does not exist.
    """

    summary: str
    blocked_by: Objection | None
    handler: str | None
    nodes: tuple[NodeVerdict, ...]


def explain(
    pod: Pod,
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    runtime_classes: Iterable[RuntimeClass],
    *,
    namespace_labels: Mapping[str, Mapping[str, str]] | None = None,
    storage: StorageState | None = None,
    filters_by_handler: bool = True,
) -> Explanation:
    """Run every filter on every node for this pod and return the results.

    `storage` has the claims, volumes and classes that the pod's volumes need; without it they are
    not looked at. `pods` are all pods of the cluster; the pod itself is left out of them, so a
    running pod is explained as if it were scheduled now.
    """
    handler, missing = _handler(pod, runtime_classes)
    nodes = tuple(nodes)
    wait = wait_of(pod, handler, nodes)
    query = make_query(pod, handler if filters_by_handler else None, missing)
    state = _state(pod, nodes, pods, namespace_labels or {})
    volumes = None if storage is None else check_volumes(pod, storage, state.nodes)
    checked = volumes if isinstance(volumes, VolumeCheck) else None
    cross = InterPodAffinity(pod, query, state)
    cross.refresh()
    problems = problems_of(handler or "", nodes)
    verdicts = tuple(
        NodeVerdict(
            name,
            _with_problem(
                _with_wait(name, tuple(_objections(query, node, cross, checked)), wait),
                problems.get(name, ""),
            ),
        )
        for name, node in sorted(state.nodes.items())
    )
    blocked = _blocked_by(
        pod,
        missing,
        volumes if isinstance(volumes, Blocked) else None,
        wait,
        has_nodes=bool(verdicts),
    )
    summary = _summary(query, state, cross, checked, blocked)
    return Explanation(summary, blocked, handler, verdicts)


def _handler(pod: Pod, runtime_classes: Iterable[RuntimeClass]) -> tuple[str | None, str]:
    by_name = {runtime_class.metadata.name: runtime_class for runtime_class in runtime_classes}
    try:
        return resolve_handler(pod.spec.runtime_class_name, by_name.get), ""
    except ClassMissing as missing:
        return None, missing.class_name


def _state(
    pod: Pod,
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    namespace_labels: Mapping[str, Mapping[str, str]],
) -> ClusterState:
    state = ClusterState(QueryCache(filters_by_handler=False))
    for name, labels in namespace_labels.items():
        state.set_namespace(name, labels)
    for node in nodes:
        state.set_node(node)
    own_key = object_key(pod.metadata)
    for other in pods:
        if occupies_node(other) and object_key(other.metadata) != own_key:
            state.set_pod(other)
    return state


def _objections(
    query: PodQuery, node: NodeInfo, cross: InterPodAffinity, volumes: VolumeCheck | None
) -> Iterable[Objection]:
    of_volumes = volumes.rejection(node) if volumes is not None else None
    for rejection in (
        *filters.local_rejections(query, node),
        *((of_volumes,) if of_volumes is not None else ()),
        *cross.rejections(node),
    ):
        yield _objection(rejection, query, node)


def _objection(rejection: Rejection, query: PodQuery, node: NodeInfo) -> Objection:
    detail = _DETAILS.get(rejection.filter, _no_detail)(query, node)
    return Objection(rejection.filter, rejection.reasons, detail, _REMEDIES[rejection.filter])


def _with_wait(
    name: str, objections: tuple[Objection, ...], wait: Wait | None
) -> tuple[Objection, ...]:
    """Return the objections, with the lack of the handler that the pod is held for."""
    if wait is None or name not in wait.lacking:
        return objections
    if any(objection.filter == filters.RUNTIME_HANDLER for objection in objections):
        return objections
    lack = Objection(filters.RUNTIME_HANDLER, (_LACK,), "", _REMEDIES[filters.RUNTIME_HANDLER])
    return (lack, *objections)


def _with_problem(objections: tuple[Objection, ...], problem: str) -> tuple[Objection, ...]:
    """Return the objections; that to the handler with its probe's reason, where one failed."""
    if not problem:
        return objections
    return tuple(
        replace(objection, detail=f"its probe fails: {problem}", remedy=_FAILED_REMEDY)
        if objection.filter == filters.RUNTIME_HANDLER
        else objection
        for objection in objections
    )


def _blocked_by(
    pod: Pod, missing: str, volumes: Blocked | None, wait: Wait | None, *, has_nodes: bool
) -> Objection | None:
    if pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        if wait is not None:
            return Objection("SchedulingGates", (wait.message,), f"gates: {gates}", wait.remedy)
        return Objection(
            "SchedulingGates", (messages.GATED,), f"gates: {gates}",
            "remove the gates from spec.schedulingGates, or let the controller that set them do so",
        )  # fmt: skip
    if missing:
        return Objection(
            filters.RUNTIME_HANDLER, (f'RuntimeClass "{missing}" not found',), "",
            f"create the RuntimeClass {missing!r}, or name one that exists "
            "(kubectl get runtimeclass)",
        )  # fmt: skip
    if volumes is not None:
        return Objection(volumes.filter, (volumes.message,), "", _CLAIM_REMEDY)
    if not has_nodes:
        return Objection("NoNodes", (messages.NO_NODES,), "", _NO_NODE_REMEDY)
    return None


def _summary(
    query: PodQuery,
    state: ClusterState,
    cross: InterPodAffinity,
    volumes: VolumeCheck | None,
    blocked: Objection | None,
) -> str:
    count = len(state.nodes)
    if blocked is not None:
        return blocked.reasons[0]
    first = [
        filters.local_rejection(query, node)
        or (volumes.rejection(node) if volumes is not None else None)
        or cross.rejection(node)
        for node in state.nodes.values()
    ]
    rejections = [rejection for rejection in first if rejection is not None]
    if len(rejections) < count:
        return f"{count - len(rejections)}/{count} nodes are available"
    return messages.unavailable(count, messages.histogram(rejections))


def _no_detail(query: PodQuery, node: NodeInfo) -> str:
    del query, node
    return ""


def _taint_detail(query: PodQuery, node: NodeInfo) -> str:
    from_node = [
        f"{t.key}={t.value}:{t.effect}" if t.value else f"{t.key}:{t.effect}"
        for t in node.hard_taints
    ]
    del query
    return f"taints: {', '.join(from_node)}"


def _handler_detail(query: PodQuery, node: NodeInfo) -> str:
    del query
    offered = sorted(name or '"" (default)' for name in node.handlers or ())
    return f"handlers of the node: {', '.join(offered)}"


def _fit_detail(query: PodQuery, node: NodeInfo) -> str:
    parts = []
    if len(node.pods) + 1 > node.max_pods:
        parts.append(f"pods: {len(node.pods)} of {node.max_pods} used")
    for name, wanted in query.needs:
        has, used = node.allocatable.get(name, 0), node.used.get(name, 0)
        if wanted > has - used:
            unit = "m" if name == "cpu" else ""
            parts.append(f"{name}: wants {wanted}{unit}, free {has - used}{unit} of {has}{unit}")
    return "; ".join(parts)


def _ports_detail(query: PodQuery, node: NodeInfo) -> str:
    taken = {(protocol, port) for protocol, port, _ in node.ports}
    wanted = [f"{port}/{proto}" for proto, port, _ in query.ports if (proto, port) in taken]
    return f"taken: {', '.join(wanted)}"


_FAILED_REMEDY = (
    "the node has the handler, and its probe fails: correct what it reports; it is probed again by "
    "itself"
)
_LACK = "the pod's handler was not found to work there"
_NO_NODE_REMEDY = "stop the cluster, then `moor up` as root without --no-node"
_CLAIM_REMEDY = (
    "see why the claim is not bound: kubectl describe pvc; it needs a volume that fits, or a "
    "storage class that makes one (kubectl get pv,storageclass)"
)
_DETAILS = {
    filters.TAINT_TOLERATION: _taint_detail,
    filters.RUNTIME_HANDLER: _handler_detail,
    filters.NODE_RESOURCES_FIT: _fit_detail,
    filters.NODE_PORTS: _ports_detail,
}

_REMEDIES = {
    filters.NAMED_NODES: "the pod's required node affinity names other nodes: change it",
    filters.NODE_UNSCHEDULABLE: "kubectl uncordon the node",
    filters.NODE_NAME: "spec.nodeName asks for another node",
    filters.TAINT_TOLERATION: "tolerate the taint in the pod (or in its RuntimeClass's "
    "scheduling.tolerations), or remove the taint from the node",
    filters.NODE_AFFINITY: "label the node as the pod's nodeSelector or affinity (or its "
    "RuntimeClass's scheduling.nodeSelector) asks, or change what is asked",
    filters.RUNTIME_HANDLER: "install and configure the runtime on the node, or use a class whose "
    "handler the node has",
    filters.NODE_PORTS: "use another hostPort, or none",
    filters.NODE_RESOURCES_FIT: "lower the pod's requests (the class's overhead counts too), end "
    "other pods, or use a larger machine",
    filters.VOLUME_BINDING: "the pod's volumes are on other nodes, or none of its class fits: see "
    "kubectl get pv, and let the pod run where they are",
    filters.VOLUME_RESTRICTIONS: "delete the pod that uses the claim, or use another access mode "
    "than ReadWriteOncePod",
    filters.VOLUME_ZONE: "the pod's volumes are in another zone: let the pod run there",
    filters.TOPOLOGY_SPREAD: "raise maxSkew, set whenUnsatisfiable to ScheduleAnyway, or add nodes "
    "in the emptier domains with the topology label",
    filters.INTER_POD_AFFINITY: "change the pod affinity rules, or where the pods they mean run",
}
