"""Default RBAC policy: the roles and bindings that every cluster has, as tables."""

from moorage.apiserver.authorization.default_policy.component_roles import COMPONENT_ROLES
from moorage.apiserver.authorization.default_policy.controller_roles import CONTROLLER_ROLES
from moorage.apiserver.authorization.default_policy.user_roles import (
    AGGREGATED,
    BINDINGS,
    NAMESPACED_BINDINGS,
    NAMESPACED_ROLES,
    OWN_AGGREGATED,
    SYSTEM,
    USER_ROLES,
)

ROLES = {**USER_ROLES, **COMPONENT_ROLES, **CONTROLLER_ROLES}
"""Cluster role → its rules."""

__all__ = [
    "AGGREGATED",
    "BINDINGS",
    "NAMESPACED_BINDINGS",
    "NAMESPACED_ROLES",
    "OWN_AGGREGATED",
    "ROLES",
    "SYSTEM",
]
