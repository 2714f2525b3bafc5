"""Manifests of an attachment: the one source of its objects, for `moor attach` and the chart.

Each module makes the objects of one part out of the values; `objects` puts them in the order in
which they are installed. An object without the part that serves it can hold up a cluster, so the
webhook configurations are last.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.attach.manifests import (
    agent_policy,
    controllers,
    definitions,
    namespace,
    runtime_agent,
    scheduler,
    ui,
    webhook,
)
from moorage.attach.manifests.identity import Obj
from moorage.attach.values import Values

__all__ = ["KINDS", "WEBHOOKS", "WORKLOADS", "Obj", "objects"]

_PARTS: tuple[Callable[[Values], list[Obj]], ...] = (
    namespace.objects,
    definitions.objects,
    agent_policy.objects,
    runtime_agent.objects,
    controllers.objects,
    webhook.objects,
    scheduler.objects,
    ui.objects,
)

_RBAC = "rbac.authorization.k8s.io/v1"
_ADMISSION = "admissionregistration.k8s.io/v1"
_CERT_MANAGER = "cert-manager.io/v1"

WORKLOADS = ("Deployment", "DaemonSet")
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
DEFINITION = "CustomResourceDefinition"

KINDS = (
    ("v1", "Namespace"),
    ("apiextensions.k8s.io/v1", DEFINITION),
    ("v1", "ServiceAccount"),
    (_RBAC, "ClusterRole"),
    (_RBAC, "ClusterRoleBinding"),
    (_RBAC, "Role"),
    (_RBAC, "RoleBinding"),
    (_ADMISSION, "ValidatingAdmissionPolicy"),
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    (_CERT_MANAGER, "Issuer"),
    (_CERT_MANAGER, "Certificate"),
    ("v1", "Service"),
    ("policy/v1", "PodDisruptionBudget"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "DaemonSet"),
    (_ADMISSION, "MutatingWebhookConfiguration"),
    (_ADMISSION, "ValidatingWebhookConfiguration"),
)
"""API version and kind of all objects, in the order of their installation."""

_ORDER = [kind for _, kind in KINDS]


def objects(values: Values) -> list[Obj]:
    """Return all objects of an attachment, in the order in which they are installed.

    Raises ValueError for an object of a kind that has no place in the order.
    """
    made = [obj for part in _PARTS for obj in part(values)]
    return sorted(made, key=lambda obj: _ORDER.index(obj["kind"]))
