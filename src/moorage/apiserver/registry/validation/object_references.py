"""References to an object by group, kind and name. Source: networking validation."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj


def object_reference_errors(reference: Obj, path: str) -> Iterator[FieldError]:
    """Validate a `TypedLocalObjectReference` at a field path."""
    if (group := reference.get("apiGroup")) is not None:
        for detail in names.dns_subdomain_errors(group):
            yield FieldError.invalid(f"{path}.apiGroup", group, detail)
    for field in ("kind", "name"):
        value = reference.get(field, "")
        if not value:
            yield FieldError.required(f"{path}.{field}")
        for detail in names.path_segment_errors(value):
            yield FieldError.invalid(f"{path}.{field}", value, detail)
