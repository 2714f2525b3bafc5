"""Objects beside pods and nodes that node agents write: CSINodes, ResourceSlices, and others.

The Node authorizer allows agents these writes, but does not see an object's content before it is
created; this plugin checks that each concerns the agent's own node. Part of upstream's plugin
NodeRestriction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from moorage.api.errors import InternalError, NotFoundError
from moorage.api.nodes import Node
from moorage.api.pods import MIRROR_ANNOTATION, Pod
from moorage.api.runtime_group import API_VERSION, profile_name
from moorage.api.runtime_installations import node_manager
from moorage.apiserver.admission.admission_request import refused
from moorage.apiserver.admission.chain import CREATE, DELETE, UPDATE, Scope
from moorage.apiserver.admission.node_restriction import node_name_of
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Attributes

# Field ownership of RuntimeInstallations: what a node agent's write may change of it.
#
# An agent removes its entry by applying a status without it, which works only while its manager
# owns the entry. So no agent may change what others own, nor fill the object with managers.

_Path = tuple[str, ...]
_NODES: _Path = ("f:status", "f:nodes")
_CONTAINERS = frozenset[_Path](
    [("f:status",), ("f:status", "."), _NODES, (*_NODES, ".")],
)
"""What the manager of an agent that applied no entry owns."""


def is_own_ownership(new: Obj, old: Obj, node: str) -> bool:
    """Return whether managed fields differ in those of the node's manager and entry alone.

    The node's manager may own the node's entry only. Other managers may lose that, and gain none.
    """
    after, before = _entries(new), _entries(old)
    manager = node_manager(node)
    present = {_key(entry): entry for entry in before}
    left = {_key(entry): entry for entry in after}
    if len(left) != len(after):
        return False
    others = [entry for entry in before if entry.get("manager") != manager]
    if any(_key(entry) not in left and list(_foreign(entry, node)) for entry in others):
        return False
    for key, entry in left.items():
        former = present.get(key)
        if entry == former:
            continue
        if entry.get("manager") == manager:
            is_fit = _is_of_status(entry) and not list(_foreign(entry, node))
        else:
            is_fit = former is not None and _has_only_lost(entry, former, node)
        if not is_fit:
            return False
    return True


def _entries(installation: Obj) -> list[Obj]:
    return list(installation.get("metadata", {}).get("managedFields") or ())


def _key(entry: Obj) -> tuple[object, ...]:
    return tuple(entry.get(name) for name in ("manager", "operation", "apiVersion", "subresource"))


def _is_of_status(entry: Obj) -> bool:
    return (entry.get("apiVersion"), entry.get("subresource")) == (API_VERSION, "status")


def _has_only_lost(entry: Obj, former: Obj, node: str) -> bool:
    is_same_outside = set(_foreign(entry, node)) == set(_foreign(former, node))
    return is_same_outside and set(_leaves(entry)) <= set(_leaves(former))


def _foreign(entry: Obj, node: str) -> Iterator[_Path]:
    """Yield the fields of an entry beside the node's own, and beside the containers of it."""
    own = (*_NODES, f"k:{msgspec.json.encode({'name': node}).decode()}")
    for path in _leaves(entry):
        if path[: len(own)] != own and path not in _CONTAINERS:
            yield path


def _leaves(entry: Obj) -> Iterator[_Path]:
    return _leaves_of(entry.get("fieldsV1") or {}, ())


def _leaves_of(tree: dict[str, Any], above: _Path) -> Iterator[_Path]:
    for element, inner in tree.items():
        if inner:
            yield from _leaves_of(inner, (*above, element))
        else:
            yield (*above, element)


_CLAIM_STATUS = ("capacity", "conditions", "allocatedResources", "allocatedResourceStatuses")
"""Fields of a claim's status that an agent writes when a volume has grown."""
_SYSTEM_METADATA = ("managedFields", "resourceVersion")

FindUid = Callable[[str, str, str], str | None]
"""(plural, namespace, name) → the UID of the present object, or None."""


