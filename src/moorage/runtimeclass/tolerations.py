"""Toleration merging: a pod's and its class's, without duplicates or covered ones.

Source: KEP-585 "Scheduling"; the rules of coverage are in docs/runtimeclass.md. Among tolerations
that cover each other the first one is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from moorage.api.pods import Toleration
from moorage.api.tolerations import NO_EXECUTE


def merge_tolerations(
    pod: Sequence[Toleration], runtime_class: Sequence[Toleration]
) -> list[Toleration]:
    """Return the pod's tolerations, then the class's, without those that another covers."""
    merged: list[Toleration] = []
    everything = [*pod, *runtime_class]
    for index, candidate in enumerate(everything):
        if any(covers(kept, candidate) for kept in merged):
            continue
        later = everything[index + 1 :]
        if any(other != candidate and covers(other, candidate) for other in later):
            continue
        merged.append(candidate)
    return merged


def covers(wide: Toleration, narrow: Toleration) -> bool:
    """Return whether `wide` tolerates each taint that `narrow` does, at least as long."""
    if wide == narrow:
        return True
    return (
        _covers_key(wide, narrow)
        and (not wide.effect or wide.effect == narrow.effect)
        and _covers_seconds(wide, narrow)
        and _covers_value(wide, narrow)
    )


def _covers_key(wide: Toleration, narrow: Toleration) -> bool:
    return wide.key == narrow.key or (not wide.key and wide.operator == "Exists")


def _covers_seconds(wide: Toleration, narrow: Toleration) -> bool:
    if wide.effect != NO_EXECUTE or wide.toleration_seconds is None:
        return True
    return (
        narrow.toleration_seconds is not None
        and narrow.toleration_seconds <= wide.toleration_seconds
    )


def _covers_value(wide: Toleration, narrow: Toleration) -> bool:
    if wide.operator == "Exists":
        return True
    if wide.operator not in ("", "Equal"):
        return False
    # An omitted operator on the narrow side is not read as Equal here: it must be explicit.
    return narrow.operator == "Equal" and narrow.value == wide.value
