"""Workloads of the parts: what their Deployments, pods and containers have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moorage.api.meta import Raw
from moorage.attach.manifests.identity import Obj, labels, metadata, part_name, selector
from moorage.attach.values import Amounts, Values

ONE_MORE_FIRST: Raw = {
    "type": "RollingUpdate",
    "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
}
"""Strategy of a Deployment: a new pod is ready before an old one ends."""


def deployment(
    values: Values,
    component: str,
    of_container: Raw,
    *,
    replicas: int,
    strategy: Mapping[str, Any],
    is_critical: bool = True,
    **pod: Any,
) -> Obj:
    """Return the Deployment of a part that needs no right on its node.

    is_critical: whether its pods have the priority of a cluster's own parts.
    pod: further fields of its pods' specification.
    """
    name = part_name(component)
    priority = {"priorityClassName": "system-cluster-critical"} if is_critical else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(name, component, namespace=values.namespace),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": selector(component)},
            "strategy": dict(strategy),
            "template": {
                "metadata": {"labels": labels(component)},
                "spec": {
                    "serviceAccountName": name,
                    **priority,
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "securityContext": _pod_security_context(),
                    "containers": [of_container],
                    **pod,
                },
            },
        },
    }


def container(values: Values, component: str, amounts: Amounts) -> Raw:
    """Return the container of a part, without its arguments: one that has no privileges."""
    return {
        "name": component,
        "image": values.image,
        "imagePullPolicy": values.image_pull_policy,
        "command": ["moor"],
        "resources": resources(amounts),
        # So that the pod's status says why a part ended.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def resources(amounts: Amounts) -> Raw:
    """Return the resources of a container; those that are empty are left out."""
    given = {"requests": amounts.requests, "limits": amounts.limits}
    return {kind: dict(amount) for kind, amount in given.items() if amount}


def _pod_security_context() -> Raw:
    return {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def http_probe(path: str, port: int, *, scheme: str = "HTTP", period_s: int) -> Raw:
    """Return a probe of a container by HTTP."""
    return {
        "httpGet": {"path": path, "port": port, "scheme": scheme},
        "periodSeconds": period_s,
        "timeoutSeconds": 3,
        "failureThreshold": 3,
    }
