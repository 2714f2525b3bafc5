"""Conditions of a terminating namespace: the progress of its deletion. Pure.

Source: core/v1 `NamespaceCondition`; reasons and messages are those of the namespace controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from moorage.api.clock import format_time
from moorage.api.meta import ObjectMeta, Raw
from moorage.wire.client.resources import Resource

_SETTLED = {
    "NamespaceDeletionDiscoveryFailure": (
        "ResourcesDiscovered", "All resources successfully discovered",
    ),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions", "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "ContentHasNoFinalizers", "All content-preserving finalizers finished",
    ),
}  # fmt: skip
"""Condition → reason and message while its status is False."""


@dataclass(slots=True)
class Progress:
    """The result of one attempt to delete a namespace's content."""

    discovery_failures: Sequence[tuple[str, str]] = ()
    deletion_failures: list[str] = field(default_factory=list)
    remaining: dict[str, int] = field(default_factory=dict)
    """`plural.group` → number of remaining objects."""
    finalizers: Counter[str] = field(default_factory=Counter)
    """Finalizer → number of remaining objects that have it."""

    def left(self, resource: Resource[Any], metas: Iterable[ObjectMeta]) -> None:
        """Record the remaining objects of a resource and their finalizers."""
        listed = list(metas)
        if listed:
            self.remaining[f"{resource.plural}.{resource.group}"] = len(listed)
        for meta in listed:
            self.finalizers.update(meta.finalizers)

    @property
    def is_empty(self) -> bool:
        """Return whether no content remains and neither discovery nor deletion failed."""
        return not (self.remaining or self.deletion_failures or self.discovery_failures)


def conditions_after(before: Sequence[Raw], progress: Progress, now: datetime) -> tuple[Raw, ...]:
    """Return the updated conditions in their present order.

    A condition whose status does not change keeps its transition time.
    """
    troubles = _troubles(progress)
    by_type = {condition["type"]: condition for condition in before}
    for type_, settled in _SETTLED.items():
        reason, message = troubles.get(type_, settled)
        status = "True" if type_ in troubles else "False"
        was = by_type.get(type_, {})
        is_same = (was.get("status"), was.get("reason"), was.get("message")) == (
            status, reason, message,
        )  # fmt: skip
        if is_same:
            continue
        by_type[type_] = {
            "type": type_,
            "status": status,
            "lastTransitionTime": format_time(now),
            "reason": reason,
            "message": message,
        }
    return tuple(by_type.values())


def _troubles(progress: Progress) -> Mapping[str, tuple[str, str]]:
    troubles: dict[str, tuple[str, str]] = {}
    if progress.discovery_failures:
        shown = ", ".join(f"{group}: {why}" for group, why in sorted(progress.discovery_failures))
        message = (
            f"Discovery failed for some groups, {len(progress.discovery_failures)} failing: "
            f"unable to retrieve the complete list of server APIs: {shown}"
        )
        troubles["NamespaceDeletionDiscoveryFailure"] = ("DiscoveryFailed", message)
    if progress.deletion_failures:
        failures = sorted(progress.deletion_failures)
        message = (
            f"Failed to delete all resource types, {len(failures)} remaining: {', '.join(failures)}"
        )
        troubles["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", message)
    if progress.remaining:
        counts = [
            f"{name} has {count} resource instances"
            for name, count in sorted(progress.remaining.items())
        ]
        message = f"Some resources are remaining: {', '.join(counts)}"
        troubles["NamespaceContentRemaining"] = ("SomeResourcesRemain", message)
    if progress.finalizers:
        counts = [
            f"{name} in {count} resource instances"
            for name, count in sorted(progress.finalizers.items())
        ]
        message = f"Some content in the namespace has finalizers remaining: {', '.join(counts)}"
        troubles["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
    return troubles
