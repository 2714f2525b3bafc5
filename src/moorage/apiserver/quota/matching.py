"""Matching: which objects are subject to a quota, and what they use of it together."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from moorage.api.quotas import ResourceQuotaSpec
from moorage.apiserver.quota.amounts import ZERO, Amounts, added, masked
from moorage.apiserver.quota.charges import Charge


def is_subject(spec: ResourceQuotaSpec, hard: Iterable[str], charge: Charge, obj: Any) -> bool:
    """Return whether an object uses one of the `hard` resources and is in all scopes of a quota."""
    if not charge.concerned(hard):
        return False
    return all(charge.is_in(selector, obj) for selector in spec.selectors)


def used_by(
    spec: ResourceQuotaSpec, charge: Charge, objects: Iterable[Any], now: datetime
) -> Amounts:
    """Return the usage by objects of the resources of a quota that they are charged for."""
    names = charge.concerned(spec.hard)
    total: Amounts = dict.fromkeys(names, ZERO)
    for obj in objects:
        if is_subject(spec, names, charge, obj):
            total = added(total, masked(charge.usage(obj, now), names))
    return total
