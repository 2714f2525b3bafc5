"""Volume claim validation: the specification of PersistentVolumeClaims and of their templates.

Source: core validation `ValidatePersistentVolumeClaimSpec` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.rules import (
    follows,
    one_of,
    part,
    required,
    required_as,
    unless_empty,
)
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.metadata import embedded_metadata_errors
from moorage.apiserver.registry.validation.scheduling import label_selector_errors

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_EXCLUSIVE = "ReadWriteOncePod"
_OTHER_KIND = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"

class_name_errors = unless_empty(follows(names.dns_subdomain_errors))
"""Validate the name of a class, if there is one."""
volume_mode_errors = one_of("Block", "Filesystem")
"""Validate whether a volume has a file system or is a block device."""


def access_mode_errors(modes: list[str], path: str) -> Iterator[FieldError]:
    """Validate the access modes of a claim or a volume; there may be none."""
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield FieldError.not_supported(path, mode, _ACCESS_MODES)
    if _EXCLUSIVE in modes and any(mode in _ACCESS_MODES and mode != _EXCLUSIVE for mode in modes):
        yield FieldError.forbidden(path, f"may not use {_EXCLUSIVE} with other access modes")


def _storage_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    storage, path = (
        spec.get("resources", {}).get("requests", {}).get("storage"),
        f"{path}.resources[storage]",
    )
    if storage is None:
        yield FieldError.required(path)
    elif quantity.parse(storage).nano <= 0:
        yield FieldError.invalid(path, storage, "must be greater than zero")


def _group_errors(reference: Obj, path: str) -> Iterator[FieldError]:
    kind = reference.get("kind", "")
    if not reference.get("apiGroup") and kind != "PersistentVolumeClaim":
        yield FieldError.invalid(path, kind, _OTHER_KIND)


_reference_errors = part(
    ("name", required),
    ("kind", required),
    ("", _group_errors),
    ("apiGroup", unless_empty(follows(names.dns_subdomain_errors))),
    ("namespace", unless_empty(follows(names.dns_label_errors))),
)


def _sources_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is None or reference is None:
        return
    # Upstream shows a path in place of the value, which has no JSON form.
    if reference.get("namespace"):
        detail = "may not be specified when dataSourceRef.namespace is specified"
        yield FieldError.invalid(path, {}, detail)
    elif any(source.get(field) != reference.get(field) for field in ("apiGroup", "kind", "name")):
        yield FieldError.invalid(path, {}, "must match dataSourceRef")


claim_spec_errors = part(
    ("accessModes", required_as("at least 1 access mode is required")),
    ("selector", label_selector_errors),
    ("accessModes", access_mode_errors),
    ("", _storage_errors),
    ("storageClassName", class_name_errors),
    ("volumeMode", volume_mode_errors),
    ("dataSource", _reference_errors),
    ("dataSourceRef", _reference_errors),
    ("", _sources_errors),
    ("volumeAttributesClassName", class_name_errors),
)
"""Validate the specification of a volume claim."""


def claim_template_errors(template: Obj, path: str) -> list[FieldError]:
    """Return the errors of the claim that a pod's volume makes."""
    errors = embedded_metadata_errors(template.get("metadata", {}), f"{path}.metadata")
    return errors + claim_spec_errors(template.get("spec", {}), f"{path}.spec")
