"""Controllers among the objects of an attachment: their Deployment, and rights to the letter.

tests/attach/test_rights.py runs them with these rules alone.
"""

from __future__ import annotations

from moorage.api.meta import Raw
from moorage.api.runtime_group import GROUP
from moorage.attach.manifests.identity import (
    CONTROLLERS,
    FOLLOW,
    MOORAGE,
    Obj,
    account,
    cluster_role,
    part_name,
    role,
    rule,
)
from moorage.attach.manifests.webhook import SECRET, SERVICE
from moorage.attach.manifests.workloads import ONE_MORE_FIRST, container, deployment, http_probe
from moorage.attach.values import OWN, Values
from moorage.runtimes.probing.default_classes import RECORD, RECORD_NAMESPACE

HEALTH_PORT = 8081
LEASE = part_name(CONTROLLERS)
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


_RECORD_RULES: tuple[Raw, ...] = (
    rule("", ["configmaps"], ["get", "update"], RECORD),
    # A name cannot restrict what is created.
    rule("", ["configmaps"], ["create"]),
)


def _cluster_rules(values: Values) -> list[Raw]:
    rules: list[Raw] = [
        rule("", ["nodes", "replicationcontrollers"], FOLLOW),
        # Namespaces of floors are labelled, so that these fail closed.
        rule("", ["namespaces"], [*FOLLOW, "patch"]),
        # Gates are removed, what pods wait for is a condition; get, before a gate goes.
        rule("", ["pods"], ["get", *FOLLOW, "patch"]),
        rule("", ["pods/status"], ["patch"]),
        rule("", ["events"], ["create", "patch"]),
        # What pods use, from their kubelets (overhead drift).
        rule("", ["nodes/proxy"], ["get"]),
        rule("apps", ["replicasets"], FOLLOW),
        # Rollouts move workloads to another class.
        rule("apps", ["deployments", "statefulsets", "daemonsets"], [*FOLLOW, "patch"]),
        rule("batch", ["jobs"], FOLLOW),
        rule("batch", ["cronjobs"], [*FOLLOW, "patch"]),
        rule("node.k8s.io", ["runtimeclasses"], FOLLOW),
        rule(GROUP, ["runtimeprofiles", "runtimeclassquotas", "runtimerollouts"], FOLLOW),
        rule(GROUP, ["runtimepolicies", "clusterruntimepolicies"], FOLLOW),
        # Its finalizer keeps an installation until all nodes are done.
        rule(GROUP, ["runtimeinstallations"], [*FOLLOW, "patch"]),
        rule(
            GROUP,
            ["runtimeclassquotas/status", "runtimeinstallations/status", "runtimerollouts/status"],
            ["patch"],
        ),
        rule("apiextensions.k8s.io", ["customresourcedefinitions"], FOLLOW),
        {"nonResourceURLs": ["/readyz"], "verbs": ["get"]},
    ]
    if values.controllers.create_classes:
        rules.append(rule("node.k8s.io", ["runtimeclasses"], ["create", "patch"]))
    if values.certificates == OWN:
        hooks = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
        group = "admissionregistration.k8s.io"
        rules.append(rule(group, hooks, [*FOLLOW, "patch"], MOORAGE))
    return rules


def _own_rules(values: Values) -> list[Raw]:
    """Return the rules in our own namespace."""
    rules = [
        rule("coordination.k8s.io", ["leases"], ["get", *FOLLOW, "update"], LEASE),
        rule("coordination.k8s.io", ["leases"], ["create"]),
    ]
    if values.certificates == OWN:
        rules += [
            rule("", ["secrets"], ["get", *FOLLOW, "patch", "delete"], SECRET),
            rule("", ["secrets"], ["create"]),
        ]
    return rules


def _deployment(values: Values) -> Obj:
    return deployment(
        values,
        CONTROLLERS,
        _container(values),
        replicas=values.controllers.replicas,
        strategy=ONE_MORE_FIRST,
        terminationGracePeriodSeconds=_STOP_S,
    )


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
        **container(values, CONTROLLERS, values.controllers.resources),
        "args": arguments,
        "ports": [{"name": "health", "containerPort": HEALTH_PORT}],
        "readinessProbe": http_probe("/readyz", HEALTH_PORT, period_s=5),
        "livenessProbe": http_probe("/healthz", HEALTH_PORT, period_s=10),
    }
