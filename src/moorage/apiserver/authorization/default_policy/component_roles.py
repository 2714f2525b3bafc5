"""Default roles of components: scheduler, controllers, node programs, add-ons.

The node's own role stands beside its authorizer, in authorization/node.py. Source: API docs
"Core component roles", rules of Kubernetes 1.36.
"""

from __future__ import annotations

from moorage.api import certificates
from moorage.apiserver.authorization.default_policy.rules import (
    EVENTS,
    READ,
    READ_WRITE,
    path_rule,
    rule,
)
from moorage.apiserver.registry.kind import Obj

_DRA = "resource.k8s.io"
_CERTIFICATES = certificates.GROUP

COMPONENT_ROLES: dict[str, list[Obj]] = {
    "system:auth-delegator": [
        rule("authentication.k8s.io", "tokenreviews", "create"),
        rule("authorization.k8s.io", "subjectaccessreviews", "create"),
    ],
    "system:heapster": [
        rule("core", "events namespaces nodes pods", READ),
        rule("extensions", "deployments", READ),
    ],
    "system:kube-aggregator": [rule("core", "endpoints services", READ)],
    "system:kube-dns": [rule("core", "endpoints services", "list watch")],
    "system:kube-scheduler": [
        EVENTS,
        rule("coordination.k8s.io", "leases", "create"),
        rule("coordination.k8s.io", "leases", "get list update watch", names="kube-scheduler"),
        rule("coordination.k8s.io", "leasecandidates", READ_WRITE),
        rule("core", "nodes", READ),
        rule("core", "pods", "delete get list watch"),
        rule("core", "bindings pods/binding", "create"),
        rule("core", "pods/status", "patch update"),
        rule("core", "replicationcontrollers services", READ),
        rule("apps extensions", "replicasets", READ),
        rule("apps", "statefulsets", READ),
        rule("policy", "poddisruptionbudgets", READ),
        rule("core", "persistentvolumeclaims persistentvolumes", READ),
        rule("authentication.k8s.io", "tokenreviews", "create"),
        rule("authorization.k8s.io", "subjectaccessreviews", "create"),
        rule("storage.k8s.io", "csinodes", READ),
        rule("storage.k8s.io", "volumeattachments", READ),
        rule("core", "namespaces", READ),
        rule("storage.k8s.io", "csidrivers", READ),
        rule("storage.k8s.io", "csistoragecapacities", READ),
        # Not upstream's: pods are placed by the handler of their class.
        rule("node.k8s.io", "runtimeclasses", READ),
        rule(_DRA, "devicetaintrules", READ),
        rule(_DRA, "deviceclasses", READ),
        rule(_DRA, "resourceclaims", "get list patch update watch"),
        rule(_DRA, "resourceclaims/status", "get list patch update watch"),
        rule("core", "pods/finalizers", "update"),
        rule(_DRA, "resourceslices", READ),
        rule(_DRA, "resourceclaims", "create delete"),
        rule(_DRA, "resourceclaims/binding", "patch update"),
    ],
    "system:node-bootstrapper": [
        rule("certificates.k8s.io", "certificatesigningrequests", "create get list watch"),
    ],
    "system:node-problem-detector": [
        rule("core", "nodes", "get"),
        rule("core", "nodes/status", "patch"),
        EVENTS,
    ],
    "system:node-proxier": [
        rule("core", "endpoints services", "list watch"),
        rule("core", "nodes", READ),
        EVENTS,
        rule("networking.k8s.io", "servicecidrs", "list watch"),
        rule("discovery.k8s.io", "endpointslices", "list watch"),
    ],
    "system:persistent-volume-provisioner": [
        rule("core", "persistentvolumes", "create delete get list watch"),
        rule("core", "persistentvolumeclaims", "get list update watch"),
        rule("storage.k8s.io", "storageclasses", READ),
        rule("core", "events", "watch"),
        EVENTS,
    ],
    "system:volume-scheduler": [
        rule("core", "persistentvolumes", "get list patch update watch"),
        rule("storage.k8s.io", "storageclasses", READ),
        rule("core", "persistentvolumeclaims", "get list patch update watch"),
    ],
    # Every controller runs as this user here. Garbage collection and namespace deletion read and
    # delete objects of every kind.
    "system:kube-controller-manager": [
        EVENTS,
        rule("coordination.k8s.io", "leases", "get create update patch list watch"),
        rule("*", "*", "get list watch delete deletecollection patch update"),
        rule("core", "pods pods/eviction serviceaccounts configmaps secrets endpoints "
             "persistentvolumeclaims persistentvolumes", "create"),
        rule("core", "serviceaccounts/token", "create"),
        rule("apps", "replicasets controllerrevisions", "create"),
        rule("batch", "jobs", "create"),
        rule("discovery.k8s.io", "endpointslices", "create"),
        rule("rbac.authorization.k8s.io", "clusterroles", "escalate bind"),
        rule(_CERTIFICATES, "signers", "approve", names=certificates.KUBELET_CLIENT),
        rule(_CERTIFICATES, "signers", "sign", names=f"{certificates.API_SERVER_CLIENT} "
             f"{certificates.KUBELET_CLIENT} {certificates.KUBELET_SERVING}"),
        rule(_CERTIFICATES, "signers", "attest", names=certificates.API_SERVER_SERVING),
        rule(_CERTIFICATES, "clustertrustbundles", "create"),
        rule("networking.k8s.io", "ipaddresses", "create"),
        rule("apiextensions.k8s.io", "customresourcedefinitions", "create"),
        path_rule("/api /api/* /apis /apis/*"),
        rule("authentication.k8s.io", "tokenreviews", "create"),
        rule("authorization.k8s.io", "subjectaccessreviews", "create"),
    ],
}  # fmt: skip
"""Cluster role → its rules."""
