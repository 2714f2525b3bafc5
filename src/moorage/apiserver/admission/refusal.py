"""Admission refusals: the 403 that plugins raise."""

from __future__ import annotations

from moorage.api.errors import ForbiddenError
from moorage.apiserver.registry.request import Attributes


def refused(attributes: Attributes, why: str) -> ForbiddenError:
    """Return a 403 about the object, named by its name or its `generateName` prefix."""
    meta = (attributes.obj or {}).get("metadata", {})
    name = attributes.name or meta.get("name") or meta.get("generateName") or "Unknown"
    return ForbiddenError.of(attributes.kind.plural, name, why, group=attributes.kind.group)
