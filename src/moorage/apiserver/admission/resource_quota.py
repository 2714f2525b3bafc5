"""ResourceQuota plugin: charges new objects to the quotas of their namespace, or refuses them.

What is used stands in the status of a quota, which this counts up before the object is stored; the
controller counts it again when objects go. Writes in one namespace that come at once are charged
together, by one write of each quota. Source: apiserver plugin ResourceQuota of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import InternalError
from moorage.api.quantity import Quantity
from moorage.api.quotas import ResourceQuota, ScopedSelector
from moorage.apiserver.admission.admission_request import refused
from moorage.apiserver.admission.chain import ANY, CREATE, RESIZE, UPDATE, Scope
from moorage.apiserver.admission.options import (
    ConfigurationError,
    Strict,
    converted,
    of_another_kind,
)
from moorage.apiserver.admission.quota_ledger import Account, Charged, QuotaLedger
from moorage.apiserver.quota import (
    ZERO,
    Amounts,
    Charge,
    added,
    charge_of,
    exceeded,
    increase,
    is_subject,
    masked,
    parsed,
    shown,
)
from moorage.apiserver.registry.request import Attributes

# Limited resources: what may be used only where a ResourceQuota covers it.
#
# Source: `apiserver.config.k8s.io/v1` `ResourceQuotaConfiguration`; API docs "Limit Priority Class
# consumption by default"; apiserver plugin ResourceQuota (`CheckRequest`) of Kubernetes 1.36.

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


_IGNORED = frozenset(("bindings", "componentstatuses", "events", "events.events.k8s.io"))

_Account = Account[ResourceQuota]
WriteUsed = Callable[[ResourceQuota, dict[str, str]], Awaitable[None]]
"""Writes `status.used` of a quota as it was read. Raises ConflictError if it has changed."""


class UncoveredScopesError(InternalError):
    """No quota covers a scope that is limited; the answer has no reason, as upstream's."""

    reason = ""


