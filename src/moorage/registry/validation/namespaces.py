"""Namespaces. Source: core validation `ValidateNamespace`."""

from __future__ import annotations

from moorage.api.errors import FieldError
from moorage.registry.kind import Obj
from moorage.registry.validation.metadata import key_complaints

_STANDARD = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def validate_namespace(namespace: Obj) -> list[FieldError]:
    errors: list[FieldError] = []
    for finalizer in namespace.get("spec", {}).get("finalizers", ()):
        complaints = key_complaints(finalizer)
        errors += [FieldError.invalid("spec.finalizers", finalizer, c) for c in complaints]
        if not complaints and "/" not in finalizer and finalizer not in _STANDARD:
            errors.append(
                FieldError.invalid(
                    "spec.finalizers",
                    finalizer,
                    "name is neither a standard finalizer name nor is it fully qualified",
                )
            )
    return errors


def validate_namespace_update(new: Obj, old: Obj) -> list[FieldError]:
    del old
    return validate_namespace(new)
