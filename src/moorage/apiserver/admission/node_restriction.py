"""NodeRestriction plugin: a node agent may write only its own node and the pods bound to it.

The Node authorizer allows agents to write pods and nodes; this plugin checks which. Source:
apiserver plugin NodeRestriction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from moorage.api.claims.classes import FINALIZER, NODE_LABEL
from moorage.api.errors import NotFoundError
from moorage.api.nodes import Node
from moorage.api.pod_references import (
    config_map_names,
    projected_audiences,
    projects_account_token,
    secret_names,
    uses_claim,
)
from moorage.api.pods import MIRROR_ANNOTATION, Pod
from moorage.apiserver.admission.admission_request import refused
from moorage.apiserver.admission.chain import CREATE, DELETE, UPDATE, Scope
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import Attributes, User

_REQUEST_AUDIENCE = "request-serviceaccounts-token-audience"

NODES_GROUP = "system:nodes"
NODE_USER_PREFIX = "system:node:"
LEASE_NAMESPACE = "kube-node-lease"

# Kubernetes labels that an agent may set on its own node, with those of `_AGENT_DOMAINS`.
_AGENT_LABELS = frozenset({
    "kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os",
    "beta.kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region", "node.kubernetes.io/windows-build",
})  # fmt: skip
_AGENT_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")


def node_name_of(user: User) -> str | None:
    """Return the name of the node whose agent this user is, or None."""
    if NODES_GROUP not in user.groups or not user.name.startswith(NODE_USER_PREFIX):
        return None
    return user.name.removeprefix(NODE_USER_PREFIX)


class NodeRestriction:
    """Refuses writes of node agents to objects that are not theirs.

    `find_pod(name, namespace)` returns a pod, `find_node(name)` a node, or None.
    `is_allowed(user, action)` is the cluster's authorizer, which can grant agents more audiences.
    """

    name = "NodeRestriction"
    scope = Scope.of(
        [
            "pods",
            "nodes",
            "serviceaccounts",
            "persistentvolumes",
            "leases.coordination.k8s.io",
        ],
        [CREATE, UPDATE, DELETE],
        ["", "status", "eviction", "token", "resize", "binding", "ephemeralcontainers"],
    )
    mutate = None

    def __init__(
        self,
        find_pod: Callable[[str, str], Pod | None],
        find_node: Callable[[str], Node | None],
        is_allowed: Callable[[User, Action], bool],
    ) -> None:
        self._find_pod = find_pod
        self._find_node = find_node
        self._is_allowed = is_allowed
        self.validate = self._check
        self._checks: dict[str, Callable[[Attributes, str], None]] = {
            "pods": self._check_pod,
            "nodes": self._check_node,
            "serviceaccounts": self._check_token,
            "persistentvolumes": _check_volume,
            "leases.coordination.k8s.io": self._check_lease,
        }

    def _check(self, attributes: Attributes) -> None:
        node_name = node_name_of(attributes.request.user)
        if node_name is not None:
            self._checks[attributes.kind.resource](attributes, node_name)

    def _check_pod(self, attributes: Attributes, node_name: str) -> None:
        match attributes.operation, attributes.subresource:
            case "CREATE", "":
                self._check_mirror(attributes, node_name)
            case "DELETE", _:
                _check_is_bound(attributes, node_name, "delete pods")
            case _, "status":
                _check_is_bound(attributes, node_name, "update pod status for pods")
                if _labels(attributes.obj) != _labels(attributes.old):
                    raise refused(
                        attributes, f'node "{node_name}" cannot update labels through pod status'
                    )
            case _, "eviction":
                pod = self._find_pod(attributes.name, attributes.namespace)
                if pod is None or pod.spec.node_name != node_name:
                    raise refused(attributes, f'node "{node_name}" can only evict pods with '
                                  'spec.nodeName set to itself')  # fmt: skip
            case _:
                raise refused(
                    attributes,
                    f'unexpected operation "{attributes.operation}", node "{node_name}" can only '
                    "create and delete mirror pods",
                )

    def _check_mirror(self, attributes: Attributes, node_name: str) -> None:
        """Require that a mirror pod is bound to the node and references no object.

        Otherwise the agent could read any object by referencing it.
        """
        pod = msgspec.convert(attributes.obj, Pod)
        if MIRROR_ANNOTATION not in pod.metadata.annotations:
            raise refused(
                attributes,
                f'pod does not have "{MIRROR_ANNOTATION}" annotation, node "{node_name}" can '
                "only create mirror pods",
            )
        if pod.spec.node_name != node_name:
            raise refused(attributes, f'node "{node_name}" can only create pods with '
                          "spec.nodeName set to itself")  # fmt: skip
        self._check_owner(attributes, pod, node_name)
        for what, is_referenced in (
            ("a service account", bool(pod.spec.service_account_name)),
            ("secrets", bool(secret_names(pod))),
            ("configmaps", bool(config_map_names(pod))),
            ("serviceaccounttoken projections", projects_account_token(pod)),
            ("persistentvolumeclaims", uses_claim(pod)),
        ):
            if is_referenced:
                raise refused(
                    attributes, f'node "{node_name}" can not create pods that reference {what}'
                )

    def _check_owner(self, attributes: Attributes, pod: Pod, node_name: str) -> None:
        may = f'node "{node_name}" can only create pods with'
        owners = pod.metadata.owner_references
        if len(owners) > 1:
            raise refused(attributes, f"{may} a single owner reference set to itself")
        itself = ("v1", "Node", node_name)
        if not owners or (owners[0].api_version, owners[0].kind, owners[0].name) != itself:
            raise refused(attributes, f"{may} an owner reference set to itself")
        if not owners[0].controller:
            raise refused(attributes, f"{may} a controller owner reference set to itself")
        if owners[0].block_owner_deletion:
            raise refused(attributes, f'node "{node_name}" must not set blockOwnerDeletion on an '
                          "owner reference")  # fmt: skip
        node = self._find_node(node_name)
        if node is None:
            raise NotFoundError.of("nodes", node_name)
        if owners[0].uid != node.metadata.uid:
            raise refused(
                attributes,
                f"node {node_name} UID mismatch: expected {node.metadata.uid} got {owners[0].uid}",
            )

    def _check_node(self, attributes: Attributes, node_name: str) -> None:
        if attributes.name != node_name:
            raise refused(attributes, f'node "{node_name}" is not allowed to modify node '
                          f'"{attributes.name}"')  # fmt: skip
        if attributes.operation == DELETE:
            return
        # The status subresource can change labels too, so both paths are checked.
        changed = _labels(attributes.obj).items() ^ _labels(attributes.old).items()
        forbidden = sorted({label for label, _ in changed if not _may_set_label(label)})
        is_new = attributes.operation == CREATE
        if not is_new and _taints(attributes.obj) != _taints(attributes.old):
            raise refused(attributes, f'node "{node_name}" is not allowed to modify taints')
        if not is_new and _owners(attributes.obj) != _owners(attributes.old):
            raise refused(
                attributes, f'node "{node_name}" is not allowed to modify ownerReferences'
            )
        if forbidden:
            what = "set the following labels" if is_new else "modify labels"
            raise refused(
                attributes,
                f'node "{node_name}" is not allowed to {what}: {", ".join(forbidden)}',
            )

    def _check_token(self, attributes: Attributes, node_name: str) -> None:
        if attributes.subresource != "token":
            return
        spec = (attributes.obj or {}).get("spec") or {}
        bound = spec.get("boundObjectRef") or {}
        name, uid = bound.get("name"), bound.get("uid")
        if (bound.get("apiVersion"), bound.get("kind")) != ("v1", "Pod") or not name:
            raise refused(attributes, "node requested token not bound to a pod")
        if not uid:
            raise refused(attributes, "node requested token with a pod binding without a uid")
        pod = self._find_pod(name, attributes.namespace)
        if pod is None:
            raise NotFoundError.of("pods", name)
        if pod.metadata.uid != uid:
            raise refused(
                attributes,
                f"the UID in the bound object reference ({uid}) does not match the UID in record. "
                "The object might have been deleted and then recreated",
            )
        if pod.spec.node_name != node_name:
            raise refused(attributes, "node requested token bound to a pod scheduled on a "
                          "different node")  # fmt: skip
        self._check_audience(attributes, pod, spec.get("audiences") or [])

    def _check_audience(self, attributes: Attributes, pod: Pod, audiences: Sequence[str]) -> None:
        """Allow the audiences of the pod's volumes and those that RBAC grants the agent.

        Source: feature gate ServiceAccountNodeAudienceRestriction.
        """
        if len(audiences) > 1:
            raise refused(attributes, "node may only request 0 or 1 audiences")
        audience = audiences[0] if audiences else ""
        if audience in projected_audiences(pod):
            return
        user = attributes.request.user
        action = Action(
            verb=_REQUEST_AUDIENCE,
            resource=audience,
            namespace=attributes.namespace,
            name=attributes.name,
        )
        if not self._is_allowed(user, action):
            raise refused(
                attributes,
                f'audience "{audience}" not found in pod spec volume, {user.name} is not '
                "authorized to request tokens for this audience",
            )

    def _check_lease(self, attributes: Attributes, node_name: str) -> None:
        if attributes.namespace != LEASE_NAMESPACE:
            raise refused(attributes, f'can only access leases in the "{LEASE_NAMESPACE}" system '
                          "namespace")  # fmt: skip
        meta = (attributes.obj or {}).get("metadata", {})
        if (attributes.name or meta.get("name")) != node_name:
            raise refused(attributes, "can only access node lease with the same name as the "
                          "requesting node")  # fmt: skip


def _check_volume(attributes: Attributes, node_name: str) -> None:
    """Allow nothing but to let go of a volume whose directory the node has removed."""
    old, new = attributes.old or {}, attributes.obj or {}
    if _labels(old).get(NODE_LABEL) != node_name:
        raise refused(
            attributes, f'node "{node_name}" can only let go of volumes that it has itself'
        )
    kept = [name for name in old.get("metadata", {}).get("finalizers", []) if name != FINALIZER]
    if (
        attributes.operation != UPDATE
        or attributes.subresource
        or _stated(new)
        != _stated({**old, "metadata": {**old.get("metadata", {}), "finalizers": kept}})
    ):
        raise refused(
            attributes,
            f'node "{node_name}" can only remove the finalizer "{FINALIZER}" from a volume',
        )


def _stated(volume: Obj) -> Obj:
    """Return a volume without what the server itself writes."""
    meta = {
        key: value
        for key, value in volume.get("metadata", {}).items()
        if key not in ("managedFields", "resourceVersion", "generation") and value
    }
    return {**volume, "metadata": meta}


def _check_is_bound(attributes: Attributes, node_name: str, verb: str) -> None:
    if (attributes.old or {}).get("spec", {}).get("nodeName") != node_name:
        raise refused(
            attributes, f'node "{node_name}" can only {verb} with spec.nodeName set to itself'
        )


def _taints(node: Obj | None) -> list[Obj]:
    taints: list[Obj] = (node or {}).get("spec", {}).get("taints", [])
    return taints


def _labels(obj: Obj | None) -> dict[str, str]:
    labels: dict[str, str] = (obj or {}).get("metadata", {}).get("labels", {})
    return labels


def _owners(node: Obj | None) -> list[Obj]:
    owners: list[Obj] = (node or {}).get("metadata", {}).get("ownerReferences", [])
    return owners


def _may_set_label(label: str) -> bool:
    domain = label.partition("/")[0] if "/" in label else ""
    if not _is_kubernetes(domain):
        return True
    return label in _AGENT_LABELS or any(
        domain == own or domain.endswith(f".{own}") for own in _AGENT_DOMAINS
    )


def _is_kubernetes(domain: str) -> bool:
    return any(domain == own or domain.endswith(f".{own}") for own in ("kubernetes.io", "k8s.io"))
