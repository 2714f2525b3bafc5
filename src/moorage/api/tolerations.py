"""Taint toleration: matching tolerations with taints.

Source: core/v1 `Toleration.ToleratesTaint`. An empty key with `Exists` tolerates every taint; an
empty effect matches every effect; an omitted operator means `Equal`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from moorage.api.nodes import Taint
from moorage.api.pods import Toleration

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration matches a taint (its duration aside)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case _:
            return False


def first_untolerated(
    taints: Iterable[Taint], tolerations: Collection[Toleration], effects: Collection[str]
) -> Taint | None:
    """Return the first taint with one of the effects that no toleration matches, or None."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None
