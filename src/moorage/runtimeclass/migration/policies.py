"""RuntimePolicy objects: what rules of other policy engines become.

Every reader of such rules gives `PolicyRules` for a `Scope`; this makes the objects. Both kinds are
of the group runtime.moorage.dev.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from moorage.api.names import dns_subdomain_errors
from moorage.runtimeclass.migration.isolation_families import weakest

API_VERSION = "runtime.moorage.dev/v1alpha1"
CLUSTER_KIND = "ClusterRuntimePolicy"
KIND = "RuntimePolicy"
ORIGIN_ANNOTATION = "runtime.moorage.dev/migrated-from"
"""Annotation of a policy: which object it was made of."""

_NAME_LABEL = "kubernetes.io/metadata.name"


class Scope(msgspec.Struct, frozen=True):
    """Which namespaces rules are for: all, unless something is given.

    `namespace` makes it a RuntimePolicy of that namespace. `selector` is a label selector.
    """

    namespace: str = ""
    namespaces: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    selector: dict[str, Any] = {}

    def namespace_selector(self) -> dict[str, Any]:
        """Return the selector of namespaces, empty for all."""
        selector: dict[str, Any] = {}
        if labels := self.selector.get("matchLabels"):
            selector["matchLabels"] = labels
        expressions = list(self.selector.get("matchExpressions") or ())
        for operator, names in (("In", self.namespaces), ("NotIn", self.excluded)):
            if names:
                expressions.append(
                    {"key": _NAME_LABEL, "operator": operator, "values": list(names)}
                )
        if expressions:
            selector["matchExpressions"] = expressions
        return selector


class PolicyRules(msgspec.Struct, frozen=True):
    """Rules for classes; what is absent says nothing. Empty `allowed` allows none."""

    default: str = ""
    is_enforced: bool = False
    allowed: tuple[str, ...] | None = None
    minimum_isolation: str = ""

    def joined(self, other: PolicyRules) -> PolicyRules | None:
        """Return both together, None if both say something about the same."""
        for field in ("default", "minimum_isolation", "allowed"):
            mine, theirs = getattr(self, field), getattr(other, field)
            if mine != theirs and mine not in ("", None) and theirs not in ("", None):
                return None
        return PolicyRules(
            default=self.default or other.default,
            is_enforced=self.is_enforced or other.is_enforced,
            allowed=self.allowed if self.allowed is not None else other.allowed,
            minimum_isolation=self.minimum_isolation or other.minimum_isolation,
        )


def policy_object(name: str, scope: Scope, rules: PolicyRules, origin: str) -> dict[str, Any]:
    """Return the object of rules for a scope; `origin` names the object that they come from."""
    spec: dict[str, Any] = {}
    metadata: dict[str, Any] = {"name": object_name(name)}
    kind = CLUSTER_KIND
    if scope.namespace:
        kind = KIND
        metadata["namespace"] = scope.namespace
    elif selector := scope.namespace_selector():
        spec["namespaceSelector"] = selector
    metadata["annotations"] = {ORIGIN_ANNOTATION: origin}
    if rules.default:
        spec["defaultClassName"] = rules.default
    if rules.is_enforced:
        spec["enforceDefault"] = True
    if rules.minimum_isolation:
        spec["minimumIsolation"] = rules.minimum_isolation
    if rules.allowed is not None:
        spec["allowedClasses"] = list(rules.allowed)
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def object_name(name: str) -> str:
    """Return a name as objects may have it; one that cannot be corrected stays."""
    if not dns_subdomain_errors(name):
        return name
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-.") else "-" for c in name.lower())
    return kept.strip("-.") or name


def joined_objects(
    name: str, entries: Sequence[tuple[str, Scope, PolicyRules]], origin: str
) -> list[dict[str, Any]]:
    """Return the objects of named rules: one for each scope whose rules agree.

    The names are the source's, with the rule's behind it where there are several objects.
    """
    groups: list[tuple[str, Scope, PolicyRules]] = []
    for rule, scope, rules in entries:
        for index, (first, other_scope, others) in enumerate(groups):
            together = others.joined(rules) if other_scope == scope else None
            if together is not None:
                groups[index] = (first, scope, together)
                break
        else:
            groups.append((rule, scope, rules))
    if len(groups) == 1:
        _, scope, rules = groups[0]
        return [policy_object(name, scope, rules, origin)]
    names = [f"{name}-{rule}" if rule else name for rule, _, _ in groups]
    return [
        policy_object(own if names.count(own) == 1 else f"{own}-{index + 1}", scope, rules, origin)
        for index, (own, (_, scope, rules)) in enumerate(zip(names, groups, strict=True))
    ]


def allowed_rules(
    alternatives: Sequence[str], known_classes: Sequence[str]
) -> tuple[PolicyRules | None, str]:
    """Return the rules that allow these classes, and what was decided on the way.

    Alternatives with `*` or `?` become a floor where the isolation of their families is known, else
    the known classes that they match. None with the reason where neither is possible.
    """
    patterns = [name for name in alternatives if "*" in name or "?" in name]
    exact = tuple(name for name in alternatives if name not in patterns)
    if not patterns:
        return PolicyRules(allowed=exact), ""
    floor = weakest([name.replace("*", "").replace("?", "").strip("-.") for name in alternatives])
    if floor:
        listed = " | ".join(alternatives)
        return PolicyRules(minimum_isolation=floor), (
            f"the pattern {listed!r} became the floor {floor}, which allows every class of that "
            "isolation or more"
        )
    matched = [name for name in known_classes if any(_matches(name, p) for p in patterns)]
    if not matched:
        return None, (
            f"the pattern {patterns[0]!r} matches no class among the files, and its isolation is "
            "not known; write allowedClasses or minimumIsolation"
        )
    allowed = tuple(dict.fromkeys((*exact, *matched)))
    return PolicyRules(allowed=allowed), (
        f"the pattern {patterns[0]!r} became the classes it matches now: {', '.join(matched)}"
    )


def _matches(name: str, pattern: str) -> bool:
    """Return whether a name matches a pattern of `*` and `?`, in time linear for each `*`."""
    rows = {0}
    for character in name:
        rows = _closed(rows, pattern)
        rows = {
            row if pattern[row] == "*" else row + 1
            for row in rows
            if row < len(pattern) and pattern[row] in ("*", "?", character)
        }
    return len(pattern) in _closed(rows, pattern)


def _closed(rows: set[int], pattern: str) -> set[int]:
    closed = set(rows)
    for row in sorted(rows):
        while row < len(pattern) and pattern[row] == "*":
            row += 1
            closed.add(row)
    return closed
