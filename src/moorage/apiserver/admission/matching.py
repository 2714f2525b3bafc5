"""Matching: which writes the rules and selectors of a `MatchResources` select.

Source: API docs "Matching requests"; apiserver `webhook/predicates/rules`, `policy/matching`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moorage.api import labels
from moorage.apiserver.registry.kind import Obj, Served
from moorage.apiserver.registry.request import Attributes

_ALL = "*"
_NAMESPACES = "namespaces"

NamespaceLabels = Callable[[str], Mapping[str, str]]
"""Returns the labels of a namespace, by its name."""


def matched_version(
    match: Mapping[str, Any], attributes: Attributes, namespace_labels: NamespaceLabels
) -> Served | None:
    """Return the version in which a write is selected, None if it is not.

    It is the version of the request, or, under the policy `Equivalent`, another served one.
    """
    if not _selects_namespace(match, attributes, namespace_labels):
        return None
    if not _selects_object(match, attributes):
        return None
    policy = match.get("matchPolicy", "Equivalent")
    if _version_of(match.get("excludeResourceRules", ()), policy, attributes) is not None:
        return None
    rules = match.get("resourceRules", ())
    return _version_of(rules, policy, attributes) if rules else attributes.served


def namespace_of(attributes: Attributes) -> str:
    """Return the namespace of a write; a Namespace is in the one that it is."""
    is_namespace = attributes.kind.plural == _NAMESPACES and not attributes.kind.group
    return attributes.name if is_namespace else attributes.namespace


def _version_of(
    rules: Iterable[Mapping[str, Any]], policy: str, attributes: Attributes
) -> Served | None:
    versions = [attributes.served]
    if policy == "Equivalent":
        versions += [one for one in attributes.kind.served if one is not attributes.served]
    for served in versions:
        if any(_covers(rule, served, attributes) for rule in rules):
            return served
    return None


def _covers(rule: Mapping[str, Any], served: Served, attributes: Attributes) -> bool:
    names = rule.get("resourceNames", ())
    return (
        _includes(rule.get("operations", ()), attributes.operation)
        and _includes(rule.get("apiGroups", ()), served.group)
        and _includes(rule.get("apiVersions", ()), served.version)
        and _covers_scope(rule.get("scope", _ALL), attributes)
        and any(_covers_resource(text, attributes) for text in rule.get("resources", ()))
        and (not names or attributes.name in names)
    )


def _includes(listed: Iterable[str], value: str) -> bool:
    return any(one in (_ALL, value) for one in listed)


def _covers_scope(scope: str, attributes: Attributes) -> bool:
    return scope == _ALL or (scope == "Namespaced") == attributes.kind.is_namespaced


def _covers_resource(text: str, attributes: Attributes) -> bool:
    resource, _, subresource = text.partition("/")
    return resource in (_ALL, attributes.kind.plural) and (
        subresource in (_ALL, attributes.subresource)
    )


def _selects_namespace(
    match: Mapping[str, Any], attributes: Attributes, namespace_labels: NamespaceLabels
) -> bool:
    selector, namespace = match.get("namespaceSelector"), namespace_of(attributes)
    if not selector or not namespace:
        return True
    is_written = attributes.kind.plural == _NAMESPACES and attributes.obj is not None
    own = _labels_of(attributes.obj) if is_written else namespace_labels(namespace)
    return labels.from_object(selector).matches(own)


def _selects_object(match: Mapping[str, Any], attributes: Attributes) -> bool:
    selector = match.get("objectSelector")
    if not selector:
        return True
    parsed = labels.from_object(selector)
    return any(
        parsed.matches(_labels_of(obj))
        for obj in (attributes.obj, attributes.old)
        if obj is not None
    )


def _labels_of(obj: Obj | None) -> Mapping[str, str]:
    own: Mapping[str, str] = (obj or {}).get("metadata", {}).get("labels") or {}
    return own
