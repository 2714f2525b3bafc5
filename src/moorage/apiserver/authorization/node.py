"""Node authorizer: agents read the objects their pods need and write their own.

NodeRestriction (moorage.apiserver.admission) checks which of those objects they may write.
Source: API docs "Node Authorization", KEP-4601 (selectors).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from moorage.api import labels
from moorage.api.claims import pod_claims
from moorage.api.claims.classes import NODE_LABEL
from moorage.api.fields import FieldRequirement, FieldSelector
from moorage.api.labels import Selector
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from moorage.api.pod_references import config_map_names, resource_claim_names, secret_names
from moorage.api.pods import Pod
from moorage.api.rbac import PolicyRule
from moorage.api.runtime_group import GROUP as RUNTIME_GROUP
from moorage.api.runtime_group import node_of_profile
from moorage.apiserver.admission.node_restriction import LEASE_NAMESPACE, node_name_of
from moorage.apiserver.registry.rbac import Action, allows
from moorage.apiserver.registry.request import User

_READ = ("get", "list", "watch")
_LEASE_VERBS = ("get", "create", "update", "patch", "delete")


def _rule(group: str, resources: Iterable[str], verbs: Iterable[str]) -> PolicyRule:
    return PolicyRule(api_groups=(group,), resources=tuple(resources), verbs=tuple(verbs))


NODE_RULES: tuple[PolicyRule, ...] = (
    _rule("", ["services", "namespaces"], _READ),
    _rule("node.k8s.io", ["runtimeclasses"], _READ),
    _rule("storage.k8s.io", ["csidrivers"], _READ),
    _rule("", ["nodes"], ["create", "update", "patch"]),
    _rule("", ["nodes/status"], ["update", "patch"]),
    _rule("", ["pods"], ["create", "delete"]),
    _rule("", ["pods/status"], ["update", "patch"]),
    _rule("", ["pods/eviction"], ["create"]),
    _rule("", ["serviceaccounts/token"], ["create"]),
    _rule("", ["events"], ["create", "update", "patch"]),
    _rule("events.k8s.io", ["events"], ["create", "update", "patch"]),
    _rule("coordination.k8s.io", ["leases"], _LEASE_VERBS),
    _rule("certificates.k8s.io", ["certificatesigningrequests"], [*_READ, "create"]),
    _rule("certificates.k8s.io", ["clustertrustbundles"], _READ),
    _rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
    _rule(
        "authorization.k8s.io", ["subjectaccessreviews", "localsubjectaccessreviews"], ["create"]
    ),
)
"""Rules of every agent, regardless of its pods (the system:node cluster role)."""

_ALLOWED = ""
_NO_NAME = "No Object name found"
_NO_NAMESPACE = "can only read namespaced object of this type"
_ONE_BY_ONE = "can only get individual resources of this type"
_OWN_VERBS = ("get", "create", "update", "patch", "delete")
_STORAGE, _DEVICES, _CERTIFICATES = "storage.k8s.io", "resource.k8s.io", "certificates.k8s.io"

PodsOf = Callable[[str, str], Iterable[Pod]]
"""(node name, namespace) → the pods bound to that node there."""
NodeOf = Callable[[str, str, str], str | None]
"""(plural, namespace, name) → `spec.nodeName` of a VolumeAttachment, ResourceSlice or
PodCertificateRequest; None if it does not exist."""


class NodeAuthorizer:
    """`pods_of` returns the pods of a node in one namespace, `find_claim` a claim by name and
    namespace, `find_volume` a volume by name, `node_of` the node that an object names.
    """

    def __init__(
        self,
        pods_of: PodsOf,
        find_claim: Callable[[str, str], PersistentVolumeClaim | None],
        find_volume: Callable[[str], PersistentVolume | None],
        node_of: NodeOf,
    ) -> None:
        self._pods_of = pods_of
        self._find_claim = find_claim
        self._find_volume = find_volume
        self._node_of = node_of
        self._decisions: dict[tuple[str, str], Callable[[str, Action, FieldSelector], str]] = {
            (_STORAGE, "csinodes"): _decide_csi_node,
            (_STORAGE, "volumeattachments"): self._decide_attachment,
            (_DEVICES, "resourceclaims"): self._decide_resource_claim,
            (_DEVICES, "resourceslices"): self._decide_slice,
            (_CERTIFICATES, "podcertificaterequests"): self._decide_certificate,
            (RUNTIME_GROUP, "runtimeprofiles"): _decide_profile,
            (RUNTIME_GROUP, "runtimeinstallations"): _decide_installation,
        }

    def decide(
        self,
        user: User,
        action: Action,
        selector: FieldSelector,
        label_selector: Selector = labels.EVERYTHING,
    ) -> str | None:
        """Return `""` if allowed, the reason if not, None if the user is not a node agent."""
        node_name = node_name_of(user)
        if node_name is None:
            return None
        if not action.is_resource:
            return "no node rule for this path"
        if (action.group, action.resource, action.verb) == ("", "serviceaccounts", "create"):
            return self._decide_token(node_name, action)
        if (action.group, action.resource) == ("coordination.k8s.io", "leases"):
            return _decide_lease(node_name, action)
        if any(allows(rule, action) for rule in NODE_RULES):
            return _ALLOWED
        if (action.group, action.resource) == ("", "persistentvolumes") and not action.subresource:
            return self._decide_volume(node_name, action, label_selector)
        if (action.group, action.full_resource) == ("", "persistentvolumeclaims/status"):
            return self._decide_claim_status(node_name, action)
        decision = self._decisions.get((action.group, action.resource))
        if decision is not None:
            return decision(node_name, action, selector)
        if not action.group and action.verb in _READ and not action.subresource:
            return self._decide_read(node_name, action, selector)
        return f"node '{node_name}' may not {action.verb} {action.full_resource}"

    def _decide_read(self, node_name: str, action: Action, selector: FieldSelector) -> str:
        match action.resource:
            case "nodes":
                if action.name == node_name:
                    return _ALLOWED
                what = f"'{action.name}'" if action.name else "all nodes"
                return f"node '{node_name}' cannot read {what}, only its own Node object"
            case "pods":
                return self._decide_pods(node_name, action, selector)
            case "persistentvolumeclaims" if action.verb != "get":
                return _ONE_BY_ONE
            case "secrets" | "configmaps" | "serviceaccounts" | "persistentvolumeclaims":
                return self._decide_referenced(node_name, action)
            case _:
                return f"node '{node_name}' may not read {action.resource}"

    def _decide_volume(self, node_name: str, action: Action, selector: Selector) -> str:
        """Allow the volumes of the node's pods, and those whose directories the node has.

        NodeRestriction checks what a patch changes.
        """
        if action.verb in ("list", "watch"):
            if any(_requires_node(requirement, node_name) for requirement in selector.requirements):
                return _ALLOWED
            return f"can only list/watch volumes with the label selector {NODE_LABEL}={node_name}"
        if action.verb not in ("get", "patch"):
            return f"node '{node_name}' may not {action.verb} persistentvolumes"
        if not action.name:
            return _NO_NAME
        volume = self._find_volume(action.name)
        if volume is not None:
            if volume.metadata.labels.get(NODE_LABEL) == node_name:
                return _ALLOWED
            if action.verb == "get" and self._is_used(node_name, volume):
                return _ALLOWED
        return f"no relationship found between node '{node_name}' and this object"

    def _is_used(self, node_name: str, volume: PersistentVolume) -> bool:
        """Return whether a pod of the node uses the claim that has the volume."""
        reference = volume.spec.claim_ref
        if reference is None or not reference.namespace:
            return False
        claim = self._find_claim(reference.name, reference.namespace)
        if claim is None or claim.spec.volume_name != volume.metadata.name:
            return False
        return any(
            reference.name in _claims_of(pod)
            for pod in self._pods_of(node_name, reference.namespace)
        )

    def _decide_claim_status(self, node_name: str, action: Action) -> str:
        """Allow the status of the claims of the node's pods; NodeRestriction checks the change."""
        if action.verb not in ("update", "patch"):
            return "can only get/update/patch this type"
        return self._decide_referenced(node_name, action)

    def _decide_attachment(self, node_name: str, action: Action, _: FieldSelector) -> str:
        return _only_get(action) or self._decide_named(node_name, action)

    def _decide_resource_claim(self, node_name: str, action: Action, _: FieldSelector) -> str:
        return _only_get(action) or self._decide_referenced(node_name, action)

    def _decide_slice(self, node_name: str, action: Action, selector: FieldSelector) -> str:
        """Allow the node's own slices. NodeRestriction checks the node in the body of a create."""
        if action.subresource:
            return "cannot authorize ResourceSlice subresources"
        match action.verb:
            case "create":
                return _ALLOWED
            case "get" | "update" | "patch" | "delete":
                return self._decide_named(node_name, action)
            case "watch" | "list" | "deletecollection":
                if _selects(selector, node_name):
                    return _ALLOWED
                return (
                    "can only list/watch/deletecollection resourceslices with nodeName field "
                    "selector"
                )
            case _:
                return (
                    "only the following verbs are allowed for a ResourceSlice: get, watch, list, "
                    "create, update, patch, delete, deletecollection"
                )

    def _decide_certificate(self, node_name: str, action: Action, selector: FieldSelector) -> str:
        """Allow the requests for the node's pods. NodeRestriction checks the body of a create."""
        if action.subresource:
            return "nodes may not access the status subresource of PodCertificateRequests"
        match action.verb:
            case "create":
                return _ALLOWED
            case "get":
                return self._decide_named(node_name, action)
            case "list" | "watch":
                if _selects(selector, node_name):
                    return _ALLOWED
                return "can only list/watch podcertificaterequests with nodeName field selector"
            case _:
                return f"nodes may not {action.verb} podcertificaterequests"

    def _decide_named(self, node_name: str, action: Action) -> str:
        """Allow an object that names the node."""
        if not action.name:
            return _NO_NAME
        if self._node_of(action.resource, action.namespace, action.name) == node_name:
            return _ALLOWED
        return f"no relationship found between node '{node_name}' and this object"

    def _decide_token(self, node_name: str, action: Action) -> str:
        """Allow tokens for the service accounts of the node's pods only."""
        if not action.name:
            return "can only create tokens for individual service accounts"
        if action.subresource != "token":
            return "can only create token subresource of serviceaccount"
        return self._decide_referenced(node_name, action)

    def _decide_pods(self, node_name: str, action: Action, selector: FieldSelector) -> str:
        if action.verb != "get":
            if _selects(selector, node_name):
                return _ALLOWED
            if not action.name:
                return "can only list/watch pods with spec.nodeName field selector"
        if not action.name:
            return _NO_NAME
        # A name without a namespace would match other nodes' pods too.
        pods = self._pods_of(node_name, action.namespace) if action.namespace else ()
        if any(pod.metadata.name == action.name for pod in pods):
            return _ALLOWED
        return f"no relationship found between node '{node_name}' and this object"

    def _decide_referenced(self, node_name: str, action: Action) -> str:
        """Allow an object that a pod references, in the namespace of that pod only."""
        if not action.namespace:
            return _NO_NAMESPACE
        if not action.name:
            return _NO_NAME
        references = _REFERENCES[action.resource]
        for pod in self._pods_of(node_name, action.namespace):
            if action.name in references(pod):
                return _ALLOWED
        return f"no relationship found between node '{node_name}' and this object"