class NodeOwnedObjects:
    """Refuses writes of node agents to objects that concern other nodes.

    `find_pod(name, namespace)` returns a pod, `find_node(name)` a node, or None.
    """

    name = "NodeRestriction"
    scope = Scope.of(
        [
            "csinodes.storage.k8s.io",
            "resourceslices.resource.k8s.io",
            "persistentvolumeclaims",
            "podcertificaterequests.certificates.k8s.io",
            "runtimeprofiles.runtime.moorage.dev",
            "runtimeinstallations.runtime.moorage.dev",
        ],
        [CREATE, UPDATE, DELETE],
        ["", "status"],
    )
    mutate = None

    def __init__(
        self,
        find_pod: Callable[[str, str], Pod | None],
        find_node: Callable[[str], Node | None],
        find_uid: FindUid,
    ) -> None:
        self._find_pod = find_pod
        self._find_node = find_node
        self._find_uid = find_uid
        self.validate = self._check
        self._checks: dict[str, Callable[[Attributes, str], None]] = {
            "csinodes.storage.k8s.io": _check_csi_node,
            "resourceslices.resource.k8s.io": _check_slice,
            "persistentvolumeclaims": _check_claim_status,
            "podcertificaterequests.certificates.k8s.io": self._check_certificate_request,
            "runtimeprofiles.runtime.moorage.dev": self._check_profile,
            "runtimeinstallations.runtime.moorage.dev": _check_installation,
        }

    def _check(self, attributes: Attributes) -> None:
        node_name = node_name_of(attributes.request.user)
        if node_name is not None:
            self._checks[attributes.kind.resource](attributes, node_name)

    def _check_certificate_request(self, attributes: Attributes, node_name: str) -> None:
        """Require that a request is for a pod of the node, with the names and UIDs of now.

        Raises ForbiddenError. A UID that differs may mean that the agent's copy lags, so it is
        answered with InternalError, upon which the agent tries again.
        """
        if attributes.operation != CREATE:
            raise refused(attributes, f"unexpected operation {attributes.operation}")
        spec, namespace = (attributes.obj or {}).get("spec", {}), attributes.namespace
        named = spec.get("nodeName", "")
        if named != node_name:
            raise refused(
                attributes,
                f'PodCertificateRequest.Spec.NodeName="{named}", which is not the requesting node '
                f'"{node_name}"',
            )
        node = self._find_node(named)
        if node is None:
            raise NotFoundError.of("nodes", named)
        where = f"{namespace}/{spec.get('podName', '')}"
        about = f'PodCertificateRequest for pod "{where}"'
        if node.metadata.uid != spec.get("nodeUID"):
            raise InternalError(
                f'{about} names node UID "{spec.get("nodeUID", "")}", inconsistent with the '
                f'running node ("{node.metadata.uid}")'
            )
        pod = self._find_pod(spec.get("podName", ""), namespace)
        if pod is None:
            raise NotFoundError.of("pods", spec.get("podName", ""))
        if pod.metadata.uid != spec.get("podUID"):
            raise InternalError(
                f'{about} contains pod UID ("{spec.get("podUID", "")}") which differs from running '
                f'pod "{pod.metadata.uid}"'
            )
        if pod.spec.node_name != node_name:
            raise refused(
                attributes,
                f'pod "{where}" is not running on node "{named}" named in the '
                "PodCertificateRequest",
            )
        if MIRROR_ANNOTATION in pod.metadata.annotations:
            raise refused(attributes, f'pod "{where}" is a mirror pod')
        self._check_account(attributes, pod, spec, about)

    def _check_account(
        self, attributes: Attributes, pod: Pod, spec: Mapping[str, str], about: str
    ) -> None:
        account = spec.get("serviceAccountName", "")
        if account != pod.spec.service_account_name:
            raise refused(
                attributes,
                f'{about} contains serviceAccountName ("{account}") that differs from running pod '
                f'("{pod.spec.service_account_name}")',
            )
        uid = self._find_uid("serviceaccounts", attributes.namespace, account)
        if uid is None:
            raise NotFoundError.of("serviceaccounts", account)
        if uid != spec.get("serviceAccountUID"):
            raise InternalError(
                f'{about} names service account UID "{spec.get("serviceAccountUID", "")}", which '
                f'differs from the running service account ("{uid}")'
            )

    def _check_profile(self, attributes: Attributes, node_name: str) -> None:
        """Require that a profile is the node's, in name, specification and owner."""
        if attributes.operation == DELETE:
            return
        profile = attributes.obj or {}
        meta, spec = profile.get("metadata", {}), profile.get("spec", {})
        named, handler = spec.get("nodeName", ""), spec.get("handler", "")
        if named != node_name or meta.get("name") != profile_name(node_name, handler):
            raise refused(
                attributes,
                f'node "{node_name}" can only write RuntimeProfiles with spec.nodeName set to '
                "itself and the name NODE.HANDLER",
            )
        if attributes.operation != CREATE:
            return
        node = self._find_node(node_name)
        uid = node.metadata.uid if node is not None else ""
        for owner in meta.get("ownerReferences", []):
            if (owner.get("kind"), owner.get("name"), owner.get("uid")) != ("Node", node_name, uid):
                raise refused(
                    attributes,
                    f'node "{node_name}" can only create RuntimeProfiles with an owner reference '
                    "set to itself",
                )


