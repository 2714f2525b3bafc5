"""Controllers among the objects of an attachment: their Deployment, and rights to the letter.

tests/cluster/attach/test_rights.py runs them with these rules alone.
"""

from __future__ import annotations

from moorage.api.meta import Raw
from moorage.api.runtime_group import GROUP
from moorage.cluster.attach.manifests.identity import (
    CONTROLLERS,
    MOORAGE,
    Obj,
    account,
    cluster_role,
    labels,
    metadata,
    part_name,
    role,
    selector,
)
from moorage.cluster.attach.manifests.webhook import (
    SECRET,
    SERVICE,
    container_base,
    http_probe,
    pod_security_context,
)
from moorage.cluster.attach.values import OWN, Values
from moorage.probing.default_classes import RECORD, RECORD_NAMESPACE

HEALTH_PORT = 8081
LEASE = part_name(CONTROLLERS)
_READ = ["list", "watch"]
_STOP_S = 15


def objects(values: Values) -> list[Obj]:
    """Return the controllers' objects."""
    made = [
        account(values, CONTROLLERS),
        *cluster_role(values, CONTROLLERS, _cluster_rules(values)),
        *role(values, CONTROLLERS, _own_rules(values)),
        _deployment(values),
    ]
    if values.controllers.create_classes:
        # The record of classes that were created, so that a deleted one stays deleted.
        made += role(
            values, CONTROLLERS, _RECORD_RULES, namespace=RECORD_NAMESPACE, suffix="-classes"
        )
    return made


def _rule(group: str, resources: list[str], verbs: list[str], names: str = "") -> Raw:
    rule: Raw = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return rule | ({"resourceNames": [names]} if names else {})


_RECORD_RULES: tuple[Raw, ...] = (
    _rule("", ["configmaps"], ["get", "update"], RECORD),
    # A name cannot restrict what is created.
    _rule("", ["configmaps"], ["create"]),
)


def _cluster_rules(values: Values) -> list[Raw]:
    rules: list[Raw] = [
        _rule("", ["namespaces", "nodes", "replicationcontrollers"], _READ),
        # Gates are removed, what pods wait for is a condition; get, before a gate goes.
        _rule("", ["pods"], ["get", *_READ, "patch"]),
        _rule("", ["pods/status"], ["patch"]),
        _rule("", ["events"], ["create", "patch"]),
        # What pods use, from their kubelets (overhead drift).
        _rule("", ["nodes/proxy"], ["get"]),
        _rule("apps", ["replicasets"], _READ),
        # Rollouts move workloads to another class.
        _rule("apps", ["deployments", "statefulsets", "daemonsets"], [*_READ, "patch"]),
        _rule("batch", ["jobs"], _READ),
        _rule("batch", ["cronjobs"], [*_READ, "patch"]),
        _rule("node.k8s.io", ["runtimeclasses"], _READ),
        _rule(GROUP, ["runtimeprofiles", "runtimeclassquotas", "runtimerollouts"], _READ),
        # Its finalizer keeps an installation until all nodes are done.
        _rule(GROUP, ["runtimeinstallations"], [*_READ, "patch"]),
        _rule(
            GROUP,
            ["runtimeclassquotas/status", "runtimeinstallations/status", "runtimerollouts/status"],
            ["patch"],
        ),
        _rule("apiextensions.k8s.io", ["customresourcedefinitions"], _READ),
        {"nonResourceURLs": ["/readyz"], "verbs": ["get"]},
    ]
    if values.controllers.create_classes:
        rules.append(_rule("node.k8s.io", ["runtimeclasses"], ["create", "patch"]))
    if values.certificates == OWN:
        hooks = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
        group = "admissionregistration.k8s.io"
        rules.append(_rule(group, hooks, [*_READ, "patch"], MOORAGE))
    return rules


def _own_rules(values: Values) -> list[Raw]:
    """Return the rules in our own namespace."""
    rules = [
        _rule("coordination.k8s.io", ["leases"], ["get", *_READ, "update"], LEASE),
        _rule("coordination.k8s.io", ["leases"], ["create"]),
    ]
    if values.certificates == OWN:
        rules += [
            _rule("", ["secrets"], ["get", *_READ, "patch", "delete"], SECRET),
            _rule("", ["secrets"], ["create"]),
        ]
    return rules


def _deployment(values: Values) -> Obj:
    name = part_name(CONTROLLERS)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(name, CONTROLLERS, namespace=values.namespace),
        "spec": {
            "replicas": values.controllers.replicas,
            "selector": {"matchLabels": selector(CONTROLLERS)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
            },
            "template": {
                "metadata": {"labels": labels(CONTROLLERS)},
                "spec": {
                    "serviceAccountName": name,
                    "priorityClassName": "system-cluster-critical",
                    "terminationGracePeriodSeconds": _STOP_S,
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "securityContext": pod_security_context(),
                    "containers": [_container(values)],
                },
            },
        },
    }


def _container(values: Values) -> Raw:
    arguments = [
        "controllers",
        "--in-cluster",
        "--runtimes-only",
        "--leader-elect",
        f"--health-port={HEALTH_PORT}",
        f"--log-level={values.log_level}",
    ]
    if values.controllers.create_classes:
        arguments.append("--create-classes")
    if values.certificates == OWN:
        arguments.append(f"--webhook-service={SERVICE}")
    return {
        **container_base(values, CONTROLLERS, values.controllers.resources),
        "args": arguments,
        "ports": [{"name": "health", "containerPort": HEALTH_PORT}],
        "readinessProbe": http_probe("/readyz", HEALTH_PORT, period_s=5),
        "livenessProbe": http_probe("/healthz", HEALTH_PORT, period_s=10),
    }