def _decide_lease(node_name: str, action: Action) -> str:
    """Allow the node's own lease. NodeRestriction checks the name in the body of a create."""
    if action.subresource or action.verb not in _LEASE_VERBS:
        return "can only get, create, update, patch, or delete a node lease"
    if action.namespace != LEASE_NAMESPACE:
        return f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
    if action.verb != "create" and action.name != node_name:
        return "can only access node lease with the same name as the requesting node"
    return _ALLOWED


def _decide_csi_node(node_name: str, action: Action, _: FieldSelector) -> str:
    """Allow the node's own CSINode. NodeRestriction checks the name in the body of a create."""
    if action.verb not in _OWN_VERBS:
        return "can only get, create, update, patch, or delete a CSINode"
    if action.subresource:
        return "cannot authorize CSINode subresources"
    if action.verb != "create" and action.name != node_name:
        return "can only access CSINode with the same name as the requesting node"
    return _ALLOWED


def _decide_profile(node_name: str, action: Action, selector: FieldSelector) -> str:
    """Allow the profiles of the node's handlers. NodeRestriction checks the body of a create."""
    if action.subresource not in ("", "status"):
        return f"cannot authorize RuntimeProfile subresource {action.subresource}"
    match action.verb:
        case "create":
            return _ALLOWED
        case "get" | "update" | "patch" | "delete":
            if node_of_profile(action.name) == node_name:
                return _ALLOWED
            return "can only access RuntimeProfiles of the requesting node"
        case "watch" | "list":
            if _selects(selector, node_name):
                return _ALLOWED
            return "can only list/watch runtimeprofiles with nodeName field selector"
        case _:
            return (
                "only the following verbs are allowed for a RuntimeProfile: get, watch, list, "
                "create, update, patch, delete"
            )


