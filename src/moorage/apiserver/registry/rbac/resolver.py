"""Rule resolver: the rules a user holds, with the binding that grants each.

Source: rbac.authorization.k8s.io/v1. A RoleBinding grants in its namespace, a ClusterRoleBinding
everywhere; a binding to a role that does not exist grants nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from moorage.api.rbac import (
    ClusterRole,
    ClusterRoleBinding,
    PolicyRule,
    Role,
    RoleBinding,
    RoleRef,
    Subject,
)
from moorage.apiserver.registry.request import User
from moorage.apiserver.registry.typed import TypedReader


class HeldRule(msgspec.Struct, frozen=True):
    """A rule and the text of the reason that the user holds it."""

    rule: PolicyRule
    source: str


class RuleResolver(msgspec.Struct, frozen=True):
    """Resolves rules from the present roles and bindings."""

    roles: TypedReader[Role]
    role_bindings: TypedReader[RoleBinding]
    cluster_roles: TypedReader[ClusterRole]
    cluster_role_bindings: TypedReader[ClusterRoleBinding]

    def rules_of(self, user: User, namespace: str) -> Iterator[HeldRule]:
        """Yield the user's rules in a namespace; `""` for the cluster-wide ones."""
        # As a set: a review can contain a hundred thousand groups.
        groups = frozenset(user.groups)
        for binding in self.cluster_role_bindings.all():
            subject = _subject_of(user, groups, binding.subjects, "")
            if subject is not None:
                source = _source(
                    "ClusterRoleBinding", binding.metadata.name, binding.role_ref, subject
                )
                for rule in self.role_rules(binding.role_ref, ""):
                    yield HeldRule(rule, source)
        if not namespace:
            return
        for scoped in self.role_bindings.all(namespace):
            subject = _subject_of(user, groups, scoped.subjects, namespace)
            if subject is not None:
                name = f"{scoped.metadata.name}/{namespace}"
                source = _source("RoleBinding", name, scoped.role_ref, subject)
                for rule in self.role_rules(scoped.role_ref, namespace):
                    yield HeldRule(rule, source)

    def role_rules(self, ref: RoleRef, namespace: str) -> tuple[PolicyRule, ...]:
        """Return the rules of the referenced role; empty if the role does not exist."""
        role: Role | ClusterRole | None
        if ref.kind == "ClusterRole":
            role = self.cluster_roles.get(ref.name)
        else:
            role = self.roles.get(ref.name, namespace)
        return (role.rules or ()) if role is not None else ()

    def role_exists(self, ref: RoleRef, namespace: str) -> bool:
        if ref.kind == "ClusterRole":
            return self.cluster_roles.get(ref.name) is not None
        return self.roles.get(ref.name, namespace) is not None


def _subject_of(
    user: User, groups: frozenset[str], subjects: tuple[Subject, ...], namespace: str
) -> Subject | None:
    for subject in subjects:
        if _is_subject(user, groups, subject, namespace):
            return subject
    return None


def _is_subject(user: User, groups: frozenset[str], subject: Subject, namespace: str) -> bool:
    match subject.kind:
        case "User":
            return subject.name == user.name
        case "Group":
            return subject.name in groups
        case "ServiceAccount":
            home = subject.namespace or namespace
            return user.name == f"system:serviceaccount:{home}:{subject.name}"
        case _:
            return False


def _source(kind: str, name: str, ref: RoleRef, subject: Subject) -> str:
    who = subject.name
    if subject.kind == "ServiceAccount":
        who = f"{subject.name}/{subject.namespace}"
    return f'RBAC: allowed by {kind} "{name}" of {ref.kind} "{ref.name}" to {subject.kind} "{who}"'
