"""ResourceQuota plugin: charges new objects to the quotas of their namespace, or refuses them.

What is used stands in the status of a quota, which this counts up before the object is stored; the
controller counts it again when objects go. Writes in one namespace that come at once are charged
together, by one write of each quota. Source: apiserver plugin ResourceQuota of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import InternalError
from moorage.api.quotas import ResourceQuota
from moorage.apiserver.admission.chain import ANY, CREATE, RESIZE, UPDATE, Scope
from moorage.apiserver.admission.limited_resources import (
    LimitedResource,
    limited_amounts,
    limited_scopes,
    shown_scopes,
)
from moorage.apiserver.admission.quota_ledger import Account, Charged, QuotaLedger
from moorage.apiserver.admission.refusal import refused
from moorage.apiserver.quota import Amounts, Charge, charge_of, is_subject
from moorage.apiserver.quota.amounts import added, exceeded, increase, masked, parsed, shown
from moorage.apiserver.registry.request import Attributes

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