def _decide_installation(node_name: str, action: Action, selector: FieldSelector) -> str:
    """Allow to read installations, and the status, of which NodeRestriction checks the content."""
    del node_name, selector
    if action.subresource == "status":
        return _ALLOWED if action.verb == "patch" else "can only patch the status"
    if action.subresource:
        return f"cannot authorize RuntimeInstallation subresource {action.subresource}"
    if action.verb in _READ:
        return _ALLOWED
    return "can only read RuntimeInstallations, and patch their status"


def _only_get(action: Action) -> str:
    """Return why an action is not a GET of one object, "" if it is."""
    if action.verb != "get":
        return _ONE_BY_ONE
    return "cannot get subresource" if action.subresource else ""


def _selects(selector: FieldSelector, node_name: str) -> bool:
    return FieldRequirement("spec.nodeName", node_name) in selector.requirements


def _requires_node(requirement: labels.Requirement, node_name: str) -> bool:
    is_equality = requirement.operator in ("=", "==", "in")
    return is_equality and (requirement.key, requirement.values) == (NODE_LABEL, (node_name,))


def _claims_of(pod: Pod) -> set[str]:
    return {claim.name for claim in pod_claims(pod.metadata.name, pod.spec.volumes)}


def _accounts_of(pod: Pod) -> set[str]:
    return {pod.spec.service_account_name}


_REFERENCES: dict[str, Callable[[Pod], set[str]]] = {
    "secrets": secret_names,
    "configmaps": config_map_names,
    "serviceaccounts": _accounts_of,
    "persistentvolumeclaims": _claims_of,
    "resourceclaims": resource_claim_names,
}
