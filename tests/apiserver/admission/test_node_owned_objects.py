"""A node agent writes only objects that concern its own node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from moorage.api.errors import ForbiddenError, InternalError, NotFoundError, StatusError
from moorage.api.nodes import Node
from moorage.api.pods import MIRROR_ANNOTATION, Pod
from moorage.apiserver.admission.node_owned_objects import NodeOwnedObjects
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.csi import CSI_NODE
from moorage.apiserver.registry.kinds.persistentvolumeclaim import PERSISTENT_VOLUME_CLAIM
from moorage.apiserver.registry.kinds.podcertificaterequest import POD_CERTIFICATE_REQUEST
from moorage.apiserver.registry.kinds.resourceslice import RESOURCE_SLICE
from moorage.apiserver.registry.request import User
from tests.api.claims.objects import claim_json
from tests.apiserver.admission.writes import admit, write

AGENT = User("system:node:n1", groups=("system:nodes", "system:authenticated"))
NODES = {"n1": "node-1", "n2": "node-2"}
PODS: dict[str, Any] = {
    "mine": {"metadata": {"uid": "pod-1"}, "spec": {"nodeName": "n1", "serviceAccountName": "sa"}},
    "mirror": {
        "metadata": {"uid": "pod-2", "annotations": {MIRROR_ANNOTATION: "x"}},
        "spec": {"nodeName": "n1"},
    },
    "other": {"metadata": {"uid": "pod-3"}, "spec": {"nodeName": "n2", "serviceAccountName": "sa"}},
    "homeless": {
        "metadata": {"uid": "pod-4"},
        "spec": {"nodeName": "n1", "serviceAccountName": "gone"},
    },
}
REQUEST = {
    "nodeName": "n1", "nodeUID": "node-1", "podName": "mine", "podUID": "pod-1",
    "serviceAccountName": "sa", "serviceAccountUID": "account-1",
}  # fmt: skip


def find_pod(name: str, namespace: str) -> Pod | None:
    wire = PODS.get(name) if namespace == "default" else None
    return None if wire is None else msgspec.convert(wire, Pod)


def find_node(name: str) -> Node | None:
    if name not in NODES:
        return None
    return msgspec.convert({"metadata": {"name": name, "uid": NODES[name]}}, Node)


def find_uid(plural: str, namespace: str, name: str) -> str | None:
    present = {("serviceaccounts", "default", "sa"): "account-1"}
    return present.get((plural, namespace, name))


PLUGIN = NodeOwnedObjects(find_pod, find_node, find_uid)


def check(kind: Kind, obj: Obj | None = None, **about: Any) -> None:
    admit(PLUGIN, write(kind, obj, **{"user": AGENT, **about}))


def refusal_of(kind: Kind, obj: Obj | None = None, **about: Any) -> str:
    with pytest.raises(ForbiddenError) as refusal:
        check(kind, obj, **about)
    return refusal.value.message.partition(" is forbidden: ")[2]


def named(name: str, **more: Any) -> Obj:
    return {"metadata": {"name": name}, **more}


def test_others_are_not_looked_at() -> None:
    check(CSI_NODE, named("n2"), user=User("alice"))


def test_a_csi_node_has_the_name_of_the_agents_node() -> None:
    for operation in ("CREATE", "UPDATE"):
        check(CSI_NODE, named("n1"), operation=operation)
        assert refusal_of(CSI_NODE, named("n2"), operation=operation) == (
            "can only access CSINode with the same name as the requesting node"
        )
    check(CSI_NODE, old=named("n1"), operation="DELETE")
    assert refusal_of(CSI_NODE, old=named("n2"), operation="DELETE")


def test_slices_that_are_created_and_deleted_are_of_the_agents_node() -> None:
    mine, other = (named("s", spec={"nodeName": name}) for name in ("n1", "n2"))
    check(RESOURCE_SLICE, mine)
    check(RESOURCE_SLICE, old=mine, operation="DELETE")
    for foreign in (other, named("s", spec={"allNodes": True})):
        assert refusal_of(RESOURCE_SLICE, foreign) == (
            "can only create ResourceSlice with the same NodeName as the requesting node"
        )
        assert refusal_of(RESOURCE_SLICE, old=foreign, operation="DELETE") == (
            "can only delete ResourceSlice with the same NodeName as the requesting node"
        )


def test_of_a_claim_the_size_and_conditions_are_written() -> None:
    old = claim_json(volume="v", phase="Bound")
    grown = {
        **old,
        "metadata": {**old["metadata"], "resourceVersion": "9", "managedFields": [{}]},
        "status": {**old["status"], "capacity": {"storage": "2Gi"}, "conditions": [{"type": "X"}]},
    }
    check(PERSISTENT_VOLUME_CLAIM, grown, old=old, operation="UPDATE", subresource="status")


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"phase": "Lost"}},
        {"metadata": {"name": "data", "labels": {"a": "b"}}},
        {"spec": {"volumeName": "other"}},
    ],
)
def test_and_nothing_else_of_it(change: dict[str, Any]) -> None:
    old = claim_json(volume="v", phase="Bound")
    about = {"old": old, "operation": "UPDATE"}
    message = refusal_of(PERSISTENT_VOLUME_CLAIM, {**old, **change}, subresource="status", **about)
    assert message == (
        'node "n1" is not allowed to update fields other than status.quantity and status.conditions'
    )
    assert refusal_of(PERSISTENT_VOLUME_CLAIM, old, **about) == "may only update PVC status"


def certificate_request(**changes: str) -> Obj:
    return named("r", spec={**REQUEST, **changes})


def test_an_agent_requests_certificates_for_its_pods() -> None:
    check(POD_CERTIFICATE_REQUEST, certificate_request())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"nodeName": "n2"}, ForbiddenError,
         'PodCertificateRequest.Spec.NodeName="n2", which is not the requesting node "n1"'),
        ({"nodeUID": "x"}, InternalError,
         'PodCertificateRequest for pod "default/mine" names node UID "x", inconsistent with the '
         'running node ("node-1")'),
        ({"podName": "gone"}, NotFoundError, 'pods "gone" not found'),
        ({"podUID": "x"}, InternalError,
         'PodCertificateRequest for pod "default/mine" contains pod UID ("x") which differs from '
         'running pod "pod-1"'),
        ({"podName": "other", "podUID": "pod-3"}, ForbiddenError,
         'pod "default/other" is not running on node "n1" named in the PodCertificateRequest'),
        ({"podName": "mirror", "podUID": "pod-2"}, ForbiddenError,
         'pod "default/mirror" is a mirror pod'),
        ({"serviceAccountName": "admin"}, ForbiddenError,
         'PodCertificateRequest for pod "default/mine" contains serviceAccountName ("admin") that '
         'differs from running pod ("sa")'),
        ({"podName": "homeless", "podUID": "pod-4", "serviceAccountName": "gone"}, NotFoundError,
         'serviceaccounts "gone" not found'),
        ({"serviceAccountUID": "x"}, InternalError,
         'PodCertificateRequest for pod "default/mine" names service account UID "x", which '
         'differs from the running service account ("account-1")'),
    ],
)  # fmt: skip
def test_and_for_no_others(changes: dict[str, str], error: type[StatusError], message: str) -> None:
    with pytest.raises(error) as refusal:
        check(POD_CERTIFICATE_REQUEST, certificate_request(**changes))
    assert refusal.value.message.endswith(message)


def test_a_request_is_not_changed_by_its_agent() -> None:
    message = refusal_of(POD_CERTIFICATE_REQUEST, certificate_request(), operation="UPDATE")
    assert message == "unexpected operation UPDATE"


_MY_PROFILE = {
    "metadata": {
        "name": "n1.crun",
        "ownerReferences": [{"kind": "Node", "name": "n1", "uid": "node-1"}],
    },
    "spec": {"nodeName": "n1", "handler": "crun"},
}


def _profile_write(profile: Obj, operation: str = "CREATE") -> Any:
    """A write as the plugin sees it; the kind is a custom resource, which has no module."""
    kind = SimpleNamespace(
        resource="runtimeprofiles.runtime.moorage.dev",
        plural="runtimeprofiles",
        group="runtime.moorage.dev",
    )
    return SimpleNamespace(
        kind=kind,
        operation=operation,
        obj=profile,
        name=profile["metadata"]["name"],
        request=SimpleNamespace(user=AGENT),
    )


def test_a_profile_is_of_the_agents_node_in_name_specification_and_owner() -> None:
    PLUGIN.validate(_profile_write(_MY_PROFILE))
    PLUGIN.validate(_profile_write(_MY_PROFILE, "UPDATE"))
    other_spec = _MY_PROFILE | {"spec": {"nodeName": "n2", "handler": "crun"}}
    other_name = _MY_PROFILE | {"metadata": {"name": "n2.crun"}}
    other_owner = _MY_PROFILE | {
        "metadata": {
            "name": "n1.crun",
            "ownerReferences": [{"kind": "Node", "name": "n1", "uid": "node-2"}],
        }
    }
    for profile in (other_spec, other_name, other_owner):
        with pytest.raises(ForbiddenError, match="can only"):
            PLUGIN.validate(_profile_write(profile))
    with pytest.raises(ForbiddenError, match="the name NODE"):
        PLUGIN.validate(_profile_write(other_spec, "UPDATE"))


def _installation(*entries: Obj, **status: Any) -> Obj:
    return {
        "metadata": {"name": "i", "resourceVersion": "1"},
        "spec": {"handler": "h"},
        "status": {"nodes": list(entries), **status},
    }


def _installation_write(
    before: Obj, after: Obj, *, operation: str = "UPDATE", subresource: str = "status"
) -> Any:
    kind = SimpleNamespace(
        resource="runtimeinstallations.runtime.moorage.dev",
        plural="runtimeinstallations",
        group="runtime.moorage.dev",
    )
    return SimpleNamespace(
        kind=kind,
        operation=operation,
        subresource=subresource,
        obj=after,
        old=before,
        name="i",
        request=SimpleNamespace(user=AGENT),
    )


_OTHER = {"name": "n2", "phase": "Installed"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_installation(_OTHER), _installation(_OTHER, {"name": "n1", "phase": "Installed"})),
        (_installation({"name": "n1", "phase": "Failed"}, _OTHER), _installation(_OTHER)),
        ({"metadata": {}, "status": {}}, {"metadata": {}, "status": {"nodes": [{"name": "n1"}]}}),
    ],
)
def test_an_agent_writes_its_own_entry_of_an_installation(before: Obj, after: Obj) -> None:
    fields = _managed("n1", "n1")
    after["metadata"] = {**after["metadata"], "resourceVersion": "2", "managedFields": [fields]}
    PLUGIN.validate(_installation_write(before, after))


def _managed(manager: str, *entries: str, **more: Any) -> Obj:
    """Return the managed fields of a node's manager, which owns these entries."""
    owned: Obj = {f'k:{{"name":"{entry}"}}': {".": {}, "f:name": {}} for entry in entries}
    tree = {"f:status": {"f:nodes": owned}}
    return {
        "manager": f"moorage-node-{manager}", "operation": "Apply", "subresource": "status",
        "apiVersion": "runtime.moorage.dev/v1alpha1", "fieldsV1": tree, **more,
    }  # fmt: skip


