"""A node agent may write about its own node and the pods bound to it, nothing else.

The Node authorizer lets agents write pods and nodes at all; this looks at which. Source: apiserver
plugin NodeRestriction.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.admission.chain import CREATE, DELETE, UPDATE, Scope
from moorage.admission.refusal import refused
from moorage.admission.service_account import MIRROR_ANNOTATION
from moorage.api.pods import Pod
from moorage.registry.kind import Obj
from moorage.registry.request import Attributes, User

NODES_GROUP = "system:nodes"
NODE_USER_PREFIX = "system:node:"
LEASE_NAMESPACE = "kube-node-lease"
RESTRICTED_LABEL_DOMAIN = "node-restriction.kubernetes.io"

# Labels under these domains that an agent may set on its own node nevertheless.
_AGENT_LABELS = frozenset({
    "kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os",
    "beta.kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region", "node.kubernetes.io/windows-build",
})  # fmt: skip
_AGENT_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")


def node_name_of(user: User) -> str | None:
    """The node whose agent this user is, or None."""
    if NODES_GROUP not in user.groups or not user.name.startswith(NODE_USER_PREFIX):
        return None
    return user.name.removeprefix(NODE_USER_PREFIX)


class NodeRestriction:
    """`find_pod(name, namespace)` returns a pod, or None."""

    name = "NodeRestriction"
    scope = Scope.of(
        ["pods", "nodes", "serviceaccounts", "leases.coordination.k8s.io"],
        [CREATE, UPDATE, DELETE],
        ["", "status", "eviction", "token", "resize", "binding", "ephemeralcontainers"],
    )
    mutate = None

    def __init__(self, find_pod: Callable[[str, str], Pod | None]) -> None:
        self._find_pod = find_pod
        self.validate = self._check
        self._checks: dict[str, Callable[[Attributes, str], None]] = {
            "pods": self._check_pod,
            "nodes": self._check_node,
            "serviceaccounts": self._check_token,
            "leases.coordination.k8s.io": self._check_lease,
        }

    def _check(self, attributes: Attributes) -> None:
        node_name = node_name_of(attributes.request.user)
        if node_name is not None:
            self._checks[attributes.kind.resource](attributes, node_name)

    def _check_pod(self, attributes: Attributes, node_name: str) -> None:
        obj = attributes.obj or {}
        if attributes.subresource == "eviction":
            pod = self._find_pod(attributes.name, attributes.namespace)
            if pod is None or pod.spec.node_name != node_name:
                raise refused(attributes, f'node "{node_name}" can only evict pods with '
                              f'spec.nodeName set to itself')  # fmt: skip
        elif attributes.operation == CREATE and not attributes.subresource:
            if MIRROR_ANNOTATION not in obj["metadata"].get("annotations", {}):
                raise refused(
                    attributes,
                    f'pod does not have "{MIRROR_ANNOTATION}" annotation, node "{node_name}" can '
                    "only create mirror pods",
                )
            if obj["spec"].get("nodeName") != node_name:
                raise refused(attributes, f'node "{node_name}" can only create pods with '
                              "spec.nodeName set to itself")  # fmt: skip
        elif attributes.operation == DELETE or attributes.subresource == "status":
            if (attributes.old or {}).get("spec", {}).get("nodeName") != node_name:
                verb = (
                    "delete pods"
                    if attributes.operation == DELETE
                    else "update pod status for pods"
                )
                raise refused(
                    attributes,
                    f'node "{node_name}" can only {verb} with spec.nodeName set to itself',
                )
        else:
            raise refused(
                attributes,
                f'unexpected operation "{attributes.operation}", node "{node_name}" can only '
                "create and delete mirror pods",
            )

    def _check_node(self, attributes: Attributes, node_name: str) -> None:
        if attributes.name != node_name:
            raise refused(attributes, f'node "{node_name}" is not allowed to modify node '
                          f'"{attributes.name}"')  # fmt: skip
        if attributes.obj is None or attributes.subresource:
            return
        old = attributes.old or {}
        if attributes.operation == UPDATE and _taints(attributes.obj) != _taints(old):
            raise refused(attributes, f'node "{node_name}" is not allowed to modify taints')
        changed = _changed_labels(attributes.obj, old)
        forbidden = sorted(label for label in changed if not _may_set_label(label))
        if forbidden:
            raise refused(
                attributes,
                f'node "{node_name}" is not allowed to modify labels: {", ".join(forbidden)}',
            )

    def _check_token(self, attributes: Attributes, node_name: str) -> None:
        if attributes.subresource != "token":
            return
        bound = ((attributes.obj or {}).get("spec") or {}).get("boundObjectRef") or {}
        pod = self._find_pod(bound.get("name", ""), attributes.namespace)
        if bound.get("kind") != "Pod" or pod is None or pod.metadata.uid != bound.get("uid"):
            raise refused(attributes, "node requested token not bound to a pod")
        if pod.spec.node_name != node_name:
            raise refused(attributes, "node requested token bound to a pod scheduled on a "
                          "different node")  # fmt: skip
        if (pod.spec.service_account_name or "default") != attributes.name:
            raise refused(attributes, "node requested token for another service account than the "
                          "pod's")  # fmt: skip

    def _check_lease(self, attributes: Attributes, node_name: str) -> None:
        if attributes.namespace != LEASE_NAMESPACE:
            raise refused(attributes, f'can only access leases in the "{LEASE_NAMESPACE}" system '
                          "namespace")  # fmt: skip
        meta = (attributes.obj or {}).get("metadata", {})
        if (attributes.name or meta.get("name")) != node_name:
            raise refused(attributes, "can only access node lease with the same name as the "
                          "requesting node")  # fmt: skip


def _taints(node: Obj) -> list[Obj]:
    taints: list[Obj] = node.get("spec", {}).get("taints", [])
    return taints


def _changed_labels(new: Obj, old: Obj) -> set[str]:
    after = new["metadata"].get("labels", {})
    before = old.get("metadata", {}).get("labels", {})
    return {key for key in after.keys() | before.keys() if after.get(key) != before.get(key)}


def _may_set_label(label: str) -> bool:
    domain = label.partition("/")[0] if "/" in label else ""
    if not _is_kubernetes(domain):
        return True
    return label in _AGENT_LABELS or any(
        domain == own or domain.endswith(f".{own}") for own in _AGENT_DOMAINS
    )


def _is_kubernetes(domain: str) -> bool:
    return any(domain == own or domain.endswith(f".{own}") for own in ("kubernetes.io", "k8s.io"))
