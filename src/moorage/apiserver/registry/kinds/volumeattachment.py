"""VolumeAttachments. Source: storage defaults and validation of Kubernetes 1.37."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.apiserver.registry.defaults.pod_template import round_amounts
from moorage.apiserver.registry.defaults.volume_sources import default_volume_source
from moorage.apiserver.registry.kind import (
    Column,
    Kind,
    Obj,
    PartRules,
    Printer,
    Served,
    Strategy,
    status_subresource,
)
from moorage.apiserver.registry.preparation import keep_all_but_status, keep_status
from moorage.apiserver.registry.validation.persistent_volumes import inline_volume_spec_errors
from moorage.apiserver.registry.validation.volume_sources import csi_driver_name_errors

_TYPES = "io.k8s.api.storage.v1"
_ONE_SOURCE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
_METADATA_MAX_BYTES = 256 * 1024
_MESSAGE_MAX_BYTES = 1024


def default_attachment(attachment: Obj) -> None:
    """Set the API defaults of the volume that a VolumeAttachment has inline."""
    inline = _source(attachment).get("inlineVolumeSpec")
    if inline is not None:
        default_volume_source(inline)
        if "capacity" in inline:
            round_amounts(inline["capacity"])


def prepare_attachment(attachment: Obj) -> None:
    """Reset the status of a new VolumeAttachment: nothing is attached."""
    attachment["status"] = {"attached": False}


def validate_attachment(attachment: Obj) -> list[FieldError]:
    """Return the errors of a new VolumeAttachment."""
    spec = attachment.get("spec", {})
    errors = [*csi_driver_name_errors(spec.get("attacher", ""), "spec.attacher")]
    errors += _source_errors(_source(attachment), "spec.source")
    errors += _name_errors(spec.get("nodeName", ""), "spec.nodeName")
    errors += _status_errors(attachment.get("status", {}))
    volume = _source(attachment).get("persistentVolumeName")
    if volume is not None:
        errors += _name_errors(volume, "spec.source.persistentVolumeName")
    return errors


def validate_attachment_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update; the specification never changes."""
    errors = validate_attachment(new)
    spec = new.get("spec", {})
    if spec != old.get("spec", {}):
        source = _source(new)
        shown = {
            "Attacher": spec.get("attacher", ""),
            "Source": {
                "PersistentVolumeName": source.get("persistentVolumeName"),
                "InlineVolumeSpec": source.get("inlineVolumeSpec"),
            },
            "NodeName": spec.get("nodeName", ""),
        }
        errors.append(FieldError.invalid("spec", shown, "field is immutable"))
    return errors


def _source(attachment: Obj) -> Obj:
    source: Obj = attachment.get("spec", {}).get("source", {})
    return source


def _source_errors(source: Obj, path: str) -> Iterator[FieldError]:
    inline, volume = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if inline is None and volume is None:
        yield FieldError.required(path, _ONE_SOURCE)
    elif inline is not None and volume is not None:
        yield FieldError.forbidden(path, _ONE_SOURCE)
    elif inline is not None:
        yield from inline_volume_spec_errors(inline, f"{path}.inlineVolumeSpec")
    elif not volume:
        detail = "must specify non empty persistentVolumeName"
        yield FieldError.required(f"{path}.persistentVolumeName", detail)


def _name_errors(name: str, path: str) -> Iterator[FieldError]:
    for detail in names.dns_subdomain_errors(name):
        yield FieldError.invalid(path, name, detail)


def _status_errors(status: Obj) -> Iterator[FieldError]:
    metadata = status.get("attachmentMetadata", {})
    size = sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())
    if size > _METADATA_MAX_BYTES:
        yield FieldError.too_long("status.attachmentMetadata", _METADATA_MAX_BYTES)
    for field in ("attachError", "detachError"):
        error = status.get(field, {})
        if len(error.get("message", "").encode()) > _MESSAGE_MAX_BYTES:
            # The bound in the text is upstream's, not the one that holds.
            yield FieldError.too_long(f"status.{field}.message", _METADATA_MAX_BYTES)
        code = error.get("errorCode", 0)
        if code < 0:
            detail = f"must be between 0 and {2**31 - 1}, inclusive"
            yield FieldError.invalid(f"status.{field}.errorCode", code, detail)


def _cells(attachment: Obj, now: float) -> list[Any]:
    spec = attachment.get("spec", {})
    return [
        name_of(attachment),
        spec.get("attacher", ""),
        _source(attachment).get("persistentVolumeName", ""),
        spec.get("nodeName", ""),
        attachment.get("status", {}).get("attached", False),
        age_of(attachment, now),
    ]


_SPEC = f"{_TYPES}.VolumeAttachmentSpec"
_PRINTER = Printer(
    columns=(
        NAME,
        Column("Attacher", format="name", documented_by=f"{_SPEC}.attacher"),
        Column("PV", documented_by=f"{_TYPES}.VolumeAttachmentSource.persistentVolumeName"),
        Column("Node", documented_by=f"{_SPEC}.nodeName"),
        Column("Attached", "boolean", documented_by=f"{_TYPES}.VolumeAttachmentStatus.attached"),
        AGE,
    ),
    cells=_cells,
)

VOLUME_ATTACHMENT = Kind(
    name="VolumeAttachment",
    plural="volumeattachments",
    served=(Served(group="storage.k8s.io", version="v1", type=f"{_TYPES}.VolumeAttachment"),),
    is_namespaced=False,
    strategy=Strategy(
        default=default_attachment,
        prepare_create=prepare_attachment,
        prepare_update=keep_status,
        validate=validate_attachment,
        validate_update=validate_attachment_update,
        parts={"status": PartRules(keep_all_but_status, validate_attachment_update)},
        returns_deleted=True,
        needs_revision_on_update=True,
    ),
    printer=_PRINTER,
    subresources=status_subresource(),
)
