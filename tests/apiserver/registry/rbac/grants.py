"""Roles and bindings in memory, read as the cluster's are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast

import msgspec

from moorage.api.meta import Object
from moorage.api.rbac import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding
from moorage.apiserver.registry.rbac import RuleResolver

T = TypeVar("T", bound=Object)


class FakeReader(Generic[T]):
    """A TypedReader without a store."""

    def __init__(self, type_: type[T]) -> None:
        self._type = type_
        self._found: dict[tuple[str, str], T] = {}

    def add(self, name: str, namespace: str, **fields: Any) -> None:
        obj = {"metadata": {"name": name, "namespace": namespace}, **fields}
        self._found[namespace, name] = msgspec.convert(obj, self._type)

    def get(self, name: str, namespace: str = "") -> T | None:
        return self._found.get((namespace, name))

    def all(self, namespace: str = "") -> Iterator[T]:
        yield from (obj for (home, _), obj in self._found.items() if home == namespace)


class Grants:
    """Who holds what; `resolver` reads it."""

    def __init__(self) -> None:
        self._roles = FakeReader(Role)
        self._role_bindings = FakeReader(RoleBinding)
        self._cluster_roles = FakeReader(ClusterRole)
        self._cluster_role_bindings = FakeReader(ClusterRoleBinding)
        self.resolver = RuleResolver(
            *(
                cast(Any, reader)
                for reader in (
                    self._roles,
                    self._role_bindings,
                    self._cluster_roles,
                    self._cluster_role_bindings,
                )
            )
        )

    def role(self, name: str, *rules: dict[str, Any], namespace: str = "") -> None:
        """A ClusterRole, or a Role when it has a namespace."""
        readers: FakeReader[Any] = self._roles if namespace else self._cluster_roles
        readers.add(name, namespace, rules=list(rules))

    def bind(self, role: str, *subjects: dict[str, Any], namespace: str = "",
             kind: str = "ClusterRole") -> None:  # fmt: skip
        """A binding named after the role; in a namespace, a RoleBinding."""
        readers: FakeReader[Any] = self._role_bindings if namespace else self._cluster_role_bindings
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
        readers.add(role, namespace, roleRef=ref, subjects=list(subjects))


def rule(
    verbs: list[str], resources: list[str], group: str = "", names: list[str] | None = None
) -> dict[str, Any]:
    """A rule about resources, as objects carry it."""
    named = {"resourceNames": names} if names else {}
    return {"verbs": verbs, "apiGroups": [group], "resources": resources, **named}


def typed(**fields: Any) -> PolicyRule:
    """A rule from its wire fields."""
    return msgspec.convert(fields, PolicyRule)


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "name": name}


def group(name: str) -> dict[str, str]:
    return {"kind": "Group", "name": name}
