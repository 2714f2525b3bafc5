"""Nodes: capacity, conditions, addresses and runtime handlers.

Source: core/v1 `Node`; `status.runtimeHandlers` is KEP-3857 and KEP-127.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import field

from moorage.api.meta import Object, ObjectMeta, Raw
from moorage.api.numbers import parse_int
from moorage.api.pods import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    Toleration,
)

# Well-known node labels.
#
# Source: Kubernetes "Well-Known Labels, Annotations and Taints".

HOSTNAME = "kubernetes.io/hostname"
OS = "kubernetes.io/os"
ARCH = "kubernetes.io/arch"

DEPRECATED = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": (
        'deprecated since v1.17; use "topology.kubernetes.io/region" instead'
    ),
    "failure-domain.beta.kubernetes.io/zone": (
        'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
    ),
    "beta.kubernetes.io/instance-type": (
        'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead'
    ),
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": (
        "deprecated since v1.22; use Taints and Tolerations instead"
    ),
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
"""Deprecated node labels, which still work in selectors → warning text."""

GENERALLY_AVAILABLE = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
"""Beta labels → those that have replaced them."""


class Taint(Object, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Object, frozen=True):
    pod_cidr: str = field(default="", name="podCIDR")
    pod_cidrs: tuple[str, ...] = field(default=(), name="podCIDRs")
    provider_id: str = field(default="", name="providerID")
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    config_source: Raw | None = None
    external_id: str = field(default="", name="externalID")


class NodeCondition(Object, frozen=True):
    type: str = ""
    status: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class NodeAddress(Object, frozen=True):
    type: str = ""
    address: str = ""


class DaemonEndpoint(Object, frozen=True):
    port: int = field(default=0, name="Port")


class NodeDaemonEndpoints(Object, frozen=True):
    kubelet_endpoint: DaemonEndpoint = DaemonEndpoint()


class NodeSwapStatus(Object, frozen=True):
    capacity: int | None = None


class NodeSystemInfo(Object, frozen=True):
    machine_id: str = field(default="", name="machineID")
    system_uuid: str = field(default="", name="systemUUID")
    boot_id: str = field(default="", name="bootID")
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    kube_proxy_version: str = ""
    operating_system: str = ""
    architecture: str = ""
    swap: NodeSwapStatus | None = None


class ContainerImage(Object, frozen=True):
    names: tuple[str, ...] = ()
    size_bytes: int = 0


class AttachedVolume(Object, frozen=True):
    name: str = ""
    device_path: str = ""


class NodeRuntimeHandlerFeatures(Object, frozen=True):
    recursive_read_only_mounts: bool | None = None
    user_namespaces: bool | None = None


class NodeRuntimeHandler(Object, frozen=True):
    name: str = ""
    features: NodeRuntimeHandlerFeatures | None = None


class NodeFeatures(Object, frozen=True):
    supplemental_groups_policy: bool | None = None


class NodeStatus(Object, frozen=True):
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    phase: str = ""
    conditions: tuple[NodeCondition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    daemon_endpoints: NodeDaemonEndpoints = NodeDaemonEndpoints()
    node_info: NodeSystemInfo = NodeSystemInfo()
    images: tuple[ContainerImage, ...] = ()
    volumes_in_use: tuple[str, ...] = ()
    volumes_attached: tuple[AttachedVolume, ...] = ()
    config: Raw | None = None
    runtime_handlers: tuple[NodeRuntimeHandler, ...] = ()
    features: NodeFeatures | None = None
    declared_features: tuple[str, ...] = ()


class Node(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# Node affinity: matching a pod's `nodeSelector` and required node affinity with a node.
#
# Used by the scheduler as a filter, and by the node agent before it runs a pod. Source:
# component-helpers `nodeaffinity`.


def matches_node(spec: PodSpec, node: Node) -> bool:
    """Return whether `spec.nodeSelector` and the required node affinity both match the node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return required is None or matches_selector(required, node)


def matches_selector(selector: NodeSelector, node: Node) -> bool:
    """Return whether any term matches the node: terms are ORed."""
    return any(matches_term(term, node) for term in selector.node_selector_terms)


def matches_term(term: NodeSelectorTerm, node: Node) -> bool:
    """Return whether all expressions of a term match. An empty term matches no node."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(
        _holds(requirement, node.metadata.labels) for requirement in term.match_expressions
    ) and all(_holds(requirement, fields) for requirement in term.match_fields)


def _holds(requirement: NodeSelectorRequirement, values: Mapping[str, str]) -> bool:
    check = _OPERATORS.get(requirement.operator)
    return check is not None and check(values.get(requirement.key), requirement.values)


def _compared(
    value: str | None, bounds: tuple[str, ...], holds: Callable[[int, int], bool]
) -> bool:
    if value is None or len(bounds) != 1:
        return False
    try:
        return holds(parse_int(value), parse_int(bounds[0]))
    except ValueError:
        return False


_OPERATORS: dict[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compared(value, values, int.__gt__),
    "Lt": lambda value, values: _compared(value, values, int.__lt__),
}


# Taint toleration: matching tolerations with taints.
#
# Source: core/v1 `Toleration.ToleratesTaint`. An empty key with `Exists` tolerates every taint; an
# empty effect matches every effect; an omitted operator means `Equal`.

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration matches a taint (its duration aside)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case _:
            return False


def first_untolerated(
    taints: Iterable[Taint], tolerations: Collection[Toleration], effects: Collection[str]
) -> Taint | None:
    """Return the first taint with one of the effects that no toleration matches, or None."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None
