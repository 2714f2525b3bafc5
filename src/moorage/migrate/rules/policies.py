"""RuntimePolicy objects: what rules of other policy engines become.

Every reader of such rules gives `PolicyRules` for a `Scope`; this makes the objects. Both kinds are
of the group runtime.moorage.dev.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from moorage.api.names import (
    dns_label_errors,
    dns_subdomain_errors,
    label_value_errors,
    qualified_name_errors,
)
from moorage.api.runtime_group import API_VERSION, GROUP
from moorage.migrate.rules.changes import Outcome, refused
from moorage.runtimeclass.isolation import Isolation
from moorage.runtimeclass.validation import LEGACY

# Isolation levels of known runtimes, by the names that classes, handlers and programs have.
#
# Only for what a migration writes: at run time a level comes from a class's label or from probes.
# Sources: the runtimes' own documents; Kata's handlers are named after their hypervisor.

_FAMILIES: tuple[tuple[re.Pattern[str], Isolation], ...] = (
    (
        re.compile(r"(?:kata|containerd-shim-kata).*(?:-tdx|-snp|-sev|-se|-cca|-coco.*)(?:-v2)?"),
        Isolation.CONFIDENTIAL_VIRTUAL_MACHINE,
    ),
    (
        re.compile(r"kata(?:-.*)?|containerd-shim-kata.*|firecracker|krun|crun-vm"),
        Isolation.VIRTUAL_MACHINE,
    ),
    (re.compile(r"runhcs-wcow-hypervisor|hyperv"), Isolation.VIRTUAL_MACHINE),
    (
        re.compile(r"gvisor(?:-.*)?|runsc(?:-.*)?|containerd-shim-runsc.*"),
        Isolation.USER_SPACE_KERNEL,
    ),
    (
        re.compile(r"runc|crun|youki|nvidia(?:-.*)?|runhcs-wcow-process|native"),
        Isolation.SHARED_KERNEL,
    ),
)


def isolation_of(name: str) -> str:
    """Return the level of a class, handler or program of this name, empty if it is unknown."""
    level = _level(name)
    return level.label if level is not None else ""


def weakest(names: list[str]) -> str:
    """Return the weakest level of these names, empty if one of them is unknown."""
    levels = [level for name in names if (level := _level(name)) is not None]
    return min(levels).label if levels and len(levels) == len(names) else ""


def _level(name: str) -> Isolation | None:
    return next((level for pattern, level in _FAMILIES if pattern.fullmatch(name)), None)


CLUSTER_KIND = "ClusterRuntimePolicy"
KIND = "RuntimePolicy"
ORIGIN_ANNOTATION = f"{GROUP}/migrated-from"
"""Annotation of a policy: which object it was made of."""

_SHOWN = 80
_MOST_CLASSES = 256
_MOST_TERMS = 64
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
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
    """Rules for classes; what is absent says nothing.

    `allowed` are the only classes that pods may have; `legacy` in it stands for none.
    """

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
        together = PolicyRules(
            default=self.default or other.default,
            is_enforced=self.is_enforced or other.is_enforced,
            allowed=self.allowed if self.allowed is not None else other.allowed,
            minimum_isolation=self.minimum_isolation or other.minimum_isolation,
        )
        return together if together.is_consistent else None

    @property
    def is_consistent(self) -> bool:
        """Return whether the default is among the allowed classes."""
        return not self.default or self.allowed is None or self.default in self.allowed


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


def valid_only(outcome: Outcome) -> Outcome:
    """Return an outcome without policies that the API would refuse; each is a finding instead."""
    problems = [_problem(policy) for policy in outcome.objects]
    if not any(problems):
        return outcome
    return Outcome(
        operations=outcome.operations,
        objects=[
            policy for policy, problem in zip(outcome.objects, problems, strict=True) if not problem
        ],
        notes=[
            *outcome.notes,
            *(refused(f"it would not be a valid RuntimePolicy: {p}") for p in problems if p),
        ],
    )


def _problem(policy: dict[str, Any]) -> str:
    """Return why the API would refuse a policy, empty if it would not.

    Source: the definitions in `moorage.runtimes.custom_resources`.
    """
    metadata, spec = policy["metadata"], policy["spec"]
    if errors := dns_subdomain_errors(metadata["name"]):
        return f"metadata.name: {errors[0]}"
    if "namespace" in metadata and (errors := dns_label_errors(metadata["namespace"])):
        return f"metadata.namespace: {errors[0]}"
    default, allowed = spec.get("defaultClassName"), spec.get("allowedClasses")
    for name in (*((default,) if default else ()), *(allowed or ())):
        if errors := dns_subdomain_errors(name):
            return f"the class {name[:_SHOWN]!r}: {errors[0]}"
    if allowed is not None and len(allowed) > _MOST_CLASSES:
        return f"it allows more than {_MOST_CLASSES} classes"
    if default and allowed is not None and default not in allowed:
        return f"its default class {default!r} is none of those that it allows"
    return _selector_problem(spec.get("namespaceSelector") or {})


def _selector_problem(selector: dict[str, Any]) -> str:
    labels, expressions = selector.get("matchLabels", {}), selector.get("matchExpressions", [])
    if not isinstance(labels, dict) or not isinstance(expressions, list):
        return "namespaceSelector is no label selector"
    pairs = [(key, [value]) for key, value in labels.items()]
    for expression in expressions:
        if not isinstance(expression, dict) or expression.get("operator") not in _OPERATORS:
            return "namespaceSelector has an expression that is none"
        values = expression.get("values") or []
        if not isinstance(values, list) or bool(values) != ("In" in str(expression["operator"])):
            return "namespaceSelector has an expression with wrong values"
        pairs.append((expression.get("key"), values))
    if max((len(pairs), *(len(values) for _, values in pairs))) > _MOST_TERMS:
        return f"namespaceSelector has more than {_MOST_TERMS} terms or values"
    for key, values in pairs:
        if not isinstance(key, str) or qualified_name_errors(key):
            return "namespaceSelector has a key that is no label"
        if any(not isinstance(value, str) or label_value_errors(value) for value in values):
            return f"namespaceSelector has a value for {key} that no label can have"
    return ""


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
    alternatives: Sequence[str], known_classes: Sequence[str], *, is_optional: bool = False
) -> tuple[PolicyRules | None, str]:
    """Return the rules that allow these classes, and what was decided on the way.

    `is_optional` says that pods without a class are allowed too.

    Alternatives with `*` or `?` become a floor where the isolation of their families is known, else
    the known classes that they match. None with the reason where neither is possible.
    """
    patterns = [name for name in alternatives if "*" in name or "?" in name]
    exact = tuple(name for name in alternatives if name not in patterns)
    without = (LEGACY,) if is_optional else ()
    if not patterns:
        return PolicyRules(allowed=tuple(dict.fromkeys((*exact, *without)))), ""
    floor = weakest([name.replace("*", "").replace("?", "").strip("-.") for name in alternatives])
    if floor:
        listed = " | ".join(alternatives)
        return PolicyRules(minimum_isolation=floor), (
            f"the pattern {listed!r} became the floor {floor}, which allows every class of that "
            "isolation or more, and no pod without a class"
        )
    matched = [name for name in known_classes if any(_matches(name, p) for p in patterns)]
    if not matched:
        return None, (
            f"the pattern {patterns[0]!r} matches no class among the files, and its isolation is "
            "not known; write allowedClasses or minimumIsolation"
        )
    allowed = tuple(dict.fromkeys((*exact, *matched, *without)))
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
