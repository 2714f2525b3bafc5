"""Default bindings of cluster roles: who has which role in every cluster.

Source: API docs "Default roles and role bindings", bindings of Kubernetes 1.36. The API server's
own certificate for node agents is bound here, which upstream leaves to the installer: a kubelet
asks whether its caller may read logs and start commands.
"""

from __future__ import annotations

from moorage.apiserver.authorization.default_policy.controller_roles import CONTROLLER_ROLES
from moorage.apiserver.registry.request import SYSTEM_MASTERS, UNAUTHENTICATED

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
    "system:kubelet-api-admin": ("User kube-apiserver-kubelet-client",),
    "moorage:runtimeclass-viewer": (_EVERYONE,),
}

BINDINGS: dict[str, tuple[str, ...]] = _BINDINGS | {
    role: (f"ServiceAccount {role.rpartition(':')[2]}",) for role in CONTROLLER_ROLES
}
"""Binding and cluster role of the same name → subjects: their kind and name."""
