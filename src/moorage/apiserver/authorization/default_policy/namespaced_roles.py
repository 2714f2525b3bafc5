"""Default roles within kube-system and kube-public, and their bindings.

Source: API docs "Default roles and role bindings", rules of Kubernetes 1.36.
"""

from __future__ import annotations

from moorage.apiserver.authorization.default_policy.rules import EVENTS, READ, rule
from moorage.apiserver.registry.kind import Obj

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
