"""ResourceQuota plugin: charges new objects to the quotas of their namespace, or refuses them.

What is used stands in the status of a quota, which this counts up before the object is stored; the
controller counts it again when objects go. Writes in one namespace that come at once are charged
together, by one write of each quota. Source: apiserver plugin ResourceQuota of Kubernetes 1.37.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from moorage.admission.chain import ANY, CREATE, RESIZE, UPDATE, Scope
from moorage.admission.quota_ledger import Account, Charged, QuotaLedger
from moorage.admission.refusal import refused
from moorage.api.clock import Clock
from moorage.api.quotas import ResourceQuota
from moorage.quota import Charge, charge_of, is_subject
from moorage.quota.amounts import added, exceeded, increase, masked, parsed, shown
from moorage.registry.request import Attributes

_IGNORED = frozenset(("bindings", "componentstatuses", "events", "events.events.k8s.io"))

WriteUsed = Callable[[ResourceQuota, dict[str, str]], Awaitable[None]]
"""Writes `status.used` of a quota as it was read. Raises ConflictError if it has changed."""


class ResourceQuotaAdmission:
    """Charges writes in namespaces that have quotas.

    `quotas` returns the quotas of a namespace.
    """

    name = "ResourceQuota"
    scope = Scope.of([ANY], [CREATE, UPDATE], ["", RESIZE])
    mutate = None

    def __init__(
        self,
        quotas: Callable[[str], Sequence[ResourceQuota]],
        write_used: WriteUsed,
        clock: Clock,
    ) -> None:
        self._quotas = quotas
        self._ledger = QuotaLedger(quotas, _charge, write_used, clock)

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Return the charging of a write, None where no quota can concern it."""
        namespace = attributes.namespace
        if not namespace or not self._quotas(namespace):
            return None
        resource = attributes.kind.resource
        if resource in _IGNORED:
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


def may_use_more(charge: Charge, attributes: Attributes) -> bool:
    """Return whether a write can use more of a quota than there was before."""
    if attributes.operation == CREATE or charge.sees_updates:
        return True
    if attributes.kind.resource != "pods" or attributes.obj is None or attributes.old is None:
        return False
    if attributes.subresource == RESIZE:
        return True
    # A deadline moves a pod from one scope to the other.
    field_name = "activeDeadlineSeconds"
    return (field_name in attributes.obj["spec"]) != (field_name in attributes.old["spec"])


def _charge(account: Account[ResourceQuota], write: Charged, now: datetime) -> None:
    """Count what a write uses of a quota. Raises ForbiddenError when it does not have as much."""
    quota, attributes = account.quota, write.attributes
    charge = charge_of(attributes.kind.resource)
    spec, hard = quota.spec, quota.status.hard
    if not is_subject(spec, hard, charge, write.new):
        return
    name, names = quota.metadata.name, charge.concerned(hard)
    if omission := charge.omission(names, write.new):
        raise refused(attributes, f"failed quota: {name}: {omission}")
    if not quota.status.used.keys() >= set(names):
        resources = ",".join(sorted(names))
        raise refused(attributes, f"status unknown for quota: {name}, resources: {resources}")
    usage = charge.usage(write.new, now)
    if write.old is not None and is_subject(spec, hard, charge, write.old):
        usage = increase(usage, charge.usage(write.old, now))
    asked = {key: amount for key, amount in masked(usage, hard).items() if amount}
    used = added(account.used, asked)
    limits = parsed(hard)
    if too_much := exceeded(masked(used, asked), limits):
        raise refused(
            attributes,
            f"exceeded quota: {name}, requested: {shown(masked(asked, too_much))}, "
            f"used: {shown(masked(account.used, too_much))}, "
            f"limited: {shown(masked(limits, too_much))}",
        )
    account.used = used
