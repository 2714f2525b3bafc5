"""Default roles of controllers that run with service accounts of their own.

Those of an unmodified kube-controller-manager with `--use-service-account-credentials` do. Each
role is bound to the service account of its name in kube-system. Source: API docs "Roles for
built-in controllers", rules of Kubernetes 1.36.
"""

from __future__ import annotations

from moorage.apiserver.authorization.default_policy.rules import EVENTS, READ, rule
from moorage.apiserver.registry.kind import Obj

_RBAC, _DRA = "rbac.authorization.k8s.io", "resource.k8s.io"

CONTROLLER_ROLES: dict[str, list[Obj]] = {
    "system:controller:attachdetach-controller": [
        rule("core", "persistentvolumeclaims persistentvolumes", "list watch"),
        rule("core", "nodes", READ),
        rule("core", "nodes/status", "patch update"),
        rule("core", "pods", "list watch"),
        EVENTS,
        rule("storage.k8s.io", "volumeattachments", "create delete get list watch"),
        rule("storage.k8s.io", "csidrivers", READ),
        rule("storage.k8s.io", "csinodes", READ),
    ],
    "system:controller:certificate-controller": [
        rule("certificates.k8s.io", "certificatesigningrequests", "delete get list watch"),
        rule("certificates.k8s.io", "certificatesigningrequests/approval "
             "certificatesigningrequests/status", "update"),
        rule("certificates.k8s.io", "signers",
             "approve", names="kubernetes.io/kube-apiserver-client-kubelet"),
        rule("certificates.k8s.io", "signers",
             "sign", names="kubernetes.io/kube-apiserver-client "
             "kubernetes.io/kube-apiserver-client-kubelet kubernetes.io/kubelet-serving "
             "kubernetes.io/legacy-unknown"),
        rule("authorization.k8s.io", "subjectaccessreviews", "create"),
        EVENTS,
    ],
    "system:controller:clusterrole-aggregation-controller": [
        rule(_RBAC, "clusterroles", "escalate get list patch update watch"),
    ],
    "system:controller:cronjob-controller": [
        rule("batch", "cronjobs", "get list update watch"),
        rule("batch", "jobs", "create delete get list patch update watch"),
        rule("batch", "cronjobs/status", "update"),
        rule("batch", "cronjobs/finalizers", "update"),
        rule("core", "pods", "delete list watch"),
        EVENTS,
    ],
    "system:controller:daemon-set-controller": [
        rule("apps extensions", "daemonsets", READ),
        rule("apps extensions", "daemonsets/status", "update"),
        rule("apps extensions", "daemonsets/finalizers", "update"),
        rule("core", "nodes", "list watch"),
        rule("core", "pods", "create delete list patch watch"),
        rule("core", "pods/binding", "create"),
        rule("apps", "controllerrevisions", "create delete get list patch update watch"),
        EVENTS,
    ],
    "system:controller:deployment-controller": [
        rule("apps extensions", "deployments", "get list update watch"),
        rule("apps extensions", "deployments/status", "update"),
        rule("apps extensions", "deployments/finalizers", "update"),
        rule("apps extensions", "replicasets", "create delete get list patch update watch"),
        rule("core", "pods", "get list update watch"),
        EVENTS,
    ],
    "system:controller:device-taint-eviction-controller": [
        rule("core", "pods", "delete get list watch"),
        rule("core", "pods/status", "patch update"),
        rule(_DRA, "resourceclaims", READ),
        rule(_DRA, "resourceslices", READ),
        rule(_DRA, "deviceclasses", READ),
        EVENTS,
    ],
    "system:controller:disruption-controller": [
        rule("apps extensions", "deployments", READ),
        rule("apps extensions", "replicasets", READ),
        rule("core", "replicationcontrollers", READ),
        rule("policy", "poddisruptionbudgets", READ),
        rule("apps", "statefulsets", READ),
        rule("policy", "poddisruptionbudgets/status", "update"),
        rule("core", "pods/status", "patch update"),
        rule("*", "*/scale", "get"),
        EVENTS,
    ],
    "system:controller:endpoint-controller": [
        rule("core", "pods services", READ),
        rule("core", "endpoints", "create delete get list update watch"),
        rule("core", "endpoints/restricted", "create"),
        EVENTS,
    ],
    "system:controller:endpointslice-controller": [
        rule("core", "nodes pods services", READ),
        rule("core", "services/finalizers", "update"),
        rule("discovery.k8s.io", "endpointslices", "create delete get list update watch"),
        rule("discovery.k8s.io", "endpointslices/restricted", "create"),
        EVENTS,
    ],
    "system:controller:endpointslicemirroring-controller": [
        rule("core", "endpoints services", READ),
        rule("core", "services/finalizers", "update"),
        rule("core", "endpoints/finalizers", "update"),
        rule("discovery.k8s.io", "endpointslices", "create delete get list update watch"),
        rule("discovery.k8s.io", "endpointslices/restricted", "create"),
        EVENTS,
    ],
    "system:controller:ephemeral-volume-controller": [
        rule("core", "pods", READ),
        rule("core", "pods/finalizers", "update"),
        rule("core", "persistentvolumeclaims", "create get list watch"),
        EVENTS,
    ],
    "system:controller:expand-controller": [
        rule("core", "persistentvolumes", "get list patch update watch"),
        rule("core", "persistentvolumeclaims/status", "patch update"),
        rule("core", "persistentvolumeclaims", READ),
        EVENTS,
    ],
    "system:controller:generic-garbage-collector": [
        rule("*", "*", "delete get list patch update watch"),
        EVENTS,
    ],
    "system:controller:horizontal-pod-autoscaler": [
        rule("autoscaling", "horizontalpodautoscalers", READ),
        rule("autoscaling", "horizontalpodautoscalers/status", "update"),
        rule("*", "*/scale", "get update"),
        rule("core", "pods", "list watch"),
        rule("metrics.k8s.io", "pods", "list watch"),
        rule("custom.metrics.k8s.io", "*", READ),
        rule("external.metrics.k8s.io", "*", READ),
        EVENTS,
    ],
    "system:controller:job-controller": [
        rule("batch", "jobs", "get list patch update watch"),
        rule("batch", "jobs/status", "update"),
        rule("batch", "jobs/finalizers", "update"),
        rule("core", "pods", "create delete list patch watch"),
        EVENTS,
    ],
    "system:controller:legacy-service-account-token-cleaner": [
        rule("core", "configmaps",
             "get", names="kube-apiserver-legacy-service-account-token-tracking"),
        rule("core", "secrets", "delete patch"),
    ],
    "system:controller:namespace-controller": [
        rule("core", "namespaces", "delete get list watch"),
        rule("core", "namespaces/finalize namespaces/status", "update"),
        rule("*", "*", "delete deletecollection get list watch"),
    ],
    "system:controller:node-controller": [
        rule("core", "nodes", "delete get list patch update watch"),
        rule("core", "nodes/status", "patch update"),
        rule("core", "pods/status", "patch update"),
        rule("core", "pods", "delete get list watch"),
        EVENTS,
    ],
    "system:controller:persistent-volume-binder": [
        rule("core", "persistentvolumes", "create delete get list update watch"),
        rule("core", "persistentvolumes/status", "update"),
        rule("core", "persistentvolumeclaims", "get list update watch"),
        rule("core", "persistentvolumeclaims/status", "update"),
        rule("core", "pods", "create delete get list watch"),
        rule("storage.k8s.io", "storageclasses", READ),
        rule("core", "nodes", "list watch"),
        EVENTS,
        rule("core", "events", "watch"),
    ],
    "system:controller:pod-garbage-collector": [
        rule("core", "pods", "delete list watch"),
        rule("core", "nodes", READ),
        rule("core", "pods/status", "patch"),
    ],
    "system:controller:pv-protection-controller": [
        rule("core", "persistentvolumes", "get list update watch"),
        EVENTS,
    ],
    "system:controller:pvc-protection-controller": [
        rule("core", "persistentvolumeclaims", "get list update watch"),
        rule("core", "persistentvolumeclaims/status", "update"),
        rule("core", "pods", READ),
        EVENTS,
    ],
    "system:controller:replicaset-controller": [
        rule("apps extensions", "replicasets", "get list update watch"),
        rule("apps extensions", "replicasets/status", "update"),
        rule("apps extensions", "replicasets/finalizers", "update"),
        rule("core", "pods", "create delete list patch watch"),
        EVENTS,
    ],
    "system:controller:replication-controller": [
        rule("core", "replicationcontrollers", "get list update watch"),
        rule("core", "replicationcontrollers/status", "update"),
        rule("core", "replicationcontrollers/finalizers", "update"),
        rule("core", "pods", "create delete list patch watch"),
        EVENTS,
    ],
    "system:controller:resource-claim-controller": [
        rule("core", "pods", READ),
        rule("core", "pods/finalizers", "update"),
        rule(_DRA, "resourceclaims", "create delete get list watch"),
        rule(_DRA, "resourceclaims resourceclaims/status", "patch update"),
        rule("core", "pods/status", "patch update"),
        EVENTS,
        rule(_DRA, "resourceclaims/binding", "patch update"),
    ],
    "system:controller:resourcequota-controller": [
        rule("*", "*", "list watch"),
        rule("core", "resourcequotas/status", "update"),
        EVENTS,
    ],
    "system:controller:root-ca-cert-publisher": [
        rule("core", "configmaps", "create update"),
        EVENTS,
    ],
    "system:controller:route-controller": [
        rule("core", "nodes", "list watch"),
        rule("core", "nodes/status", "patch"),
        EVENTS,
    ],
    "system:controller:selinux-warning-controller": [
        EVENTS,
        rule("core", "persistentvolumes", READ),
        rule("core", "persistentvolumeclaims", READ),
        rule("core", "pods", READ),
        rule("storage.k8s.io", "csidrivers", READ),
    ],
    "system:controller:service-account-controller": [
        rule("core", "serviceaccounts", "create"),
        EVENTS,
    ],
    "system:controller:service-cidrs-controller": [
        rule("networking.k8s.io", "servicecidrs", "get list patch update watch"),
        rule("networking.k8s.io", "servicecidrs/finalizers", "patch update"),
        rule("networking.k8s.io", "servicecidrs/status", "patch update"),
        rule("networking.k8s.io", "ipaddresses", READ),
        EVENTS,
    ],
    "system:controller:service-controller": [
        rule("core", "services", READ),
        rule("core", "services/status", "patch update"),
        rule("core", "nodes", "list watch"),
        EVENTS,
    ],
    "system:controller:statefulset-controller": [
        rule("core", "pods", "list watch"),
        rule("apps", "statefulsets", READ),
        rule("apps", "statefulsets/status", "update"),
        rule("apps", "statefulsets/finalizers", "update"),
        rule("core", "pods", "create delete get patch update"),
        rule("apps", "controllerrevisions", "create delete get list patch update watch"),
        rule("core", "persistentvolumeclaims", "create get list watch"),
        rule("core", "persistentvolumeclaims", "delete update"),
        rule("core", "pods/finalizers", "update"),
        EVENTS,
    ],
    "system:controller:ttl-after-finished-controller": [
        rule("batch", "jobs", "delete get list watch"),
        EVENTS,
    ],
    "system:controller:ttl-controller": [
        rule("core", "nodes", "list patch update watch"),
        EVENTS,
    ],
    "system:controller:validatingadmissionpolicy-status-controller": [
        rule("admissionregistration.k8s.io", "validatingadmissionpolicies", READ),
        rule("admissionregistration.k8s.io", "validatingadmissionpolicies/status",
             "get patch update"),
        EVENTS,
    ],
    "system:controller:volumeattributesclass-protection-controller": [
        rule("core", "persistentvolumeclaims", READ),
        rule("core", "persistentvolumes", READ),
        rule("storage.k8s.io", "volumeattributesclasses", "get list update watch"),
        EVENTS,
    ],
}  # fmt: skip
"""Cluster role → its rules."""