def _owned_write(before: list[Obj], after: list[Obj]) -> Any:
    old, new = _installation(_OTHER), _installation(_OTHER)
    old["metadata"]["managedFields"], new["metadata"]["managedFields"] = before, after
    return _installation_write(old, new)


_ADMIN = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:handler": {}}}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([_ADMIN], [_ADMIN, _managed("n1", "n1")]),
        ([_managed("n2", "n2"), _managed("n1", "n1")], [_managed("n2", "n2")]),
        ([_managed("n2", "n2", "n1")], [_managed("n2", "n2"), _managed("n1", "n1")]),
        ([_managed("x", "n1")], [_managed("n1", "n1")]),
        ([], [_managed("n1")]),
        ([_managed("n1", "n1")], [{**_managed("n1"), "fieldsV1": {"f:status": {}}}]),
    ],
)
def test_an_agent_owns_its_own_entry(before: list[Obj], after: list[Obj]) -> None:
    PLUGIN.validate(_owned_write(before, after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([_managed("n2", "n2")], []),
        ([_managed("n2", "n2")], [_managed("n2", "n2", "n1")]),
        ([_managed("n2", "n2")], [_managed("n2")]),
        ([], [_managed("x", "n1")]),
        ([], [_managed("n1", "n1", "n2")]),
        ([], [_managed("n1", "n1"), _managed("n1", "n1", apiVersion="v2")]),
        ([], [_managed("n1", "n1"), _managed("n1", "n1")]),
        ([], [{**_managed("n1"), "fieldsV1": _ADMIN["fieldsV1"]}]),
        ([_ADMIN], [{**_ADMIN, "fieldsV1": {"f:spec": {"f:maxUnavailable": {}}}}]),
        ([_ADMIN], [{}]),
    ],
)
def test_an_agent_leaves_what_others_own(before: list[Obj], after: list[Obj]) -> None:
    with pytest.raises(ForbiddenError, match='as field manager "moorage-node-n1"'):
        PLUGIN.validate(_owned_write(before, after))


@pytest.mark.parametrize(
    "after",
    [
        _installation(),
        _installation({"name": "n2", "phase": "Failed"}),
        _installation(_OTHER, {"name": "n3"}),
        _installation(_OTHER, allowed=["n1"]),
        _installation(_OTHER) | {"spec": {"handler": "g"}},
        _installation(_OTHER) | {"metadata": {"name": "i", "finalizers": ["x"]}},
    ],
)
def test_an_agent_writes_nothing_else_of_an_installation(after: Obj) -> None:
    with pytest.raises(ForbiddenError, match="can only write its own entry"):
        PLUGIN.validate(_installation_write(_installation(_OTHER), after))


def test_an_agent_does_not_touch_an_installation_itself() -> None:
    for operation, subresource in (("CREATE", ""), ("UPDATE", ""), ("DELETE", "")):
        write = _installation_write(
            _installation(), _installation(), operation=operation, subresource=subresource
        )
        with pytest.raises(ForbiddenError, match="may only update the status"):
            PLUGIN.validate(write)
