"""Volume claim validation: the specification of PersistentVolumeClaims and of their templates.

Source: core validation `ValidatePersistentVolumeClaimSpec` of Kubernetes 1.37.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.registry.kind import Obj
from moorage.registry.validation.scheduling import label_selector_errors

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_EXCLUSIVE = "ReadWriteOncePod"
_VOLUME_MODES = ("Block", "Filesystem")


def claim_spec_errors(spec: Obj, path: str) -> list[FieldError]:
    """Return the errors of the specification of a volume claim."""
    errors = [*_access_errors(spec, path)]
    errors += _storage_errors(spec, f"{path}.resources[storage]")
    errors += _class_errors(spec, "storageClassName", path)
    mode = spec.get("volumeMode")
    if mode is not None and mode not in _VOLUME_MODES:
        errors.append(FieldError.not_supported(f"{path}.volumeMode", mode, _VOLUME_MODES))
    errors += _source_errors(spec, path)
    errors += _class_errors(spec, "volumeAttributesClassName", path)
    return errors


def _access_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    modes, at = spec.get("accessModes", []), f"{path}.accessModes"
    if not modes:
        yield FieldError.required(at, "at least 1 access mode is required")
    if "selector" in spec:
        yield from label_selector_errors(spec["selector"], f"{path}.selector")
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield FieldError.not_supported(at, mode, _ACCESS_MODES)
    if _EXCLUSIVE in modes and any(mode in _ACCESS_MODES and mode != _EXCLUSIVE for mode in modes):
        yield FieldError.forbidden(at, f"may not use {_EXCLUSIVE} with other access modes")


def _storage_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    storage = spec.get("resources", {}).get("requests", {}).get("storage")
    if storage is None:
        yield FieldError.required(path)
    elif quantity.parse(storage).nano <= 0:
        yield FieldError.invalid(path, storage, "must be greater than zero")


def _class_errors(spec: Obj, field: str, path: str) -> Iterator[FieldError]:
    name = spec.get(field, "")
    for detail in names.dns_subdomain_errors(name) if name else ():
        yield FieldError.invalid(f"{path}.{field}", name, detail)


def _source_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None:
        yield from _reference_errors(source, f"{path}.dataSource")
    if reference is not None:
        yield from _reference_errors(reference, f"{path}.dataSourceRef")
    if source is None or reference is None:
        return
    # Upstream shows a path in place of the value, which has no JSON form.
    if reference.get("namespace"):
        yield FieldError.invalid(
            path, {}, "may not be specified when dataSourceRef.namespace is specified"
        )
    elif any(source.get(field) != reference.get(field) for field in ("apiGroup", "kind", "name")):
        yield FieldError.invalid(path, {}, "must match dataSourceRef")


def _reference_errors(reference: Obj, path: str) -> Iterator[FieldError]:
    for field in ("name", "kind"):
        if not reference.get(field):
            yield FieldError.required(f"{path}.{field}")
    group, kind = reference.get("apiGroup") or "", reference.get("kind", "")
    if not group and kind != "PersistentVolumeClaim":
        yield FieldError.invalid(
            path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        )
    for detail in names.dns_subdomain_errors(group) if group else ():
        yield FieldError.invalid(f"{path}.apiGroup", group, detail)
    namespace = reference.get("namespace") or ""
    for detail in names.dns_label_errors(namespace) if namespace else ():
        yield FieldError.invalid(f"{path}.namespace", namespace, detail)
