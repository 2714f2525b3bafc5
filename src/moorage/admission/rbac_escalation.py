"""Nobody grants what they do not hold.

Writing a role needs every permission in it, or the verb `escalate` on roles; writing a binding
needs every permission of its role, or the verb `bind`. Source: API docs "Privilege escalation
prevention and bootstrapping".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from moorage.admission.chain import CREATE, UPDATE, Scope
from moorage.admission.refusal import refused
from moorage.api.rbac import PolicyRule, RoleRef
from moorage.registry.rbac.resolver import RuleResolver
from moorage.registry.rbac.rules import Action, described, uncovered
from moorage.registry.request import SYSTEM_MASTERS, Attributes, User

_GROUP = "rbac.authorization.k8s.io"
_ROLES = ("roles", "clusterroles")
_RESOURCES = tuple(
    f"{plural}.{_GROUP}" for plural in (*_ROLES, "rolebindings", "clusterrolebindings")
)


class RbacEscalation:
    """`is_allowed(user, action)` is the cluster's authorizer."""

    name = "RBACEscalation"
    scope = Scope.of(_RESOURCES, [CREATE, UPDATE])
    mutate = None

    def __init__(self, resolver: RuleResolver, is_allowed: Callable[[User, Action], bool]) -> None:
        self._resolver = resolver
        self._is_allowed = is_allowed
        self.validate = self._check

    def _check(self, attributes: Attributes) -> None:
        user = attributes.request.user
        if SYSTEM_MASTERS in user.groups:
            return
        verb = "escalate" if attributes.kind.plural in _ROLES else "bind"
        if self._may(user, verb, attributes):
            return
        wanted = self._wanted_rules(attributes)
        held = [each.rule for each in self._resolver.rules_of(user, attributes.namespace)]
        missing = uncovered(held, wanted)
        if missing:
            raise refused(
                attributes,
                f'user "{user.name}" (groups={_shown(user.groups)}) is attempting to grant RBAC '
                f"permissions not currently held:\n{described(missing)}",
            )

    def _may(self, user: User, verb: str, attributes: Attributes) -> bool:
        assert attributes.obj is not None
        resource, name = attributes.kind.plural, attributes.name
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
            # Aggregated rules are filled in by the controller, which holds everything.
            return msgspec.convert(attributes.obj.get("rules", ()), tuple[PolicyRule, ...])
        ref = msgspec.convert(attributes.obj.get("roleRef", {}), RoleRef)
        if not self._resolver.role_exists(ref, attributes.namespace):
            plural = "clusterroles" if ref.kind == "ClusterRole" else "roles"
            raise refused(attributes, f'{plural}.{_GROUP} "{ref.name}" not found')
        return self._resolver.role_rules(ref, attributes.namespace)


def _shown(groups: Iterable[str]) -> str:
    return "[" + " ".join(f'"{group}"' for group in groups) + "]"