class ResourceQuotaAdmission:
    """Charges writes in namespaces that have quotas.

    `quotas` returns the quotas of a namespace. What is `limited` needs one.
    """

    name = "ResourceQuota"
    scope = Scope.of([ANY], [CREATE, UPDATE], ["", RESIZE])
    mutate = None

    def __init__(
        self,
        quotas: Callable[[str], Sequence[ResourceQuota]],
        write_used: WriteUsed,
        clock: Clock,
        limited: Sequence[LimitedResource] = (),
    ) -> None:
        self._quotas = quotas
        self._limited = limited
        self._has_limited_scopes = any(rule.scopes for rule in limited)
        self._ledger = QuotaLedger(quotas, self._charge, write_used, clock)

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Return the charging of a write, None where no quota can concern it."""
        namespace, resource = attributes.namespace, attributes.kind.resource
        if not namespace or resource in _IGNORED:
            return None
        if not self._quotas(namespace) and not self._limits(resource):
            return None
        charge = charge_of(resource)
        if not may_use_more(charge, attributes):
            return None
        old = attributes.old
        write = Charged(
            attributes,
            msgspec.convert(attributes.obj, charge.type),
            None if old is None else msgspec.convert(old, charge.type),
        )
        return self._ledger.charge(namespace, write)

    def _limits(self, resource: str) -> bool:
        """Return whether objects of a resource may need a quota."""
        return self._has_limited_scopes or any(rule.resource == resource for rule in self._limited)

    def _charge(self, accounts: Sequence[_Account], write: Charged, now: datetime) -> None:
        """Count what a write uses of its quotas. Raises ForbiddenError, InternalError."""
        charge = _charge_for(write)
        concerned = [(account, _concerned(account, write)) for account in accounts]
        subject = [(account, names) for account, names in concerned if names is not None]
        if not subject and not self._limited:
            return
        usage = charge.usage(write.new, now)
        deltas = [(account, _delta(account, write, usage, now)) for account, _ in subject]
        if self._limited:
            self._check_covered(accounts, write, subject, deltas, usage, now)
        for account, delta in deltas:
            _count(account, write, delta)

    def _check_covered(
        self,
        accounts: Sequence[_Account],
        write: Charged,
        subject: list[tuple[_Account, list[str]]],
        deltas: list[tuple[_Account, Amounts]],
        usage: Amounts,
        now: datetime,
    ) -> None:
        """Check that quotas cover what is limited, if a write uses more of anything.

        Raises ForbiddenError for amounts, and as upstream a plain error of the server for scopes.
        """
        charge, new, old = _charge_for(write), write.new, write.old
        used = [delta for _, delta in deltas]
        if not subject:
            used = [usage if old is None else increase(usage, charge.usage(old, now))]
        if not any(amount for amounts in used for amount in amounts.values()):
            return
        covered = {name for _, names in subject for name in names}
        resource = write.attributes.kind.resource
        if missing := limited_amounts(self._limited, resource, usage) - covered:
            raise refused(
                write.attributes, f"insufficient quota to consume: {','.join(sorted(missing))}"
            )
        covered_scopes = {
            selector.scope_name
            for account in accounts
            for selector in account.quota.spec.selectors
            if charge.is_in(selector, new)
        }
        scopes = [
            scope
            for scope in limited_scopes(self._limited, charge, new)
            if scope.scope_name not in covered_scopes
        ]
        if scopes:
            raise UncoveredScopesError(
                f"insufficient quota to match these scopes: {shown_scopes(scopes)}"
            )


def _charge_for(write: Charged) -> Charge:
    return charge_of(write.attributes.kind.resource)


def may_use_more(charge: Charge, attributes: Attributes) -> bool:
    if attributes.operation == CREATE or charge.sees_updates:
        return True
    if attributes.kind.resource != "pods" or attributes.obj is None or attributes.old is None:
        return False
    if attributes.subresource == RESIZE:
        return True
    # A deadline moves a pod from one scope to the other.
    field_name = "activeDeadlineSeconds"
    return (field_name in attributes.obj["spec"]) != (field_name in attributes.old["spec"])


def _concerned(account: _Account, write: Charged) -> list[str] | None:
    """Return which amounts of a quota a write concerns, None if it is not subject to it.

    Raises ForbiddenError where it cannot be counted.
    """
    quota, charge, attributes = (
        account.quota,
        _charge_for(write),
        write.attributes,
    )
    hard = quota.status.hard
    if not is_subject(quota.spec, hard, charge, write.new):
        return None
    name, names = quota.metadata.name, charge.concerned(hard)
    if omission := charge.omission(names, write.new):
        raise refused(attributes, f"failed quota: {name}: {omission}")
    if not quota.status.used.keys() >= set(names):
        resources = ",".join(sorted(names))
        raise refused(attributes, f"status unknown for quota: {name}, resources: {resources}")
    return names


def _delta(account: _Account, write: Charged, usage: Amounts, now: datetime) -> Amounts:
    """Return a write's additional usage of a quota. `usage` is that of the new object."""
    charge, quota = _charge_for(write), account.quota
    old = write.old
    if old is not None and is_subject(quota.spec, quota.status.hard, charge, old):
        return increase(usage, charge.usage(old, now))
    return usage


def _count(account: _Account, write: Charged, delta: Amounts) -> None:
    """Count what a write uses. Raises ForbiddenError when the quota does not have as much."""
    quota = account.quota
    hard = quota.status.hard
    asked = {key: amount for key, amount in masked(delta, hard).items() if amount}
    used = added(account.used, asked)
    limits = parsed(hard)
    if too_much := exceeded(masked(used, asked), limits):
        raise refused(
            write.attributes,
            f"exceeded quota: {quota.metadata.name}, requested: {shown(masked(asked, too_much))}, "
            f"used: {shown(masked(account.used, too_much))}, "
            f"limited: {shown(masked(limits, too_much))}",
        )
    account.used = used
