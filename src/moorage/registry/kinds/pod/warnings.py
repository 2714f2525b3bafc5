"""Warnings about a pod."""

from __future__ import annotations

from moorage.registry.kind import Obj
from moorage.registry.warnings import spec_warnings


def warn_pod(pod: Obj, old: Obj | None) -> list[str]:
    """Only a new pod's author can still act on a warning."""
    return [] if old is not None else spec_warnings(pod["spec"], "spec")
