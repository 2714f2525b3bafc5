"""RBAC rules: matching an action, coverage of rules by other rules, and the rules a user holds.

Source: rbac.authorization.k8s.io/v1, API docs "Using RBAC Authorization". A rule without
subresource does not match subresources; `*/status` is every resource's status; resource names
match only requests that carry a name. A RoleBinding grants in its namespace, a ClusterRoleBinding
everywhere; a binding to a role that does not exist grants nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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

ALL = "*"
MAX_COMPARISONS = 500_000
"""Permissions times held rules that an escalation check compares: about 0.3 s."""
_MAX_DESCRIBED = 500


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """A requested action. Only verb and path for a path outside the API's resources."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def is_resource(self) -> bool:
        return not self.path

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def allows(rule: PolicyRule, action: Action) -> bool:
    """Return whether the rule allows the action (the binding decides on the namespace)."""
    if ALL not in rule.verbs and action.verb not in rule.verbs:
        return False
    if not action.is_resource:
        return any(_path_matches(pattern, action.path) for pattern in rule.non_resource_urls)
    return (
        (ALL in rule.api_groups or action.group in rule.api_groups)
        and _resource_matches(rule.resources, action)
        and (not rule.resource_names or action.name in rule.resource_names)
    )


def _resource_matches(resources: Sequence[str], action: Action) -> bool:
    if ALL in resources or action.full_resource in resources:
        return True
    return bool(action.subresource) and f"{ALL}/{action.subresource}" in resources


def _path_matches(pattern: str, path: str) -> bool:
    return pattern == path or (pattern.endswith(ALL) and path.startswith(pattern.rstrip(ALL)))


class TooManyPermissionsError(ValueError):
    """Rules expand to more permissions than can be compared; the text has their number."""


def uncovered(held: Iterable[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return the smallest parts of `wanted` that no held rule covers: granting them is escalation.

    A rule of a few KB expands to billions of parts, so the comparisons are bounded; a rule that one
    held rule covers as a whole is not expanded. Raises TooManyPermissionsError.
    """
    owners = list(held)
    apart = [rule for rule in wanted if not any(_covers_whole(owner, rule) for owner in owners)]
    count = sum(map(_count_parts, apart))
    if count * max(1, len(owners)) > MAX_COMPARISONS:
        raise TooManyPermissionsError(
            f"{count} permissions are too many to compare with the {len(owners)} rules of the user"
        )
    return [
        part
        for rule in apart
        for part in _parts(rule)
        if not any(_covers(owner, part) for owner in owners)
    ]


def _count_parts(rule: PolicyRule) -> int:
    resources = len(rule.api_groups) * len(rule.resources) * max(1, len(rule.resource_names))
    return len(rule.verbs) * (len(rule.non_resource_urls) + resources)


def _covers_whole(owner: PolicyRule, rule: PolicyRule) -> bool:
    """Return whether a rule is covered, compared as sets; may miss rules covered in parts."""
    return (
        _holds(owner.verbs, rule.verbs)
        and _holds(owner.api_groups, rule.api_groups)
        and _holds(owner.resources, rule.resources)
        and _holds(owner.non_resource_urls, rule.non_resource_urls)
        and (
            not owner.resource_names
            or (bool(rule.resource_names) and set(rule.resource_names) <= set(owner.resource_names))
        )
    )


def _holds(owned: Sequence[str], wanted: Sequence[str]) -> bool:
    return not wanted or ALL in owned or set(wanted) <= set(owned)


def _parts(rule: PolicyRule) -> Iterable[PolicyRule]:
    """Expand a rule into rules with one verb, one group, one resource, one name or path."""
    for verb in rule.verbs:
        for path in rule.non_resource_urls:
            yield PolicyRule(verbs=(verb,), non_resource_urls=(path,))
        for group in rule.api_groups:
            for resource in rule.resources:
                for name in rule.resource_names or ("",):
                    yield PolicyRule(
                        verbs=(verb,),
                        api_groups=(group,),
                        resources=(resource,),
                        resource_names=(name,) if name else (),
                    )


def _covers(owner: PolicyRule, part: PolicyRule) -> bool:
    if ALL not in owner.verbs and part.verbs[0] not in owner.verbs:
        return False
    if part.non_resource_urls:
        wanted = part.non_resource_urls[0]
        return any(_path_matches(pattern, wanted) for pattern in owner.non_resource_urls)
    group, resource = part.api_groups[0], part.resources[0]
    if ALL not in owner.api_groups and group not in owner.api_groups:
        return False
    subresource = resource.partition("/")[2]
    is_resource_held = (
        ALL in owner.resources
        or resource in owner.resources
        or bool(subresource and f"{ALL}/{subresource}" in owner.resources)
    )
    if not is_resource_held:
        return False
    return not owner.resource_names or (
        bool(part.resource_names) and part.resource_names[0] in owner.resource_names
    )


def described(rules: Iterable[PolicyRule]) -> str:
    """Format rules for the escalation error: verbs grouped by resource, lines sorted.

    At most 500 lines, then the number of omitted ones.
    """
    grouped: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for rule in rules:
        key = (rule.api_groups, rule.resources, rule.resource_names, rule.non_resource_urls)
        grouped.setdefault(key, []).extend(rule.verbs)
    lines = sorted(_described(key, verbs) for key, verbs in grouped.items())
    left_out = len(lines) - _MAX_DESCRIBED
    if left_out > 0:
        lines[_MAX_DESCRIBED:] = [f"and {left_out} more"]
    return "\n".join(lines)


def _described(key: tuple[tuple[str, ...], ...], verbs: Sequence[str]) -> str:
    groups, resources, resource_names, paths = key
    labelled = (
        ("APIGroups", groups),
        ("Resources", resources),
        ("ResourceNames", resource_names),
        ("NonResourceURLs", paths),
        ("Verbs", verbs),
    )
    parts = [
        f"{label}:[{' '.join(_quoted(value) for value in values)}]"
        for label, values in labelled
        if values
    ]
    return "{" + ", ".join(parts) + "}"


def _quoted(value: str) -> str:
    return f'"{value}"'


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
