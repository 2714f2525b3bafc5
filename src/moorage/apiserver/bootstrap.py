"""Bootstrap objects: namespaces, roles and bindings of a new cluster.

Created at every start where absent; roles with `autoupdate` get missing rules restored. Source:
API docs "Default roles and role bindings", "Initial namespaces".
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from moorage.admission.namespaces import IMMORTAL
from moorage.api.errors import AlreadyExistsError
from moorage.api.rbac import PolicyRule
from moorage.apiserver.authorization.node import NODE_RULES
from moorage.registry.kind import Kind, Obj
from moorage.registry.kinds.apiservice import API_SERVICE
from moorage.registry.kinds.clusterrole import CLUSTER_ROLE
from moorage.registry.kinds.clusterrolebinding import CLUSTER_ROLE_BINDING
from moorage.registry.kinds.metrics import GROUP as METRICS_GROUP
from moorage.registry.kinds.metrics import VERSION as METRICS_VERSION
from moorage.registry.kinds.namespace import NAMESPACE
from moorage.registry.kinds.priorityclass import PRIORITY_CLASS
from moorage.registry.kinds.service import SERVICE
from moorage.registry.objects import Objects
from moorage.registry.rbac import uncovered
from moorage.registry.request import SYSTEM_MASTERS, UNAUTHENTICATED, Request, User

SYSTEM_NAMESPACES = (*sorted(IMMORTAL), "kube-node-lease")
_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))
_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
_EVERYONE = "system:authenticated"
_RBAC = "rbac.authorization.k8s.io"
_DRA = "resource.k8s.io"
_AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_BOOTSTRAPPING = {"kubernetes.io/bootstrapping": "rbac-defaults"}


def _rule(groups: str, resources: str, verbs: Sequence[str] | str) -> Obj:
    """Return a rule. Groups and resources are blank-separated; `core` is the core group."""
    return {
        "apiGroups": ["" if group == "core" else group for group in groups.split()],
        "resources": resources.split(),
        "verbs": verbs.split() if isinstance(verbs, str) else list(verbs),
    }


def _path_rule(paths: str, verbs: str = "get") -> Obj:
    return {"nonResourceURLs": paths.split(), "verbs": verbs.split()}


_EVENTS = _rule("core events.k8s.io", "events", "create patch update")
_LEADER = _rule("coordination.k8s.io", "leases", "get create update patch list watch")
_REVIEWS = (
    _rule("authentication.k8s.io", "tokenreviews", "create"),
    _rule("authorization.k8s.io", "subjectaccessreviews", "create"),
)

ROLES: dict[str, list[Obj]] = {
    "cluster-admin": [_rule("*", "*", "*"), _path_rule("*", "*")],
    "system:discovery": [
        _path_rule("/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz "
                   "/version /version/"),
    ],
    "system:basic-user": [
        _rule("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews",
              "create"),
        _rule("authentication.k8s.io", "selfsubjectreviews", "create"),
    ],
    "system:public-info-viewer": [_path_rule("/healthz /livez /readyz /version /version/")],
    "system:service-account-issuer-discovery": [
        _path_rule("/.well-known/openid-configuration /.well-known/openid-configuration/ "
                   "/openid/v1/jwks /openid/v1/jwks/"),
    ],
    "system:monitoring": [
        _path_rule("/healthz /healthz/* /livez /livez/* /metrics /readyz /readyz/*"),
    ],
    "system:auth-delegator": list(_REVIEWS),
    "system:kubelet-api-admin": [
        _rule("core", "nodes", _READ),
        _rule("core", "nodes/proxy nodes/log nodes/metrics nodes/stats", "*"),
    ],
    "system:kube-scheduler": [
        _EVENTS,
        _LEADER,
        _rule("core", "nodes pods namespaces services replicationcontrollers "
              "persistentvolumeclaims persistentvolumes", _READ),
        _rule("core", "pods", "delete"),
        _rule("core", "bindings pods/binding", "create"),
        _rule("core", "pods/status", "patch update"),
        _rule("core", "pods/finalizers", "update"),
        _rule("apps", "replicasets statefulsets", _READ),
        _rule("node.k8s.io", "runtimeclasses", _READ),
        _rule("policy", "poddisruptionbudgets", _READ),
        _rule("storage.k8s.io", "csidrivers csinodes csistoragecapacities volumeattachments",
              _READ),
        _rule(_DRA, "deviceclasses devicetaintrules resourceslices", _READ),
        _rule(_DRA, "resourceclaims", [*_READ, "create", "delete", "patch", "update"]),
        _rule(_DRA, "resourceclaims/status", [*_READ, "patch", "update"]),
        _rule(_DRA, "resourceclaims/binding", "patch update"),
        *_REVIEWS,
    ],
    # Garbage collection and namespace deletion read and delete objects of every kind.
    "system:kube-controller-manager": [
        _EVENTS,
        _LEADER,
        _rule("*", "*", "get list watch delete deletecollection patch update"),
        _rule("core", "pods pods/eviction serviceaccounts configmaps secrets endpoints "
              "persistentvolumeclaims", "create"),
        _rule("core", "serviceaccounts/token", "create"),
        _rule("apps", "replicasets controllerrevisions", "create"),
        _rule("batch", "jobs", "create"),
        _rule("discovery.k8s.io", "endpointslices", "create"),
        _rule("rbac.authorization.k8s.io", "clusterroles", "escalate bind"),
        _path_rule("/api /api/* /apis /apis/*"),
        *_REVIEWS,
    ],
    "moorage:runtimeclass-viewer": [_rule("node.k8s.io", "runtimeclasses", _READ)],
    "system:aggregate-to-view": [
        _rule("core", "bindings configmaps endpoints events limitranges namespaces "
              "namespaces/status persistentvolumeclaims persistentvolumeclaims/status pods "
              "pods/log pods/status replicationcontrollers replicationcontrollers/scale "
              "replicationcontrollers/status resourcequotas resourcequotas/status "
              "serviceaccounts services services/status", _READ),
        _rule("apps", "controllerrevisions daemonsets daemonsets/status deployments "
              "deployments/scale deployments/status replicasets replicasets/scale "
              "replicasets/status statefulsets statefulsets/scale statefulsets/status", _READ),
        _rule("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", _READ),
        _rule("batch", "cronjobs cronjobs/status jobs jobs/status", _READ),
        _rule("extensions", "deployments deployments/scale", _READ),
        _rule("policy", "poddisruptionbudgets poddisruptionbudgets/status", _READ),
        _rule("networking.k8s.io", "ingresses ingresses/status networkpolicies", _READ),
        _rule("discovery.k8s.io", "endpointslices", _READ),
        _rule("events.k8s.io", "events", _READ),
        _rule("coordination.k8s.io", "leases", _READ),
        _rule(_DRA, "resourceclaims resourceclaims/status resourceclaimtemplates", _READ),
    ],
    "system:aggregate-to-edit": [
        _rule("core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy",
              _READ),
        _rule("core", "serviceaccounts", "impersonate"),
        _rule("core", "configmaps persistentvolumeclaims pods pods/attach pods/exec "
              "pods/portforward pods/proxy replicationcontrollers replicationcontrollers/scale "
              "secrets serviceaccounts services services/proxy", _WRITE),
        _rule("core", "pods/eviction serviceaccounts/token", "create"),
        _rule("core events.k8s.io", "events", _WRITE),
        _rule("apps", "daemonsets deployments deployments/scale replicasets replicasets/scale "
              "statefulsets statefulsets/scale", _WRITE),
        _rule("autoscaling", "horizontalpodautoscalers", _WRITE),
        _rule("batch", "cronjobs jobs", _WRITE),
        _rule("extensions", "deployments deployments/scale", _WRITE),
        _rule("policy", "poddisruptionbudgets", _WRITE),
        _rule("networking.k8s.io", "ingresses networkpolicies", _WRITE),
        _rule("coordination.k8s.io", "leases", _WRITE),
        _rule(_DRA, "resourceclaims resourceclaimtemplates", _WRITE),
    ],
    "system:aggregate-to-admin": [
        _rule("authorization.k8s.io", "localsubjectaccessreviews", "create"),
        _rule(_RBAC, "roles rolebindings", [*_READ, *_WRITE]),
    ],
}  # fmt: skip
"""Cluster role → its rules."""

AGGREGATED = {"view": ("view",), "edit": ("edit", "view"), "admin": ("admin", "edit", "view")}
"""Aggregated role → the `aggregate-to` labels whose rules it aggregates."""

BINDINGS: dict[str, tuple[str, ...]] = {
    "cluster-admin": ("cluster-admin", "Group", SYSTEM_MASTERS),
    "system:discovery": ("system:discovery", "Group", _EVERYONE),
    "system:basic-user": ("system:basic-user", "Group", _EVERYONE),
    "system:public-info-viewer": (
        "system:public-info-viewer", "Group", _EVERYONE, UNAUTHENTICATED,
    ),
    "system:service-account-issuer-discovery": (
        "system:service-account-issuer-discovery", "Group", "system:serviceaccounts",
    ),
    "system:monitoring": ("system:monitoring", "Group", "system:monitoring"),
    "system:kube-scheduler": ("system:kube-scheduler", "User", "system:kube-scheduler"),
    "system:kube-controller-manager": (
        "system:kube-controller-manager", "User", "system:kube-controller-manager",
    ),
    "moorage:runtimeclass-viewer": ("moorage:runtimeclass-viewer", "Group", _EVERYONE),
}  # fmt: skip
"""Cluster role binding → (role, subject kind, subject names)."""

PRIORITY_CLASSES = {
    "system-cluster-critical": (
        2000000000,
        "Used for system critical pods that must run in the cluster, but can be moved to another "
        "node if necessary.",
    ),
    "system-node-critical": (
        2000001000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
}


async def bootstrap(objects: Objects, *, service_ip: str, secure_port: int) -> None:
    """Create the missing objects. `service_ip` is the address of the service `kubernetes`."""
    await _create_all(objects, NAMESPACE, [_named(name) for name in SYSTEM_NAMESPACES])
    roles = [*(_role(name, rules) for name, rules in ROLES.items()), _node_role()]
    aggregated = [_aggregated_role(name) for name in AGGREGATED]
    await _create_all(objects, CLUSTER_ROLE, [*roles, *aggregated, _metrics_reader()])
    await _create_all(objects, API_SERVICE, [_metrics_service()])
    await _restore_rules(objects, roles)
    await _create_all(
        objects,
        CLUSTER_ROLE_BINDING,
        [_binding(name, *binding) for name, binding in BINDINGS.items()],
    )
    await _create_all(
        objects,
        PRIORITY_CLASS,
        [
            {**_named(name), "value": value, "description": description,
             "preemptionPolicy": "PreemptLowerPriority"}
            for name, (value, description) in PRIORITY_CLASSES.items()
        ],
    )  # fmt: skip
    await _create_all(objects, SERVICE, [_api_service(service_ip, secure_port)], "default")


async def _create_all(
    objects: Objects, kind: Kind, wanted: Iterable[Obj], namespace: str = ""
) -> None:
    request = Request(user=_USER, is_own=True, user_agent="apiserver/bootstrap")

    async def create(obj: Obj) -> None:
        if objects.find(kind, namespace, obj["metadata"]["name"]) is not None:
            return
        kind.strategy.default(obj)
        try:
            await objects.create(request, kind, kind.storage, namespace, obj)
        except AlreadyExistsError:
            return  # Another server of the same store created it first.

    # Concurrently, so that they share a commit.
    await asyncio.gather(*(create(obj) for obj in wanted))


async def _restore_rules(objects: Objects, wanted: Iterable[Obj]) -> None:
    """Restore missing rules of roles with `autoupdate`: an older version had fewer."""
    request = Request(user=_USER, is_own=True, user_agent="apiserver/bootstrap")

    async def restore(role: Obj) -> None:
        present = objects.get(CLUSTER_ROLE, "", role["metadata"]["name"]).obj
        if present["metadata"].get("annotations", {}).get(_AUTOUPDATE) != "true":
            return
        missing = _missing_rules(present.get("rules", []), role["rules"])
        if not missing:
            return

        def make_new(old: Obj | None) -> Obj:
            assert old is not None
            return {**old, "rules": [*old.get("rules", []), *missing]}

        await objects.update(
            request, CLUSTER_ROLE, CLUSTER_ROLE.storage, "", role["metadata"]["name"], make_new
        )

    await asyncio.gather(*(restore(role) for role in wanted))


def _missing_rules(held: list[Obj], wanted: list[Obj]) -> list[Obj]:
    """Return the wanted rules that the held ones do not cover."""
    typed = msgspec.convert(held, list[PolicyRule])
    return [rule for rule in wanted if uncovered(typed, [msgspec.convert(rule, PolicyRule)])]


def _named(name: str, **metadata: Any) -> Obj:
    return {"metadata": {"name": name, **metadata}}


def _system_named(name: str, extra_labels: dict[str, str] | None = None) -> Obj:
    return _named(
        name,
        labels={**_BOOTSTRAPPING, **(extra_labels or {})},
        annotations={_AUTOUPDATE: "true"},
    )


def _role(name: str, rules: list[Obj]) -> Obj:
    labels = {}
    if name.startswith("system:aggregate-to-"):
        labels[f"{_RBAC}/aggregate-to-{name.rpartition('-')[2]}"] = "true"
    return {**_system_named(name, labels), "rules": rules}


def _node_role() -> Obj:
    rules = [
        {
            "apiGroups": list(rule.api_groups),
            "resources": list(rule.resources),
            "verbs": list(rule.verbs),
        }
        for rule in NODE_RULES
    ]
    return _role("system:node", rules)


def _aggregated_role(name: str) -> Obj:
    selectors = [
        {"matchLabels": {f"{_RBAC}/aggregate-to-{source}": "true"}} for source in AGGREGATED[name]
    ]
    rules = [rule for source in AGGREGATED[name] for rule in ROLES[f"system:aggregate-to-{source}"]]
    return {
        **_system_named(name),
        "aggregationRule": {"clusterRoleSelectors": selectors},
        "rules": rules,
    }


def _metrics_reader() -> Obj:
    """Return the role that lets viewers read metrics, as metrics-server installs it."""
    labels = {f"{_RBAC}/aggregate-to-{role}": "true" for role in AGGREGATED}
    return {
        **_named("system:aggregated-metrics-reader", labels=labels),
        "rules": [_rule(METRICS_GROUP, "pods nodes", _READ)],
    }


def _metrics_service() -> Obj:
    """Return the APIService of metrics, with metrics-server's priorities.

    It has no service: this server answers. One that a user has put in its place stays.
    """
    return {
        **_named(f"{METRICS_VERSION}.{METRICS_GROUP}"),
        "spec": {
            "group": METRICS_GROUP,
            "version": METRICS_VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }


def _binding(name: str, role: str, subject_kind: str, *subjects: str) -> Obj:
    return {
        **_system_named(name),
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [
            {"apiGroup": _RBAC, "kind": subject_kind, "name": subject} for subject in subjects
        ],
    }


def _api_service(service_ip: str, secure_port: int) -> Obj:
    labels = {"component": "apiserver", "provider": "kubernetes"}
    return {
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": service_ip,
            "clusterIPs": [service_ip],
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": secure_port}],
        },
    }
