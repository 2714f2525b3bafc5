"""Data validation of config maps and secrets. Source: core validation of Kubernetes 1.36."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj

MAX_DATA_BYTES = 1024 * 1024


def immutable_errors(new: Obj, old: Obj, fields: tuple[str, ...]) -> list[FieldError]:
    """Reject changes to `immutable` and to the fields of an object that is immutable."""
    if not old.get("immutable"):
        return []
    why = "field is immutable when `immutable` is set"
    errors: list[FieldError] = []
    if not new.get("immutable"):
        errors.append(FieldError.forbidden("immutable", why))
    errors += [
        FieldError.forbidden(field, why) for field in fields if new.get(field) != old.get(field)
    ]
    return errors


def key_errors(key: str, path: str) -> list[FieldError]:
    return [FieldError.invalid(path, key, detail) for detail in names.config_key_errors(key)]


def decoded_size(values: Iterable[str]) -> int:
    return sum(len(base64.b64decode(value)) for value in values)