def _check_csi_node(attributes: Attributes, node_name: str) -> None:
    meta = (attributes.obj or {}).get("metadata", {})
    if (attributes.name or meta.get("name")) != node_name:
        raise refused(
            attributes, "can only access CSINode with the same name as the requesting node"
        )


def _check_slice(attributes: Attributes, node_name: str) -> None:
    """Check creations and deletions; the authorizer checks what is written in between."""
    if attributes.operation == UPDATE:
        return
    obj = attributes.obj if attributes.operation == CREATE else attributes.old
    if (obj or {}).get("spec", {}).get("nodeName") != node_name:
        verb = "create" if attributes.operation == CREATE else "delete"
        raise refused(
            attributes,
            f"can only {verb} ResourceSlice with the same NodeName as the requesting node",
        )


def _check_claim_status(attributes: Attributes, node_name: str) -> None:
    if attributes.subresource != "status":
        raise refused(attributes, "may only update PVC status")
    if _rest(attributes.obj) != _rest(attributes.old):
        raise refused(
            attributes,
            f'node "{node_name}" is not allowed to update fields other than status.quantity and '
            "status.conditions",
        )


def _check_installation(attributes: Attributes, node_name: str) -> None:
    """Require that a status differs in the node's own entry alone."""
    if attributes.subresource != "status" or attributes.operation != UPDATE:
        raise refused(attributes, "may only update the status of RuntimeInstallations")
    if _without_entry(attributes.obj, node_name) != _without_entry(attributes.old, node_name):
        raise refused(
            attributes,
            f'node "{node_name}" can only write its own entry in status.nodes of '
            "RuntimeInstallations",
        )
    if not is_own_ownership(attributes.obj or {}, attributes.old or {}, node_name):
        raise refused(
            attributes,
            f'node "{node_name}" can only own its own entry in status.nodes of '
            f'RuntimeInstallations, as field manager "{node_manager(node_name)}"',
        )


def _without_entry(installation: Obj | None, node_name: str) -> Obj:
    """Return an installation without what a node may write, and what the server writes."""
    installation = installation or {}
    meta = {k: v for k, v in installation.get("metadata", {}).items() if k not in _SYSTEM_METADATA}
    status = dict(installation.get("status", {}))
    nodes = [entry for entry in status.pop("nodes", []) if entry.get("name") != node_name]
    return {**installation, "metadata": meta, "status": status, "nodes": nodes}


def _rest(claim: Obj | None) -> Obj:
    """Return a claim without what an agent may write, and what the server writes."""
    claim = claim or {}
    meta = {k: v for k, v in claim.get("metadata", {}).items() if k not in _SYSTEM_METADATA}
    status = {k: v for k, v in claim.get("status", {}).items() if k not in _CLAIM_STATUS}
    return {**claim, "metadata": meta, "status": status}
