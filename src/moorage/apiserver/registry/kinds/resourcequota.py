"""ResourceQuotas. Source: core validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from moorage.api import quantity
from moorage.api.errors import FieldError
from moorage.api.resource_names import is_standard_quota, quota_amount_errors, resource_name_errors
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import IMMUTABLE, each_field, update, validator, whole
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    status_subresource,
)
from moorage.apiserver.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.core.v1"
_OF_PODS = frozenset(
    ("pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory")
)
_OF_CLAIMS = frozenset(("persistentvolumeclaims", "requests.storage"))
_SCOPES = {
    "Terminating": _OF_PODS,
    "NotTerminating": _OF_PODS,
    "BestEffort": frozenset(("pods",)),
    "NotBestEffort": _OF_PODS,
    "PriorityClass": _OF_PODS,
    "CrossNamespacePodAffinity": _OF_PODS,
    "VolumeAttributesClass": _OF_CLAIMS,
}
"""Scope → the standard resources that it applies to."""

_WITH_VALUES = frozenset(("PriorityClass", "VolumeAttributesClass"))
_CONFLICTS = (("BestEffort", "NotBestEffort"), ("NotTerminating", "Terminating"))
_ONLY_EXISTS = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
    "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
    "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_NEEDS_VALUES = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
_NO_VALUES = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
_COMPARED = ("cpu", "memory", "storage", "ephemeral-storage")


def _changed_scopes(new: Obj, old: Obj) -> Iterator[FieldError]:
    scopes = new.get("spec", {}).get("scopes")
    if set(scopes or ()) != set(old.get("spec", {}).get("scopes", ())):
        yield FieldError.invalid("spec.scopes", scopes, IMMUTABLE)


def _amounts_errors(amounts: Obj, path: str) -> Iterator[FieldError]:
    for name in sorted(amounts):
        at = f"{path}[{name}]"
        yield from resource_name_errors(name, at)
        if "/" not in name and not is_standard_quota(name):
            yield FieldError.invalid(at, name, "must be a standard resource for quota")
        yield from quota_amount_errors(name, quantity.parse(amounts[name]), at)


def _scopes_errors(spec: Obj) -> Iterator[FieldError]:
    path, scopes = "spec.scopes", spec.get("scopes", [])
    for scope in scopes:
        if scope not in _SCOPES:
            yield FieldError.invalid(path, scopes, "unsupported scope")
        for _ in _unsupported(scope, spec):
            yield FieldError.invalid(path, scopes, "unsupported scope applied to resource")
    yield from _conflict_errors(scopes, spec, path)


def _unsupported(scope: str, spec: Obj) -> list[str]:
    """Return the standard resources of a quota that a scope does not apply to."""
    allowed = _SCOPES.get(scope)
    if allowed is None:
        return []
    hard = sorted(spec.get("hard", {}))
    return [name for name in hard if is_standard_quota(name) and name not in allowed]


def _conflict_errors(scopes: Iterable[str], spec: Obj, path: str) -> Iterator[FieldError]:
    for pair in _CONFLICTS:
        if set(pair) <= set(scopes):
            yield FieldError.invalid(path, spec.get("scopes"), "conflicting scopes")


def _selector_errors(spec: Obj) -> Iterator[FieldError]:
    if "scopeSelector" not in spec:
        return
    path = "spec.scopeSelector.matchExpressions"
    expressions = spec["scopeSelector"].get("matchExpressions", [])
    for expression in expressions:
        scope, operator = expression.get("scopeName", ""), expression.get("operator", "")
        values = expression.get("values", [])
        if scope not in _SCOPES:
            yield FieldError.invalid(f"{path}.scopeName", scope, "unsupported scope")
        for _ in _unsupported(scope, spec):
            yield FieldError.invalid(
                path, spec["scopeSelector"], "unsupported scope applied to resource"
            )
        if scope in _SCOPES and scope not in _WITH_VALUES and operator != "Exists":
            yield FieldError.invalid(f"{path}.operator", operator, _ONLY_EXISTS)
        if operator in ("In", "NotIn"):
            if not values:
                yield FieldError.required(f"{path}.values", _NEEDS_VALUES)
        elif operator not in ("Exists", "DoesNotExist"):
            yield FieldError.invalid(f"{path}.operator", operator, "not a valid selector operator")
        elif values:
            yield FieldError.invalid(f"{path}.values", values, _NO_VALUES)
    yield from _conflict_errors([one.get("scopeName", "") for one in expressions], spec, path)


def warn_about_quota(new: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about a new quota that has more for requests than for limits."""
    hard = {} if old is not None else new.get("spec", {}).get("hard", {})
    warnings = []
    for resource in _COMPARED:
        request = f"requests.{resource}"
        if request not in hard and resource in ("cpu", "memory"):
            request = resource
        limit = f"limits.{resource}"
        if request in hard and limit in hard:
            more, less = quantity.parse(hard[request]), quantity.parse(hard[limit])
            if less < more:
                warnings.append(
                    f"ResourceQuota {request} ({more}) should be less than {limit} ({less})"
                )
    return warnings


def _use(quota: Obj, *, is_of_limits: bool) -> str:
    status = quota.get("status", {})
    used: Obj = status.get("used", {})
    return ", ".join(
        f"{name}: {used.get(name, '0')}/{amount}"
        for name, amount in sorted(status.get("hard", {}).items())
        if name.startswith("limits.") == is_of_limits
    )


_SPEC = (("spec.hard", _amounts_errors), ("spec", whole(_scopes_errors), whole(_selector_errors)))
_STATUS = each_field("status", ("hard", "used"), _amounts_errors)

RESOURCE_QUOTA = Kind(
    name="ResourceQuota",
    plural="resourcequotas",
    served=(Served(group="", version="v1", type=f"{_TYPES}.ResourceQuota"),),
    short_names=("quota",),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validator(*_SPEC, *_STATUS),
        validate_update=update(validator(*_SPEC), after=_changed_scopes),
        parts={"status": PartRules(keep_spec, update(validator(*_STATUS)))},
        warn=warn_about_quota,
        returns_deleted=True,
    ),
    printer=printer(
        NAME,
        column(
            "Request",
            partial(_use, is_of_limits=False),
            description="Use of everything but limits, and how much there may be",
        ),
        column(
            "Limit",
            partial(_use, is_of_limits=True),
            description="Use of limits, and how much there may be",
        ),
        AGE,
    ),
    subresources=status_subresource(),
)
