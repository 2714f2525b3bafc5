"""Default roles of users: what people and their tools may do.

Source: API docs "Default roles and role bindings", rules of Kubernetes 1.36.
"""

from __future__ import annotations

from moorage.api import certificates
from moorage.api.runtime_group import GROUP
from moorage.apiserver.authorization.default_policy.controller_roles import CONTROLLER_ROLES
from moorage.apiserver.authorization.default_policy.rules import (
    EVENTS,
    READ,
    READ_WRITE,
    WRITE,
    path_rule,
    rule,
)
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import SYSTEM_MASTERS, UNAUTHENTICATED

# Default roles of components: scheduler, controllers, node programs, add-ons.
#
# The node's own role stands beside its authorizer, in authorization/node.py. Source: API docs
# "Core component roles", rules of Kubernetes 1.36.

_DEVICES = "resource.k8s.io"
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
        rule(_DEVICES, "devicetaintrules", READ),
        rule(_DEVICES, "deviceclasses", READ),
        rule(_DEVICES, "resourceclaims", "get list patch update watch"),
        rule(_DEVICES, "resourceclaims/status", "get list patch update watch"),
        rule("core", "pods/finalizers", "update"),
        rule(_DEVICES, "resourceslices", READ),
        rule(_DEVICES, "resourceclaims", "create delete"),
        rule(_DEVICES, "resourceclaims/binding", "patch update"),
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
    # The network agent of this cluster: what a service proxy reads, and what policies select.
    "moorage:network": [
        rule("core", "services nodes pods namespaces", READ),
        rule("discovery.k8s.io", "endpointslices", READ),
        rule("networking.k8s.io", "networkpolicies", READ),
        rule("node.k8s.io", "runtimeclasses", READ),
        EVENTS,
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


# Default bindings of cluster roles: who has which role in every cluster.
#
# Source: API docs "Default roles and role bindings", bindings of Kubernetes 1.36. The API server's
# own certificate for node agents is bound here, which upstream leaves to the installer: a kubelet
# asks whether its caller may read logs and start commands.

_EVERYONE = "Group system:authenticated"

_BINDINGS: dict[str, tuple[str, ...]] = {
    "cluster-admin": (f"Group {SYSTEM_MASTERS}",),
    "system:discovery": (_EVERYONE,),
    "system:basic-user": (_EVERYONE,),
    "system:public-info-viewer": (_EVERYONE, f"Group {UNAUTHENTICATED}"),
    "system:service-account-issuer-discovery": ("Group system:serviceaccounts",),
    "system:cluster-trust-bundle-discovery": ("Group system:serviceaccounts",),
    "system:monitoring": ("Group system:monitoring",),
    "system:kube-scheduler": ("User system:kube-scheduler",),
    "system:volume-scheduler": ("User system:kube-scheduler",),
    "system:kube-controller-manager": ("User system:kube-controller-manager",),
    "system:kube-dns": ("ServiceAccount kube-dns",),
    "system:node-proxier": ("User system:kube-proxy",),
    "moorage:network": ("User system:moorage-network",),
    "system:kubelet-api-admin": ("User kube-apiserver-kubelet-client",),
    "moorage:runtimeclass-viewer": (_EVERYONE,),
}

BINDINGS: dict[str, tuple[str, ...]] = _BINDINGS | {
    role: (f"ServiceAccount {role.rpartition(':')[2]}",) for role in CONTROLLER_ROLES
}
"""Binding and cluster role of the same name → subjects: their kind and name."""


# Default roles within kube-system and kube-public, and their bindings.
#
# Source: API docs "Default roles and role bindings", rules of Kubernetes 1.36.

SYSTEM, PUBLIC = "kube-system", "kube-public"
_LEADER = "get list watch create update"

NAMESPACED_ROLES: dict[tuple[str, str], list[Obj]] = {
    (SYSTEM, "extension-apiserver-authentication-reader"): [
        rule("core", "configmaps", READ, names="extension-apiserver-authentication"),
    ],
    (SYSTEM, "system::leader-locking-kube-controller-manager"): [
        rule("coordination.k8s.io", "leases leasecandidates", _LEADER),
    ],
    (SYSTEM, "system::leader-locking-kube-scheduler"): [
        rule("coordination.k8s.io", "leases leasecandidates", _LEADER),
    ],
    (SYSTEM, "system:controller:bootstrap-signer"): [rule("core", "secrets", READ)],
    (SYSTEM, "system:controller:cloud-provider"): [
        rule("core", "configmaps", "create get list watch"),
    ],
    (SYSTEM, "system:controller:token-cleaner"): [
        rule("core", "secrets", "delete get list watch"),
        EVENTS,
    ],
    (PUBLIC, "system:controller:bootstrap-signer"): [
        rule("core", "configmaps", READ),
        rule("core", "configmaps", "update", names="cluster-info"),
        EVENTS,
    ],
}
"""(namespace, role) → its rules."""

_COMPONENTS = ("User system:kube-controller-manager", "User system:kube-scheduler")

NAMESPACED_BINDINGS: dict[tuple[str, str], tuple[str, ...]] = {
    (SYSTEM, "system::extension-apiserver-authentication-reader"): (
        "extension-apiserver-authentication-reader", *_COMPONENTS,
    ),
    (SYSTEM, "system::leader-locking-kube-controller-manager"): (
        "system::leader-locking-kube-controller-manager",
        "User system:kube-controller-manager", "ServiceAccount kube-controller-manager",
    ),
    (SYSTEM, "system::leader-locking-kube-scheduler"): (
        "system::leader-locking-kube-scheduler",
        "User system:kube-scheduler", "ServiceAccount kube-scheduler",
    ),
    (SYSTEM, "system:controller:bootstrap-signer"): (
        "system:controller:bootstrap-signer", "ServiceAccount bootstrap-signer",
    ),
    (SYSTEM, "system:controller:cloud-provider"): (
        "system:controller:cloud-provider", "ServiceAccount cloud-provider",
    ),
    (SYSTEM, "system:controller:token-cleaner"): (
        "system:controller:token-cleaner", "ServiceAccount token-cleaner",
    ),
    (PUBLIC, "system:controller:bootstrap-signer"): (
        "system:controller:bootstrap-signer", "ServiceAccount bootstrap-signer",
    ),
}  # fmt: skip
"""(namespace, binding) → the role's name, then subjects: their kind and name."""


_RBAC, _DRA = "rbac.authorization.k8s.io", "resource.k8s.io"

USER_ROLES: dict[str, list[Obj]] = {
    "cluster-admin": [
        rule("*", "*", "*"),
        path_rule("*", "*"),
    ],
    "system:aggregate-to-admin": [
        rule("authorization.k8s.io", "localsubjectaccessreviews", "create"),
        rule(_RBAC, "rolebindings roles", READ_WRITE),
    ],
    "system:aggregate-to-edit": [
        rule("core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy",
             READ),
        rule("core", "serviceaccounts", "impersonate"),
        rule("core", "pods pods/attach pods/exec pods/portforward pods/proxy", WRITE),
        rule("core", "pods/eviction", "create"),
        rule("core", "configmaps persistentvolumeclaims replicationcontrollers "
             "replicationcontrollers/scale secrets serviceaccounts services services/proxy", WRITE),
        rule("core", "serviceaccounts/token", "create"),
        rule("core events.k8s.io", "events", WRITE),
        rule("apps", "daemonsets deployments deployments/rollback deployments/scale replicasets "
             "replicasets/scale statefulsets statefulsets/scale", WRITE),
        rule("autoscaling", "horizontalpodautoscalers", WRITE),
        rule("batch", "cronjobs jobs", WRITE),
        rule("extensions", "daemonsets deployments deployments/rollback deployments/scale "
             "ingresses networkpolicies replicasets replicasets/scale "
             "replicationcontrollers/scale", WRITE),
        rule("policy", "poddisruptionbudgets", WRITE),
        rule("networking.k8s.io", "ingresses networkpolicies", WRITE),
        rule("coordination.k8s.io", "leases", READ_WRITE),
        rule(_DRA, "resourceclaims resourceclaimtemplates", WRITE),
    ],
    "system:aggregate-to-view": [
        rule("core", "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status "
             "pods replicationcontrollers replicationcontrollers/scale serviceaccounts services "
             "services/status", READ),
        rule("core", "bindings limitranges namespaces/status pods/log pods/status "
             "replicationcontrollers/status resourcequotas resourcequotas/status", READ),
        rule("core", "namespaces", READ),
        rule("core events.k8s.io", "events", READ),
        rule("discovery.k8s.io", "endpointslices", READ),
        rule("apps", "controllerrevisions daemonsets daemonsets/status deployments "
             "deployments/scale deployments/status replicasets replicasets/scale "
             "replicasets/status statefulsets statefulsets/scale statefulsets/status", READ),
        rule("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", READ),
        rule("batch", "cronjobs cronjobs/status jobs jobs/status", READ),
        rule("extensions", "daemonsets daemonsets/status deployments deployments/scale "
             "deployments/status ingresses ingresses/status networkpolicies replicasets "
             "replicasets/scale replicasets/status replicationcontrollers/scale", READ),
        rule("policy", "poddisruptionbudgets poddisruptionbudgets/status", READ),
        rule("networking.k8s.io", "ingresses ingresses/status networkpolicies", READ),
        rule(_DRA, "resourceclaims resourceclaims/status resourceclaimtemplates", READ),
    ],
    "system:basic-user": [
        rule("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
        rule("authentication.k8s.io", "selfsubjectreviews", "create"),
    ],
    "system:certificates.k8s.io:certificatesigningrequests:nodeclient": [
        rule("certificates.k8s.io", "certificatesigningrequests/nodeclient", "create"),
    ],
    "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": [
        rule("certificates.k8s.io", "certificatesigningrequests/selfnodeclient", "create"),
    ],
    "system:certificates.k8s.io:kube-apiserver-client-approver": [
        rule("certificates.k8s.io", "signers",
             "approve", names="kubernetes.io/kube-apiserver-client"),
    ],
    "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver": [
        rule("certificates.k8s.io", "signers",
             "approve", names="kubernetes.io/kube-apiserver-client-kubelet"),
    ],
    "system:certificates.k8s.io:kubelet-serving-approver": [
        rule("certificates.k8s.io", "signers", "approve", names="kubernetes.io/kubelet-serving"),
    ],
    "system:certificates.k8s.io:legacy-unknown-approver": [
        rule("certificates.k8s.io", "signers", "approve", names="kubernetes.io/legacy-unknown"),
    ],
    "system:discovery": [
        path_rule("/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version "
                  "/version/"),
    ],
    "system:kubelet-api-admin": [
        rule("core", "nodes", READ),
        rule("core", "nodes", "proxy"),
        rule("core", "nodes/log nodes/metrics nodes/proxy nodes/stats", "*"),
        rule("core", "nodes/configz nodes/healthz nodes/pods", "*"),
    ],
    "system:monitoring": [
        path_rule("/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz "
                  "/readyz/* /statusz"),
        rule("core", "nodes/metrics", "get"),
    ],
    "system:public-info-viewer": [path_rule("/healthz /livez /readyz /version /version/")],
    "system:service-account-issuer-discovery": [
        path_rule("/.well-known/openid-configuration /.well-known/openid-configuration/ "
                  "/openid/v1/jwks /openid/v1/jwks/"),
    ],
    "system:cluster-trust-bundle-discovery": [
        rule("certificates.k8s.io", "clustertrustbundles", READ),
    ],
    # The page shows what its user may read, no more.
    "moorage:runtimeclass-viewer": [
        rule("node.k8s.io", "runtimeclasses", READ),
        rule(GROUP, "clusterruntimepolicies runtimeinstallations runtimeprofiles", READ),
        path_rule("/ui /ui/*"),
    ],
}  # fmt: skip
"""Cluster role → its rules."""

AGGREGATED = {"view": ("view",), "edit": ("edit", "view"), "admin": ("admin", "edit", "view")}
"""Aggregated role → the `aggregate-to` labels whose rules it aggregates."""

OWN_AGGREGATED: dict[str, tuple[str, list[Obj]]] = {
    "moorage:aggregate-to-view": (
        "view",
        [rule(GROUP, "runtimepolicies runtimeclassquotas runtimeclassquotas/status", READ)],
    ),
    # A namespace's own policy can only be stricter than the cluster's. Quotas bound the namespace,
    # as ResourceQuotas do: its administrator reads them.
    "moorage:aggregate-to-admin": ("admin", [rule(GROUP, "runtimepolicies", WRITE)]),
}
"""Role of our own kinds → the role that aggregates it, and its rules."""
