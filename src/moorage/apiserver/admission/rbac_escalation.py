"""RBAC escalation check: users grant only permissions that they hold.

Writing a role needs every permission in it, or the verb `escalate` on roles; a ClusterRole that
has (or had) an aggregation rule needs all permissions, since the rule can aggregate any.
Writing a binding needs every permission of its role, or the verb `bind`. Source: API docs
"Privilege escalation prevention and bootstrapping"; registry `rbac/*/policybased`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from moorage.api.errors import NotFoundError
from moorage.api.rbac import PolicyRule, RoleRef
from moorage.apiserver.admission.admission_request import refused
from moorage.apiserver.admission.chain import CREATE, UPDATE, Scope, is_for_collector
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.rbac import (
    ALL,
    Action,
    RuleResolver,
    TooManyPermissionsError,
    described,
    uncovered,
)
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Attributes, User

_GROUP = "rbac.authorization.k8s.io"
_ROLES = ("roles", "clusterroles")
_EVERYTHING = (
    PolicyRule(verbs=(ALL,), api_groups=(ALL,), resources=(ALL,)),
    PolicyRule(verbs=(ALL,), non_resource_urls=(ALL,)),
)
_RESOURCES = tuple(
    f"{plural}.{_GROUP}" for plural in (*_ROLES, "rolebindings", "clusterrolebindings")
)


class RbacEscalation:
    """Refuses writes of roles and bindings that grant more than the user holds.

    `is_allowed(user, action)` is the cluster's authorizer.
    """

    name = "RBACEscalation"
    scope = Scope.of(_RESOURCES, [CREATE, UPDATE])
    mutate = None

    def __init__(self, resolver: RuleResolver, is_allowed: Callable[[User, Action], bool]) -> None:
        self._resolver = resolver
        self._is_allowed = is_allowed
        self.validate = self._check

    def _check(self, attributes: Attributes) -> None:
        user = attributes.request.user
        if SYSTEM_MASTERS in user.groups or is_for_collector(attributes):
            return
        verb = "escalate" if attributes.kind.plural in _ROLES else "bind"
        if self._may(user, verb, attributes):
            return
        missing = self._missing(attributes, self._wanted_rules(attributes))
        if missing:
            raise refused(
                attributes,
                f'user "{user.name}" (groups={_shown(user.groups)}) is attempting to grant RBAC '
                f"permissions not currently held:\n{described(missing)}",
            )
        is_aggregated = _aggregates(attributes.obj) or _aggregates(attributes.old)
        if is_aggregated and self._missing(attributes, _EVERYTHING):
            raise refused(
                attributes, "must have cluster-admin privileges to use the aggregationRule"
            )

    def _missing(self, attributes: Attributes, wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
        """Return the parts of the wanted rules that the user does not hold in that namespace."""
        user, namespace = attributes.request.user, attributes.namespace
        held = (grant.rule for grant in self._resolver.rules_of(user, namespace))
        try:
            return uncovered(held, wanted)
        except TooManyPermissionsError as error:
            raise refused(
                attributes, f"{error}; grant them in several roles, or hold the verb escalate"
            ) from error

    def _may(self, user: User, verb: str, attributes: Attributes) -> bool:
        assert attributes.obj is not None
        resource, name = attributes.kind.plural, attributes.name
        if attributes.operation == CREATE:
            # A create is authorized without a name, because its URL has none. The URL of an update
            # that creates has one: upstream accepts a rule for that name, Moorage does not.
            name = ""
        if verb == "bind":
            ref = attributes.obj.get("roleRef", {})
            resource = "clusterroles" if ref.get("kind") == "ClusterRole" else "roles"
            name = ref.get("name", "")
        action = Action(
            verb=verb, group=_GROUP, resource=resource, namespace=attributes.namespace, name=name
        )
        return self._is_allowed(user, action)

    def _wanted_rules(self, attributes: Attributes) -> Iterable[PolicyRule]:
        assert attributes.obj is not None
        if attributes.kind.plural in _ROLES:
            # Aggregated rules are written by the controller, which may escalate.
            return msgspec.convert(attributes.obj.get("rules", ()), tuple[PolicyRule, ...])
        ref = msgspec.convert(attributes.obj.get("roleRef", {}), RoleRef)
        if not self._resolver.role_exists(ref, attributes.namespace):
            plural = "clusterroles" if ref.kind == "ClusterRole" else "roles"
            raise NotFoundError.of(plural, ref.name, group=_GROUP)
        return self._resolver.role_rules(ref, attributes.namespace)


def _aggregates(role: Obj | None) -> bool:
    """Return whether the role is a ClusterRole with an aggregation rule."""
    return bool(((role or {}).get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _shown(groups: Iterable[str]) -> str:
    return "[" + " ".join(f'"{group}"' for group in groups) + "]"
