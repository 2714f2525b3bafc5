"""Data validation of config maps and secrets. Source: core validation of Kubernetes 1.36."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.rules import Comparison
from moorage.apiserver.registry.kind import Obj

MAX_DATA_BYTES = 1024 * 1024


def unchanged_if_immutable(*fields: str) -> Comparison:
    """Return the comparison that keeps `immutable` and these fields where it is set."""

    def compare(new: Obj, old: Obj) -> Iterator[FieldError]:
        if not old.get("immutable"):
            return
        why = "field is immutable when `immutable` is set"
        if not new.get("immutable"):
            yield FieldError.forbidden("immutable", why)
        for field in fields:
            if new.get(field) != old.get(field):
                yield FieldError.forbidden(field, why)

    return compare


def key_errors(key: str, path: str) -> list[FieldError]:
    return [FieldError.invalid(path, key, detail) for detail in names.config_key_errors(key)]


def decoded_size(values: Iterable[str]) -> int:
    return sum(len(base64.b64decode(value)) for value in values)
