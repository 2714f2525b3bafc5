"""Volume claim validation: the specification of PersistentVolumeClaims and of their templates.

Source: core validation `ValidatePersistentVolumeClaimSpec` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.metadata import embedded_metadata_errors
from moorage.apiserver.registry.validation.scheduling import label_selector_errors

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_EXCLUSIVE = "ReadWriteOncePod"
_VOLUME_MODES = ("Block", "Filesystem")


def claim_spec_errors(spec: Obj, path: str) -> list[FieldError]:
    """Return the errors of the specification of a volume claim."""
    errors = [*_access_errors(spec, path)]
    errors += _storage_errors(spec, f"{path}.resources[storage]")
    errors += class_name_errors(spec.get("storageClassName", ""), f"{path}.storageClassName")
    errors += volume_mode_errors(spec.get("volumeMode"), f"{path}.volumeMode")
    errors += _source_errors(spec, path)
    field = "volumeAttributesClassName"
    errors += class_name_errors(spec.get(field, ""), f"{path}.{field}")
    return errors


def claim_template_errors(template: Obj, path: str) -> list[FieldError]:
    """Return the errors of the claim that a pod's volume makes."""
    errors = embedded_metadata_errors(template.get("metadata", {}), f"{path}.metadata")
    return errors + claim_spec_errors(template.get("spec", {}), f"{path}.spec")


def access_mode_errors(modes: list[str], path: str) -> Iterator[FieldError]:
    """Validate the access modes of a claim or a volume; there may be none."""
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield FieldError.not_supported(path, mode, _ACCESS_MODES)
    if _EXCLUSIVE in modes and any(mode in _ACCESS_MODES and mode != _EXCLUSIVE for mode in modes):
        yield FieldError.forbidden(path, f"may not use {_EXCLUSIVE} with other access modes")


def volume_mode_errors(mode: str | None, path: str) -> Iterator[FieldError]:
    """Validate whether a volume has a file system or is a block device."""
    if mode is not None and mode not in _VOLUME_MODES:
        yield FieldError.not_supported(path, mode, _VOLUME_MODES)


def class_name_errors(name: str, path: str) -> Iterator[FieldError]:
    """Validate the name of a class, if there is one."""
    for detail in names.dns_subdomain_errors(name) if name else ():
        yield FieldError.invalid(path, name, detail)


def _access_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    modes, at = spec.get("accessModes", []), f"{path}.accessModes"
    if not modes:
        yield FieldError.required(at, "at least 1 access mode is required")
    if "selector" in spec:
        yield from label_selector_errors(spec["selector"], f"{path}.selector")
    yield from access_mode_errors(modes, at)


def _storage_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    storage = spec.get("resources", {}).get("requests", {}).get("storage")
    if storage is None:
        yield FieldError.required(path)
    elif quantity.parse(storage).nano <= 0:
        yield FieldError.invalid(path, storage, "must be greater than zero")


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
