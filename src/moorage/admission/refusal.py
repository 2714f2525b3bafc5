"""How plugins word a refusal."""

from __future__ import annotations

from moorage.api.errors import ForbiddenError
from moorage.registry.request import Attributes


def refused(attributes: Attributes, why: str) -> ForbiddenError:
    """403 about the object at hand, named by its name or by what its name would begin with."""
    meta = (attributes.obj or {}).get("metadata", {})
    name = attributes.name or meta.get("name") or meta.get("generateName") or "Unknown"
    return ForbiddenError.of(attributes.kind.plural, name, why, group=attributes.kind.group)
