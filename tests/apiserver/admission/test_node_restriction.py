"""A node agent writes about its own node and its own pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.claims.classes import FINALIZER, NODE_LABEL
from moorage.api.errors import ForbiddenError, NotFoundError
from moorage.api.nodes import Node
from moorage.api.pods import MIRROR_ANNOTATION, Pod
from moorage.apiserver.admission.node_restriction import NodeRestriction, node_name_of
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.core import SERVICE_ACCOUNT
from moorage.apiserver.registry.kinds.lease import LEASE
from moorage.apiserver.registry.kinds.node import NODE
from moorage.apiserver.registry.kinds.persistentvolume import PERSISTENT_VOLUME
from moorage.apiserver.registry.kinds.pod import POD
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import User
from tests.api.claims.objects import volume_json
from tests.apiserver.admission.writes import admit, pod, write

AGENT = User("system:node:n1", groups=("system:nodes", "system:authenticated"))


def token_volume(*audiences: str) -> dict[str, Any]:
    sources = [
        {"serviceAccountToken": {"path": "t", "audience": audience}} for audience in audiences
    ]
    return {"name": "token", "projected": {"sources": sources}}


PODS: dict[str, Any] = {
    "mine": {
        "metadata": {"uid": "1"},
        "spec": {
            "nodeName": "n1",
            "serviceAccountName": "sa",
            "volumes": [{"name": "e", "emptyDir": {}}, token_volume("", "vault")],
        },
    },
    "vault-only": {
        "metadata": {"uid": "3"},
        "spec": {"nodeName": "n1", "serviceAccountName": "sa", "volumes": [token_volume("vault")]},
    },
    "other": {"metadata": {"uid": "2"}, "spec": {"nodeName": "n2", "serviceAccountName": "sa"}},
}
NODES = {"n1": "uid-1", "n2": "uid-2"}


def find_pod(name: str, namespace: str) -> Pod | None:
    result = PODS.get(name) if namespace == "default" else None
    return None if result is None else msgspec.convert(result, Pod)


def find_node(name: str) -> Node | None:
    if name not in NODES:
        return None
    return msgspec.convert({"metadata": {"name": name, "uid": NODES[name]}}, Node)


def is_allowed(user: User, action: Action) -> bool:
    """Grants the agent one audience for one account, as RBAC can."""
    granted = Action(
        verb="request-serviceaccounts-token-audience", resource="granted", namespace="default",
        name="sa",
    )  # fmt: skip
    return user == AGENT and action == granted


PLUGIN = NodeRestriction(find_pod, find_node, is_allowed)


def check(kind: Kind, obj: Obj | None = None, **about: Any) -> None:
    admit(PLUGIN, write(kind, obj, **{"user": AGENT, **about}))


def refusal_of(kind: Kind, obj: Obj | None = None, **about: Any) -> str:
    with pytest.raises(ForbiddenError) as refusal:
        check(kind, obj, **about)
    return refusal.value.message.partition(" is forbidden: ")[2]


@pytest.mark.parametrize(
    ("user", "node"),
    [
        (AGENT, "n1"),
        (User("system:node:n1"), None),
        (User("alice", groups=("system:nodes",)), None),
        (User("system:serviceaccount:a:b"), None),
    ],
)
def test_an_agent_is_known_by_name_and_group(user: User, node: str | None) -> None:
    assert node_name_of(user) == node


def test_others_are_not_looked_at() -> None:
    check(POD, pod(), user=User("alice"))
    check(NODE, {"metadata": {"name": "n2"}}, user=User("system:node:n1"))


OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1", "controller": True}


def mirror(
    spec: dict[str, Any] | None = None, owners: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    return pod(
        {"nodeName": "n1", **(spec or {})},
        annotations={MIRROR_ANNOTATION: "x"},
        ownerReferences=[OWNER] if owners is None else owners,
    )


def test_an_agent_shows_its_static_pods() -> None:
    check(POD, mirror())


@pytest.mark.parametrize(
    ("obj", "why"),
    [
        (
            pod({"nodeName": "n1"}),
            f'pod does not have "{MIRROR_ANNOTATION}" annotation, node "n1" can only create '
            "mirror pods",
        ),
        (
            mirror({"nodeName": "n2"}),
            'node "n1" can only create pods with spec.nodeName set to itself',
        ),
        (
            mirror(owners=[]),
            'node "n1" can only create pods with an owner reference set to itself',
        ),
        (
            mirror(owners=[OWNER, OWNER]),
            'node "n1" can only create pods with a single owner reference set to itself',
        ),
        (
            mirror(owners=[OWNER | {"name": "n2"}]),
            'node "n1" can only create pods with an owner reference set to itself',
        ),
        (
            mirror(owners=[OWNER | {"kind": "Pod"}]),
            'node "n1" can only create pods with an owner reference set to itself',
        ),
        (
            mirror(owners=[OWNER | {"controller": False}]),
            'node "n1" can only create pods with a controller owner reference set to itself',
        ),
        (
            mirror(owners=[OWNER | {"blockOwnerDeletion": True}]),
            'node "n1" must not set blockOwnerDeletion on an owner reference',
        ),
        (
            mirror(owners=[OWNER | {"uid": "uid-0"}]),
            "node n1 UID mismatch: expected uid-1 got uid-0",
        ),
        (
            mirror({"serviceAccountName": "sa"}),
            'node "n1" can not create pods that reference a service account',
        ),
        (
            mirror({"imagePullSecrets": [{"name": "s"}]}),
            'node "n1" can not create pods that reference secrets',
        ),
        (
            mirror({"volumes": [{"name": "v", "configMap": {"name": "c"}}]}),
            'node "n1" can not create pods that reference configmaps',
        ),
        (
            mirror({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}),
            'node "n1" can not create pods that reference persistentvolumeclaims',
        ),
    ],
)
def test_a_mirror_pod_is_the_nodes_and_refers_to_nothing(obj: Obj, why: str) -> None:
    assert refusal_of(POD, obj) == why


def test_a_mirror_pod_of_a_node_that_is_gone_is_a_404() -> None:
    ghost = User("system:node:n9", groups=("system:nodes",))
    owner = OWNER | {"name": "n9"}
    with pytest.raises(NotFoundError, match='nodes "n9" not found'):
        check(POD, mirror({"nodeName": "n9"}, owners=[owner]), user=ghost)


@pytest.mark.parametrize(
    ("operation", "subresource", "why"),
    [
        ("DELETE", "", 'node "n1" can only delete pods with spec.nodeName set to itself'),
        (
            "UPDATE",
            "status",
            'node "n1" can only update pod status for pods with spec.nodeName set to itself',
        ),
    ],
)
def test_an_agent_ends_and_reports_its_own_pods_only(
    operation: str, subresource: str, why: str
) -> None:
    new = None if operation == "DELETE" else pod({"nodeName": "n1"})
    about: dict[str, Any] = {"operation": operation, "subresource": subresource}
    check(POD, new, old=pod({"nodeName": "n1"}), **about)
    assert refusal_of(POD, new, old=pod({"nodeName": "n2"}), **about) == why
    assert refusal_of(POD, new, old=pod(), **about) == why


def test_an_agent_may_not_relabel_its_pods() -> None:
    old = pod({"nodeName": "n1"}, labels={"app": "a"})
    new = pod({"nodeName": "n1"}, labels={"app": "b"})
    why = refusal_of(POD, new, old=old, operation="UPDATE", subresource="status")
    assert why == 'node "n1" cannot update labels through pod status'


@pytest.mark.parametrize(
    ("operation", "subresource"),
    [
        ("UPDATE", ""),
        ("UPDATE", "ephemeralcontainers"),
        ("UPDATE", "binding"),
        ("UPDATE", "resize"),
    ],
)
def test_everything_else_about_pods_is_refused(operation: str, subresource: str) -> None:
    own = pod({"nodeName": "n1"})
    why = refusal_of(POD, own, old=own, operation=operation, subresource=subresource)
    assert why == (
        f'unexpected operation "{operation}", node "n1" can only create and delete mirror pods'
    )


def test_an_agent_evicts_its_own_pods_only() -> None:
    def evict(name: str) -> str:
        obj = {"metadata": {"name": name}}
        return refusal_of(POD, obj, subresource="eviction")

    check(POD, {"metadata": {"name": "mine"}}, subresource="eviction")
    expected = 'node "n1" can only evict pods with spec.nodeName set to itself'
    assert evict("other") == evict("ghost") == expected


def node(name: str = "n1", labels: dict[str, str] | None = None, **spec: Any) -> Obj:
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_another_node_is_none_of_its_business(operation: str) -> None:
    obj = None if operation == "DELETE" else node("n2")
    old = None if operation == "CREATE" else node("n2")
    why = refusal_of(NODE, obj, old=old, operation=operation)
    assert why == 'node "n1" is not allowed to modify node "n2"'


@pytest.mark.parametrize(
    ("label", "is_allowed"),
    [
        ("disk", True),
        ("example.com/disk", True),
        ("kubernetes.io/hostname", True),
        ("topology.kubernetes.io/zone", True),
        ("node.kubernetes.io/anything", True),
        ("deep.kubelet.kubernetes.io/x", True),
        ("node-restriction.kubernetes.io/secure", False),
        ("eu.node-restriction.kubernetes.io/secure", False),
        ("node-role.kubernetes.io/control-plane", False),
        ("kubernetes.io/other", False),
        ("k8s.io/other", False),
        ("notkubernetes.io/x", True),
    ],
)
def test_labels_that_steer_pods_are_not_the_agents_to_set(label: str, is_allowed: bool) -> None:
    labelled = node(labels={label: "x"})
    update: dict[str, Any] = {"old": node(), "operation": "UPDATE"}
    if is_allowed:
        check(NODE, labelled)
        check(NODE, labelled, **update)
        check(NODE, labelled, **update, subresource="status")
        return
    created = refusal_of(NODE, labelled)
    assert created == f'node "n1" is not allowed to set the following labels: {label}'
    modified = f'node "n1" is not allowed to modify labels: {label}'
    assert refusal_of(NODE, labelled, **update) == modified
    assert refusal_of(NODE, labelled, **update, subresource="status") == modified


def test_a_label_that_was_there_may_stay_but_not_go() -> None:
    secure = {"node-restriction.kubernetes.io/secure": "yes"}
    check(NODE, node(labels=secure), old=node(labels=secure), operation="UPDATE")
    why = refusal_of(NODE, node(), old=node(labels=secure), operation="UPDATE")
    assert why.endswith("modify labels: node-restriction.kubernetes.io/secure")


@pytest.mark.parametrize("subresource", ["", "status"])
def test_taints_and_owners_are_not_the_agents_to_change(subresource: str) -> None:
    about: dict[str, Any] = {"operation": "UPDATE", "subresource": subresource, "old": node()}
    tainted = node(taints=[{"key": "a", "effect": "NoSchedule"}])
    assert refusal_of(NODE, tainted, **about) == 'node "n1" is not allowed to modify taints'
    owned = node()
    owned["metadata"]["ownerReferences"] = [{"name": "x"}]
    why = refusal_of(NODE, owned, **about)
    assert why == 'node "n1" is not allowed to modify ownerReferences'


def test_a_node_registers_with_its_taints() -> None:
    check(NODE, node(taints=[{"key": "a", "effect": "NoSchedule"}]))


def token_request(*audiences: str, **bound: str) -> Obj:
    spec: Obj = {"boundObjectRef": {"apiVersion": "v1", **bound}} if bound else {}
    return {"spec": {**spec, **({"audiences": list(audiences)} if audiences else {})}}


@pytest.mark.parametrize(
    ("bound", "why"),
    [
        ({}, "node requested token not bound to a pod"),
        ({"kind": "Node", "name": "n1", "uid": "uid-1"}, "node requested token not bound to a pod"),
        ({"kind": "Pod", "uid": "1"}, "node requested token not bound to a pod"),
        ({"kind": "Pod", "name": "mine", "uid": "1", "apiVersion": "v2"},
         "node requested token not bound to a pod"),
        ({"kind": "Pod", "name": "mine"},
         "node requested token with a pod binding without a uid"),
        ({"kind": "Pod", "name": "mine", "uid": "9"},
         "the UID in the bound object reference (9) does not match the UID in record. The object "
         "might have been deleted and then recreated"),
        ({"kind": "Pod", "name": "other", "uid": "2"},
         "node requested token bound to a pod scheduled on a different node"),
    ],
)  # fmt: skip
def test_tokens_are_bound_to_its_pods(bound: dict[str, str], why: str) -> None:
    assert refusal_of(SERVICE_ACCOUNT, token_request(**bound), name="sa",
                      subresource="token") == why  # fmt: skip


def test_a_token_for_a_pod_that_does_not_exist_is_not_found() -> None:
    request = token_request(kind="Pod", name="ghost", uid="1")
    with pytest.raises(NotFoundError) as refusal:
        check(SERVICE_ACCOUNT, request, name="sa", subresource="token")
    assert refusal.value.message == 'pods "ghost" not found'


@pytest.mark.parametrize("audiences", [(), ("vault",), ("granted",)])
def test_a_token_for_its_own_pod_is_given(audiences: tuple[str, ...]) -> None:
    request = token_request(*audiences, kind="Pod", name="mine", uid="1")
    check(SERVICE_ACCOUNT, request, name="sa", subresource="token")


def of_audience(audience: str) -> str:
    return (
        f'audience "{audience}" not found in pod spec volume, system:node:n1 is not authorized to '
        "request tokens for this audience"
    )


@pytest.mark.parametrize(
    ("pod_name", "uid", "account", "audiences", "why"),
    [
        ("mine", "1", "sa", ("bank",), of_audience("bank")),
        ("mine", "1", "other", ("granted",), of_audience("granted")),
        ("vault-only", "3", "sa", (), of_audience("")),
        ("mine", "1", "sa", ("", "vault"), "node may only request 0 or 1 audiences"),
    ],
)
def test_audiences_are_those_of_the_pods_volumes(
    pod_name: str, uid: str, account: str, audiences: tuple[str, ...], why: str
) -> None:
    request = token_request(*audiences, kind="Pod", name=pod_name, uid=uid)
    assert refusal_of(SERVICE_ACCOUNT, request, name=account, subresource="token") == why


def lease(name: str) -> Obj:
    return {"metadata": {"name": name}}


def test_an_agents_lease_is_its_nodes() -> None:
    for operation in ("CREATE", "UPDATE", "DELETE"):
        check(LEASE, lease("n1"), operation=operation, namespace="kube-node-lease")
    assert refusal_of(LEASE, lease("n2"), namespace="kube-node-lease") == (
        "can only access node lease with the same name as the requesting node"
    )
    # A deletion has no body, and where there is one the name on the URL decides.
    about = {"operation": "DELETE", "namespace": "kube-node-lease"}
    check(LEASE, None, name="n1", **about)
    for body in (None, lease("n1")):
        assert refusal_of(LEASE, body, name="n2", **about).startswith("can only access node lease")
    assert refusal_of(LEASE, lease("n1")) == (
        'can only access leases in the "kube-node-lease" system namespace'
    )


@pytest.mark.parametrize(
    "label",
    [
        "kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os",
        "beta.kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region", "node.kubernetes.io/windows-build",
    ],
)  # fmt: skip
def test_every_label_that_agents_report_is_theirs_to_set(label: str) -> None:
    check(NODE, node(labels={label: "x"}))
    check(NODE, node(labels={label: "x"}), old=node(), operation="UPDATE")
    # Another name under the same domain is not, unless the domain is the agents'.
    domain = label.partition("/")[0]
    other = node(labels={f"{domain}/made-up": "x"})
    if domain in ("node.kubernetes.io",):
        check(NODE, other)
    else:
        assert "not allowed to set the following labels" in refusal_of(NODE, other)


def stored_volume(node: str = "n1", **more: Any) -> Obj:
    finalizers = ("kubernetes.io/pv-protection", FINALIZER)
    return volume_json(labels={NODE_LABEL: node}, finalizers=finalizers, **more)


def without_ours(volume: Obj, **metadata: Any) -> Obj:
    meta = {**volume["metadata"], "finalizers": ["kubernetes.io/pv-protection"], **metadata}
    return {**volume, "metadata": meta}


def test_an_agent_lets_go_of_a_volume_of_its_node() -> None:
    old = stored_volume()
    new = without_ours(old, managedFields=[{}], resourceVersion="9")
    check(PERSISTENT_VOLUME, new, old=old, operation="UPDATE")
    alone = volume_json(labels={NODE_LABEL: "n1"}, finalizers=(FINALIZER,))
    bare = {key: value for key, value in alone["metadata"].items() if key != "finalizers"}
    check(PERSISTENT_VOLUME, {**alone, "metadata": bare}, old=alone, operation="UPDATE")


@pytest.mark.parametrize(
    "new",
    [
        stored_volume(policy="Delete"),
        without_ours(stored_volume(policy="Delete")),
        without_ours(stored_volume(), labels={NODE_LABEL: "n2"}),
        without_ours(stored_volume(), annotations={"a": "b"}),
        without_ours(stored_volume(), finalizers=[FINALIZER]),
        without_ours(stored_volume(), finalizers=[]),
        without_ours(stored_volume(), ownerReferences=[{"uid": "x"}]),
        without_ours(stored_volume(phase="Released")),
    ],
)
def test_and_changes_nothing_else_of_it(new: Obj) -> None:
    message = refusal_of(PERSISTENT_VOLUME, new, old=stored_volume(), operation="UPDATE")
    assert message == f'node "n1" can only remove the finalizer "{FINALIZER}" from a volume'


def test_nor_anything_of_a_volume_of_another_node() -> None:
    old = stored_volume("n2")
    message = refusal_of(PERSISTENT_VOLUME, without_ours(old), old=old, operation="UPDATE")
    assert message == 'node "n1" can only let go of volumes that it has itself'
