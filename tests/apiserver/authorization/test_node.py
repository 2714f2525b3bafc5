"""What node agents may do: read what their pods need, write about themselves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.claims.classes import NODE_LABEL
from moorage.api.fields import EVERYTHING, parse
from moorage.api.labels import parse as parse_labels
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from moorage.api.pods import Pod
from moorage.apiserver.authorization import NodeAuthorizer
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import User
from tests.api.claims.objects import claim_json, volume_json

AGENT = User("system:node:n1", groups=("system:nodes",))


def in_ns(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"}}


def pod(name: str, **spec: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, Pod)


PODS = [
    pod("plain", serviceAccountName="sa", imagePullSecrets=[{"name": "pull"}]),
    pod(
        "volumes",
        volumes=[
            {"name": "a", "secret": {"secretName": "s-volume"}},
            {"name": "b", "configMap": {"name": "c-volume"}},
            {"name": "p", "projected": {"sources": [
                {"secret": {"name": "s-projected"}}, {"configMap": {"name": "c-projected"}}]}},
        ],
    ),
    pod(
        "storage",
        volumes=[
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        ],
    ),
    msgspec.convert(
        {
            "metadata": {"name": "devices"},
            "spec": {"resourceClaims": [
                {"name": "a", "resourceClaimName": "gpu"},
                {"name": "b", "resourceClaimTemplateName": "template"}]},
            "status": {"resourceClaimStatuses": [
                {"name": "b", "resourceClaimName": "devices-b-x"}]},
        },
        Pod,
    ),
    pod(
        "environment",
        initContainers=[{"name": "i", "envFrom": [{"secretRef": {"name": "s-from"}},
                                                  {"configMapRef": {"name": "c-from"}}]}],
        containers=[{"name": "c", "env": [
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s-key", "key": "k"}}},
            {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c-key", "key": "k"}}}]}],
        ephemeralContainers=[{"name": "e", "envFrom": [{"secretRef": {"name": "s-debug"}}]}],
    ),
]  # fmt: skip
CLAIMS = {
    ("data", "ns"): claim_json(volume="pv-data"),
    ("storage-scratch", "ns"): claim_json("storage-scratch", volume="pv-scratch"),
    ("unused", "ns"): claim_json("unused", volume="pv-unused"),
    ("loose", "ns"): claim_json("loose", volume="pv-elsewhere"),
}
VOLUMES = {
    "pv-data": volume_json("pv-data", claim=in_ns("data")),
    "pv-scratch": volume_json("pv-scratch", claim=in_ns("storage-scratch")),
    "pv-unused": volume_json("pv-unused", claim=in_ns("unused")),
    "pv-loose": volume_json("pv-loose", claim=in_ns("data")),
    "pv-free": volume_json("pv-free"),
    "pv-here": volume_json("pv-here", labels={NODE_LABEL: "n1"}),
    "pv-there": volume_json("pv-there", labels={NODE_LABEL: "n2"}),
}


def find_claim(name: str, namespace: str) -> PersistentVolumeClaim | None:
    wire = CLAIMS.get((name, namespace))
    return None if wire is None else msgspec.convert(wire, PersistentVolumeClaim)


def find_volume(name: str) -> PersistentVolume | None:
    wire = VOLUMES.get(name)
    return None if wire is None else msgspec.convert(wire, PersistentVolume)


NODES_OF = {
    ("volumeattachments", "", "attached"): "n1",
    ("volumeattachments", "", "attached-there"): "n2",
    ("resourceslices", "", "slice"): "n1",
    ("resourceslices", "", "slice-there"): "n2",
    ("podcertificaterequests", "ns", "request"): "n1",
    ("podcertificaterequests", "ns", "request-there"): "n2",
}


def find_node(plural: str, namespace: str, name: str) -> str | None:
    return NODES_OF.get((plural, namespace, name))


AUTHORIZER = NodeAuthorizer(
    lambda node, namespace: PODS if (node, namespace) == ("n1", "ns") else [],
    find_claim,
    find_volume,
    find_node,
)


def decide(verb: str, resource: str, *, name: str = "", namespace: str = "ns", group: str = "",
           subresource: str = "", selector: str = "", labels: str = "",
           who: User = AGENT) -> str | None:  # fmt: skip
    action = Action(verb=verb, group=group, resource=resource, subresource=subresource,
                    namespace=namespace, name=name)  # fmt: skip
    return AUTHORIZER.decide(who, action, parse(selector), parse_labels(labels))


def test_users_other_than_nodes_are_left_to_other_authorizers() -> None:
    assert decide("get", "pods", who=User("system:node:n1")) is None
    assert decide("get", "pods", who=User("alice", groups=("system:nodes",))) is None


@pytest.mark.parametrize("name", ["pull", "s-volume", "s-projected", "s-from", "s-key", "s-debug"])
@pytest.mark.parametrize("verb", ["get", "list", "watch"])
def test_secrets_of_its_pods_are_read_by_name(verb: str, name: str) -> None:
    assert decide(verb, "secrets", name=name) == ""


@pytest.mark.parametrize("name", ["c-volume", "c-projected", "c-from", "c-key"])
def test_config_maps_of_its_pods_are_read_by_name(name: str) -> None:
    assert decide("get", "configmaps", name=name) == ""


def test_unrelated_objects_are_denied() -> None:
    unrelated = "no relationship found between node 'n1' and this object"
    assert decide("get", "secrets", name="other") == unrelated
    assert decide("get", "secrets", name="pull", namespace="elsewhere") == unrelated
    assert decide("get", "configmaps", name="s-key") == unrelated
    assert decide("get", "serviceaccounts", name="admin") == unrelated
    assert decide("get", "serviceaccounts", name="sa") == ""


@pytest.mark.parametrize("verb", ["get", "list", "watch"])
@pytest.mark.parametrize(
    ("resource", "name"),
    [("secrets", "pull"), ("configmaps", "c-volume"), ("serviceaccounts", "sa"), ("pods", "plain")],
)
def test_a_name_in_all_namespaces_is_never_read(resource: str, name: str, verb: str) -> None:
    everywhere = NodeAuthorizer(
        lambda node, _: PODS if node == "n1" else [], find_claim, find_volume, find_node
    )
    selector = parse(f"metadata.name={name}")
    here = Action(verb=verb, resource=resource, namespace="ns", name=name)
    assert everywhere.decide(AGENT, here, selector) == ""
    assert everywhere.decide(AGENT, msgspec.structs.replace(here, namespace=""), selector)


@pytest.mark.parametrize("resource", ["secrets", "configmaps", "serviceaccounts"])
@pytest.mark.parametrize("verb", ["list", "watch"])
def test_all_of_them_are_never_read(resource: str, verb: str) -> None:
    assert decide(verb, resource) == "No Object name found"


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete", "deletecollection"])
@pytest.mark.parametrize("resource", ["secrets", "configmaps", "serviceaccounts", "namespaces"])
def test_nor_written(verb: str, resource: str) -> None:
    assert decide(verb, resource, name="pull")


@pytest.mark.parametrize(
    ("verb", "name", "selector", "is_allowed"),
    [
        ("get", "plain", "", True),
        ("get", "other", "", False),
        ("list", "", "spec.nodeName=n1", True),
        ("watch", "", "status.phase!=Failed,spec.nodeName=n1", True),
        ("list", "", "spec.nodeName=n2", False),
        ("list", "", "spec.nodeName!=n1", False),
        ("list", "", "", False),
        ("list", "", "spec.nodeName=n2,spec.nodeName=n1", True),
        ("list", "plain", "metadata.name=plain", True),
        ("watch", "other", "metadata.name=other", False),
        ("get", "", "spec.nodeName=n1", False),
        ("update", "plain", "", False),
        ("create", "", "", True),
        ("delete", "plain", "", True),
    ],
)
def test_pods(verb: str, name: str, selector: str, is_allowed: bool) -> None:
    assert (decide(verb, "pods", name=name, selector=selector) == "") is is_allowed


@pytest.mark.parametrize(
    ("verb", "name", "namespace", "selector", "refusal"),
    [
        ("get", "other", "ns", "", "no relationship found between node 'n1' and this object"),
        ("get", "plain", "elsewhere", "",
         "no relationship found between node 'n1' and this object"),
        ("watch", "other", "ns", "metadata.name=other",
         "no relationship found between node 'n1' and this object"),
        ("get", "", "ns", "", "No Object name found"),
        ("list", "", "ns", "spec.nodeName=n2",
         "can only list/watch pods with spec.nodeName field selector"),
        ("update", "plain", "ns", "", "node 'n1' may not update pods"),
    ],
)  # fmt: skip
def test_why_pods_are_refused(
    verb: str, name: str, namespace: str, selector: str, refusal: str
) -> None:
    reason = decide(verb, "pods", name=name, namespace=namespace, selector=selector)
    assert reason == refusal


@pytest.mark.parametrize(
    ("verb", "name", "refusal"),
    [
        ("get", "n1", ""),
        ("watch", "n1", ""),
        ("get", "n2", "node 'n1' cannot read 'n2', only its own Node object"),
        ("list", "", "node 'n1' cannot read all nodes, only its own Node object"),
        ("watch", "", "node 'n1' cannot read all nodes, only its own Node object"),
    ],
)
def test_nodes(verb: str, name: str, refusal: str) -> None:
    assert decide(verb, "nodes", name=name, namespace="") == refusal


@pytest.mark.parametrize(
    ("verb", "group", "resource", "subresource"),
    [
        ("get", "node.k8s.io", "runtimeclasses", ""),
        ("watch", "node.k8s.io", "runtimeclasses", ""),
        ("list", "storage.k8s.io", "csidrivers", ""),
        ("list", "", "services", ""),
        ("create", "", "nodes", ""),
        ("patch", "", "nodes", "status"),
        ("patch", "", "pods", "status"),
        ("create", "", "pods", "eviction"),
        ("create", "", "events", ""),
        ("create", "authentication.k8s.io", "tokenreviews", ""),
        ("create", "authorization.k8s.io", "subjectaccessreviews", ""),
    ],
)
def test_what_every_agent_may(verb: str, group: str, resource: str, subresource: str) -> None:
    assert decide(verb, resource, group=group, subresource=subresource) == ""


@pytest.mark.parametrize(
    ("verb", "group", "resource", "subresource"),
    [
        ("create", "node.k8s.io", "runtimeclasses", ""),
        ("delete", "", "nodes", ""),
        ("get", "", "pods", "log"),
        ("create", "", "pods", "exec"),
        ("create", "", "pods", "binding"),
        ("list", "apps", "deployments", ""),
        ("list", "rbac.authorization.k8s.io", "clusterroles", ""),
        ("impersonate", "", "users", ""),
    ],
)
def test_what_no_agent_may(verb: str, group: str, resource: str, subresource: str) -> None:
    assert decide(verb, resource, group=group, subresource=subresource, name="x")


def test_paths_are_left_to_rules_for_everybody() -> None:
    action = Action(verb="get", path="/version")
    assert AUTHORIZER.decide(AGENT, action, EVERYTHING) == "no node rule for this path"


@pytest.mark.parametrize(
    ("name", "subresource", "namespace", "refusal"),
    [
        ("sa", "token", "ns", ""),
        ("", "", "ns", "can only create tokens for individual service accounts"),
        ("sa", "", "ns", "can only create token subresource of serviceaccount"),
        ("admin", "token", "ns", "no relationship found between node 'n1' and this object"),
        ("sa", "token", "elsewhere", "no relationship found between node 'n1' and this object"),
    ],
)
def test_tokens_are_for_the_accounts_of_its_pods(
    name: str, subresource: str, namespace: str, refusal: str
) -> None:
    reason = decide(
        "create", "serviceaccounts", name=name, subresource=subresource, namespace=namespace
    )
    assert reason == refusal


WRONG_VERB = "can only get, create, update, patch, or delete a node lease"
WRONG_PLACE = 'can only access leases in the "kube-node-lease" system namespace'
WRONG_NAME = "can only access node lease with the same name as the requesting node"


@pytest.mark.parametrize(
    ("verb", "name", "namespace", "refusal"),
    [
        ("create", "", "kube-node-lease", ""),
        *((verb, "n1", "kube-node-lease", "") for verb in ("get", "update", "patch", "delete")),
        ("get", "n2", "kube-node-lease", WRONG_NAME),
        ("delete", "n2", "kube-node-lease", WRONG_NAME),
        ("get", "n1", "kube-system", WRONG_PLACE),
        ("create", "", "ns", WRONG_PLACE),
        ("list", "", "kube-node-lease", WRONG_VERB),
        ("watch", "n1", "kube-node-lease", WRONG_VERB),
        ("deletecollection", "", "kube-node-lease", WRONG_VERB),
    ],
)
def test_leases(verb: str, name: str, namespace: str, refusal: str) -> None:
    group = "coordination.k8s.io"
    assert decide(verb, "leases", name=name, namespace=namespace, group=group) == refusal


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [("data", True), ("storage-scratch", True), ("unused", False), ("scratch", False)],
)
def test_claims_of_its_pods_are_read_one_by_one(name: str, is_allowed: bool) -> None:
    assert (decide("get", "persistentvolumeclaims", name=name) == "") is is_allowed
    assert decide("get", "persistentvolumeclaims", name=name, namespace="elsewhere")
    for verb in ("list", "watch", "patch", "update", "create", "delete"):
        assert decide(verb, "persistentvolumeclaims", name=name)
    for verb in ("update", "patch"):
        decision = decide(verb, "persistentvolumeclaims", name=name, subresource="status")
        assert (decision == "") is is_allowed
    assert decide("get", "persistentvolumeclaims", name=name, subresource="status") == (
        "can only get/update/patch this type"
    )


@pytest.mark.parametrize(
    ("name", "may_get", "may_patch"),
    [
        ("pv-data", True, False),
        ("pv-scratch", True, False),
        ("pv-unused", False, False),
        ("pv-loose", False, False),
        ("pv-free", False, False),
        ("pv-here", True, True),
        ("pv-there", False, False),
        ("pv-missing", False, False),
        ("", False, False),
    ],
)
def test_volumes_of_its_pods_and_those_it_has_itself(
    name: str, may_get: bool, may_patch: bool
) -> None:
    decision = {
        verb: decide(verb, "persistentvolumes", name=name, namespace="") == ""
        for verb in ("get", "patch", "update", "create", "delete", "deletecollection")
    }
    allowed = {verb for verb, is_allowed in decision.items() if is_allowed}
    assert allowed == {verb for verb, may in (("get", may_get), ("patch", may_patch)) if may}
    assert decide("patch", "persistentvolumes", name=name, namespace="", subresource="status")


@pytest.mark.parametrize(
    ("labels", "is_allowed"),
    [
        (f"{NODE_LABEL}=n1", True),
        (f"{NODE_LABEL}==n1,tier=gold", True),
        (f"{NODE_LABEL} in (n1)", True),
        (f"{NODE_LABEL} in (n1,n2)", False),
        (f"{NODE_LABEL}!=n1", False),
        (f"{NODE_LABEL} notin (n1)", False),
        (NODE_LABEL, False),
        (f"{NODE_LABEL}=n2", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("verb", ["list", "watch"])
def test_volumes_are_listed_by_the_label_of_the_node_alone(
    verb: str, labels: str, is_allowed: bool
) -> None:
    decision = decide(verb, "persistentvolumes", namespace="", labels=labels)
    assert (decision == "") is is_allowed


UNRELATED = "no relationship found between node 'n1' and this object"
CSI_VERBS = "can only get, create, update, patch, or delete a CSINode"
CSI_NAME = "can only access CSINode with the same name as the requesting node"


@pytest.mark.parametrize(
    ("verb", "name", "refusal"),
    [
        ("create", "", ""),
        *((verb, "n1", "") for verb in ("get", "update", "patch", "delete")),
        *((verb, "n2", CSI_NAME) for verb in ("get", "update", "patch", "delete")),
        *((verb, "n1", CSI_VERBS) for verb in ("list", "watch", "deletecollection")),
    ],
)
def test_csi_nodes(verb: str, name: str, refusal: str) -> None:
    assert decide(verb, "csinodes", name=name, namespace="", group="storage.k8s.io") == refusal


@pytest.mark.parametrize(
    ("verb", "name", "subresource", "refusal"),
    [
        ("get", "attached", "", ""),
        ("get", "attached-there", "", UNRELATED),
        ("get", "missing", "", UNRELATED),
        ("get", "", "", "No Object name found"),
        ("get", "attached", "status", "cannot get subresource"),
        ("list", "", "", "can only get individual resources of this type"),
        ("patch", "attached", "", "can only get individual resources of this type"),
    ],
)
def test_attachments(verb: str, name: str, subresource: str, refusal: str) -> None:
    reason = decide(
        verb, "volumeattachments", name=name, namespace="", group="storage.k8s.io",
        subresource=subresource,
    )  # fmt: skip
    assert reason == refusal


@pytest.mark.parametrize(
    ("verb", "name", "refusal"),
    [
        ("get", "gpu", ""),
        ("get", "devices-b-x", ""),
        ("get", "template", UNRELATED),
        ("list", "", "can only get individual resources of this type"),
        ("update", "gpu", "can only get individual resources of this type"),
    ],
)
def test_resource_claims_of_its_pods(verb: str, name: str, refusal: str) -> None:
    assert decide(verb, "resourceclaims", name=name, group="resource.k8s.io") == refusal


SLICE_SELECTOR = "can only list/watch/deletecollection resourceslices with nodeName field selector"


@pytest.mark.parametrize(
    ("verb", "name", "selector", "refusal"),
    [
        ("create", "", "", ""),
        *((verb, "slice", "", "") for verb in ("get", "update", "patch", "delete")),
        *((verb, "slice-there", "", UNRELATED) for verb in ("get", "update", "patch", "delete")),
        *((verb, "", "spec.nodeName=n1", "") for verb in ("list", "watch", "deletecollection")),
        *((verb, "", "spec.nodeName=n2", SLICE_SELECTOR) for verb in ("list", "deletecollection")),
        ("list", "", "", SLICE_SELECTOR),
    ],
)
def test_resource_slices(verb: str, name: str, selector: str, refusal: str) -> None:
    reason = decide(
        verb, "resourceslices", name=name, namespace="", group="resource.k8s.io", selector=selector
    )
    assert reason == refusal


OTHERS_PROFILE = "can only access RuntimeProfiles of the requesting node"


@pytest.mark.parametrize(
    ("verb", "name", "selector", "subresource", "refusal"),
    [
        ("create", "", "", "", ""),
        ("get", "n1.crun", "", "", ""),
        ("update", "n1.crun", "", "status", ""),
        ("delete", "n1.crun", "", "", ""),
        ("update", "n2.crun", "", "status", OTHERS_PROFILE),
        ("patch", "a.n1.crun", "", "", OTHERS_PROFILE),
        ("get", "n1", "", "", OTHERS_PROFILE),
        ("list", "", "spec.nodeName=n1", "", ""),
        ("watch", "", "spec.nodeName=n2", "",
         "can only list/watch runtimeprofiles with nodeName field selector"),
        ("list", "", "", "", "can only list/watch runtimeprofiles with nodeName field selector"),
        ("deletecollection", "", "spec.nodeName=n1", "",
         "only the following verbs are allowed for a RuntimeProfile: get, watch, list, create, "
         "update, patch, delete"),
        ("get", "n1.crun", "", "scale", "cannot authorize RuntimeProfile subresource scale"),
    ],
)  # fmt: skip
def test_profiles_of_the_nodes_handlers(
    verb: str, name: str, selector: str, subresource: str, refusal: str
) -> None:
    reason = decide(
        verb, "runtimeprofiles", name=name, namespace="", group="runtime.moorage.dev",
        selector=selector, subresource=subresource,
    )  # fmt: skip
    assert reason == refusal


READ_ALONE = "can only read RuntimeInstallations, and patch their status"


@pytest.mark.parametrize(
    ("verb", "subresource", "refusal"),
    [
        ("get", "", ""),
        ("list", "", ""),
        ("watch", "", ""),
        ("patch", "status", ""),
        ("update", "status", "can only patch the status"),
        ("get", "scale", "cannot authorize RuntimeInstallation subresource scale"),
        *(
            (verb, "", READ_ALONE)
            for verb in ("create", "update", "patch", "delete", "deletecollection")
        ),
    ],
)
def test_installations_are_read_and_their_status_is_patched(
    verb: str, subresource: str, refusal: str
) -> None:
    reason = decide(
        verb, "runtimeinstallations", name="i", namespace="", group="runtime.moorage.dev",
        subresource=subresource,
    )  # fmt: skip
    assert reason == refusal


@pytest.mark.parametrize(
    ("verb", "name", "selector", "subresource", "refusal"),
    [
        ("create", "", "", "", ""),
        ("get", "request", "", "", ""),
        ("get", "request-there", "", "", UNRELATED),
        ("watch", "", "spec.nodeName=n1", "", ""),
        ("list", "", "", "",
         "can only list/watch podcertificaterequests with nodeName field selector"),
        ("delete", "request", "", "", "nodes may not delete podcertificaterequests"),
        ("update", "request", "", "status",
         "nodes may not access the status subresource of PodCertificateRequests"),
    ],
)  # fmt: skip
def test_certificate_requests_of_pods(
    verb: str, name: str, selector: str, subresource: str, refusal: str
) -> None:
    reason = decide(
        verb, "podcertificaterequests", name=name, group="certificates.k8s.io", selector=selector,
        subresource=subresource,
    )  # fmt: skip
    assert reason == refusal
