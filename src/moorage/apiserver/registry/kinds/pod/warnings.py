"""Warnings about a pod."""

from __future__ import annotations

from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.warnings import spec_warnings


def warn_pod(pod: Obj, old: Obj | None) -> list[str]:
    """Return the warnings for a new pod; on updates there are none, since it is too late to act."""
    return [] if old is not None else spec_warnings(pod["spec"], "spec")
