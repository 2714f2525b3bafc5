"""RuntimeClassQuota plugin: charges new pods to the quotas of their class, or refuses them.

As ResourceQuota does, by the same ledger: what is used stands in the status, which is counted up
before the pod is stored, so that pods that come at once do not overshoot. A quota that its
controller has not counted yet refuses pods rather than letting them pass uncounted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from moorage.api.clock import Clock
from moorage.api.pods import Pod
from moorage.api.quantity import parse
from moorage.api.runtime_group import ALL_CLASSES, RuntimeClassQuota
from moorage.apiserver.admission.admission_request import refused
from moorage.apiserver.admission.chain import CREATE, RESIZE, UPDATE, Scope
from moorage.apiserver.admission.quota_ledger import Account, Charged, QuotaLedger
from moorage.apiserver.admission.resource_quota import may_use_more
from moorage.apiserver.quota import POD_CHARGE, added, exceeded, increase, is_counted, masked, shown
from moorage.apiserver.registry.request import Attributes

WriteUsed = Callable[[RuntimeClassQuota, dict[str, str]], Awaitable[None]]
"""Writes `status.used` of a quota as it was read. Raises ConflictError if it has changed."""


class RuntimeClassQuotaAdmission:
    """Charges pods in namespaces that have quotas for their class.

    `quotas` returns the quotas of a namespace.
    """

    name = "RuntimeClassQuota"
    scope = Scope.of(["pods"], [CREATE, UPDATE], ["", RESIZE])
    mutate = None

    def __init__(
        self,
        quotas: Callable[[str], Sequence[RuntimeClassQuota]],
        write_used: WriteUsed,
        clock: Clock,
    ) -> None:
        self._quotas = quotas
        self._ledger = QuotaLedger(quotas, _charge_all, write_used, clock)

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Return the charging of a pod, None where no quota counts it."""
        namespace, obj, old = attributes.namespace, attributes.obj, attributes.old
        assert obj is not None
        quotas = self._quotas(namespace)
        if not quotas or not may_use_more(POD_CHARGE, attributes):
            return None
        class_name = obj["spec"].get("runtimeClassName")
        if not any(is_counted(quota.spec, class_name) for quota in quotas):
            return None
        write = Charged(
            attributes,
            msgspec.convert(obj, Pod),
            None if old is None else msgspec.convert(old, Pod),
        )
        return self._ledger.charge(namespace, write)


def _charge_all(
    accounts: Sequence[Account[RuntimeClassQuota]], write: Charged, now: datetime
) -> None:
    """Count what a pod uses of its quotas. Raises ForbiddenError when one lacks it."""
    for account in accounts:
        _charge(account, write, now)


def _charge(account: Account[RuntimeClassQuota], write: Charged, now: datetime) -> None:
    """Count what a pod uses of a quota. Raises ForbiddenError when it does not have as much."""
    quota, attributes = account.quota, write.attributes
    pod, old = write.new, write.old
    assert isinstance(pod, Pod)
    if not is_counted(quota.spec, pod.spec.runtime_class_name):
        return
    limits = {name: parse(text) for name, text in quota.spec.hard.items()}
    of_class = (
        "all classes" if quota.spec.class_name == ALL_CLASSES else f"class {quota.spec.class_name}"
    )
    title = f"{quota.metadata.name} ({of_class})"
    if omission := POD_CHARGE.omission(limits, pod):
        raise refused(attributes, f"failed class quota: {title}: {omission}")
    if uncounted := sorted(limits.keys() - account.used.keys()):
        raise refused(
            attributes,
            f"status unknown for class quota: {title}, resources: {','.join(uncounted)}; its "
            "controller has not counted them yet",
        )
    usage = POD_CHARGE.usage(pod, now)
    if old is not None:
        usage = increase(usage, POD_CHARGE.usage(old, now))
    asked = {name: amount for name, amount in masked(usage, limits).items() if amount}
    used = added(account.used, asked)
    if too_much := exceeded(masked(used, asked), limits):
        raise refused(
            attributes,
            f"exceeded class quota: {title}, requested: {shown(masked(asked, too_much))}, "
            f"used: {shown(masked(account.used, too_much))}, "
            f"limited: {shown(masked(limits, too_much))}",
        )
    account.used = used
