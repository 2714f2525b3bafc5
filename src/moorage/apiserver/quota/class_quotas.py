"""Class quotas: which pods a RuntimeClassQuota counts, and what it charges them for.

Amounts are those of a ResourceQuota, overhead included; a pod is charged until it ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from moorage.api.pods import Pod
from moorage.api.runtime_quotas import ALL_CLASSES, RuntimeClassQuotaSpec
from moorage.apiserver.quota.amounts import ZERO, Amounts, added, masked
from moorage.apiserver.quota.charges import charge_of
from moorage.runtimeclass.handler import LEGACY

POD_CHARGE = charge_of("pods")


def is_counted(spec: RuntimeClassQuotaSpec, class_name: str | None) -> bool:
    """Return whether a quota counts the pods of a class; those without one are `legacy`."""
    return spec.class_name in (ALL_CLASSES, class_name or LEGACY)


def class_usage(spec: RuntimeClassQuotaSpec, pods: Iterable[Pod], now: datetime) -> Amounts:
    """Return the total usage of a quota's amounts by pods."""
    total: Amounts = dict.fromkeys(spec.hard, ZERO)
    for pod in pods:
        if is_counted(spec, pod.spec.runtime_class_name):
            total = added(total, masked(POD_CHARGE.usage(pod, now), spec.hard))
    return total
