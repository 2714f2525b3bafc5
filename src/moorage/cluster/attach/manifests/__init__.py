"""Manifests of an attachment: the one source of its objects, for `moor attach` and the chart.

Each module makes the objects of one part out of the values; `objects` puts them in the order in
which they are installed. An object without the part that serves it can hold up a cluster, so the
webhook configurations are last.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.cluster.attach.manifests import (
    agent_policy,
    definitions,
    namespace,
    runtime_agent,
    scheduler,
)
from moorage.cluster.attach.manifests.identity import Obj
from moorage.cluster.attach.values import Values

__all__ = ["Obj", "objects"]

_PARTS: tuple[Callable[[Values], list[Obj]], ...] = (
    namespace.objects,
    definitions.objects,
    agent_policy.objects,
    runtime_agent.objects,
    scheduler.objects,
)

_ORDER = (
    "Namespace",
    "CustomResourceDefinition",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ConfigMap",
    "Secret",
    "Issuer",
    "Certificate",
    "Service",
    "PodDisruptionBudget",
    "Deployment",
    "DaemonSet",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
)


def objects(values: Values) -> list[Obj]:
    """Return all objects of an attachment, in the order in which they are installed.

    Raises ValueError for an object of a kind that has no place in the order.
    """
    made = [obj for part in _PARTS for obj in part(values)]
    return sorted(made, key=lambda obj: _ORDER.index(obj["kind"]))
