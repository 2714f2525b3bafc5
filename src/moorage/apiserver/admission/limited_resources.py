"""Limited resources: what may be used only where a ResourceQuota covers it.

Source: `apiserver.config.k8s.io/v1` `ResourceQuotaConfiguration`; API docs "Limit Priority Class
consumption by default"; apiserver plugin ResourceQuota (`CheckRequest`) of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.api.quantity import Quantity
from moorage.api.quotas import ScopedSelector
from moorage.apiserver.admission.options import (
    ConfigurationError,
    Strict,
    converted,
    of_another_kind,
)
from moorage.apiserver.quota import Charge
from moorage.apiserver.quota.amounts import ZERO

_KINDS = (
    ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
    ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
    ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
)
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class _Scope(Strict, frozen=True, kw_only=True):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class _Limited(Strict, frozen=True, kw_only=True):
    api_group: str = ""
    resource: str = ""
    match_contains: tuple[str, ...] | None = None
    match_scopes: tuple[_Scope, ...] | None = None


class _Document(Strict, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    limited_resources: tuple[_Limited, ...] | None = None


class LimitedResource(Strict, frozen=True, kw_only=True):
    """A rule: amounts whose names contain a text, and objects in scopes, need a quota.

    `resource` is a qualified name: `deployments.apps`.
    """

    resource: str
    contained: tuple[str, ...] = ()
    scopes: tuple[ScopedSelector, ...] = ()


def parse_limited_resources(value: Any) -> tuple[LimitedResource, ...]:
    """Return the rules of a document. Raises ConfigurationError, which names every fault."""
    document = converted(value, _Document)
    if (document.api_version, document.kind) not in _KINDS:
        raise of_another_kind(document.api_version, document.kind, *_KINDS[0])
    rules = document.limited_resources or ()
    faults = [
        f"limitedResources[{index}].resource: Required value"
        for index, rule in enumerate(rules)
        if not rule.resource
    ]
    faults += [
        f"limitedResources[{index}].matchScopes[{at}].operator: Unsupported value: "
        f'"{scope.operator}": supported values: {", ".join(_OPERATORS)}'
        for index, rule in enumerate(rules)
        for at, scope in enumerate(rule.match_scopes or ())
        if scope.operator not in _OPERATORS
    ]
    if faults:
        raise ConfigurationError("; ".join(faults))
    return tuple(map(_rule, rules))


def _rule(source: _Limited) -> LimitedResource:
    scopes = tuple(
        ScopedSelector(
            scope_name=scope.scope_name, operator=scope.operator, values=scope.values or ()
        )
        for scope in source.match_scopes or ()
    )
    resource = f"{source.resource}.{source.api_group}" if source.api_group else source.resource
    return LimitedResource(resource=resource, contained=source.match_contains or (), scopes=scopes)


def limited_amounts(
    rules: Iterable[LimitedResource], resource: str, usage: Mapping[str, Quantity]
) -> set[str]:
    """Return the names of the amounts that a quota has to cover."""
    contained = [text for rule in rules if rule.resource == resource for text in rule.contained]
    return {
        name
        for name, amount in usage.items()
        if amount > ZERO and any(text in name for text in contained)
    }


def limited_scopes(
    rules: Iterable[LimitedResource], charge: Charge, obj: Any
) -> list[ScopedSelector]:
    """Return the scopes that an object is in and that a quota has to cover."""
    return [scope for rule in rules for scope in rule.scopes if charge.is_in(scope, obj)]


def shown_scopes(scopes: Iterable[ScopedSelector]) -> str:
    """Return scopes as errors show them: `[{PriorityClass In [high]}]`."""
    shown = (
        f"{{{scope.scope_name} {scope.operator} [{' '.join(scope.values)}]}}" for scope in scopes
    )
    return f"[{' '.join(shown)}]"
