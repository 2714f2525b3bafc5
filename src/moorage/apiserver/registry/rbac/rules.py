"""RBAC rules: matching an action, and coverage of rules by other rules.

Source: rbac.authorization.k8s.io/v1, API docs "Using RBAC Authorization". A rule without
subresource does not match subresources; `*/status` is every resource's status; resource names
match only requests that carry a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from moorage.api.rbac import PolicyRule

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
