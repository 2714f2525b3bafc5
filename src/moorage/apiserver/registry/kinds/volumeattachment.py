"""VolumeAttachments. Source: storage defaults and validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import (
    IMMUTABLE,
    always,
    always_text,
    at_least,
    follows,
    update,
    validator,
)
from moorage.apiserver.registry.defaults.pod_template import round_amounts
from moorage.apiserver.registry.defaults.volume_sources import default_volume_source
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
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


_INLINE = "spec?.source?.inlineVolumeSpec?"
default_attachment = defaults(
    (_INLINE, default_volume_source), (f"{_INLINE}.capacity?", round_amounts)
)


def prepare_attachment(attachment: Obj) -> None:
    """Reset the status of a new VolumeAttachment: nothing is attached."""
    attachment["status"] = {"attached": False}


def _changed_spec(new: Obj, old: Obj) -> Iterator[FieldError]:
    """The specification never changes."""
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
        yield FieldError.invalid("spec", shown, IMMUTABLE)


def _source(attachment: Obj) -> Obj:
    source: Obj = attachment.get("spec", {}).get("source", {})
    return source


def _source_errors(source: Obj | None, path: str) -> Iterator[FieldError]:
    source = source or {}
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


def _metadata_errors(metadata: dict[str, str], path: str) -> Iterator[FieldError]:
    size = sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())
    if size > _METADATA_MAX_BYTES:
        yield FieldError.too_long(path, _METADATA_MAX_BYTES)


def _message_errors(message: str, path: str) -> Iterator[FieldError]:
    if len(message.encode()) > _MESSAGE_MAX_BYTES:
        # The bound in the text is upstream's, not the one that holds.
        yield FieldError.too_long(path, _METADATA_MAX_BYTES)


_name_errors = follows(names.dns_subdomain_errors)
_code_errors = at_least(0, f"must be between 0 and {2**31 - 1}, inclusive")
validate_attachment = validator(
    ("spec.attacher", always(csi_driver_name_errors)),
    ("spec.source", always(_source_errors)),
    ("spec.nodeName", always_text(_name_errors)),
    ("status.attachmentMetadata", _metadata_errors),
    ("status.attachError.message", _message_errors),
    ("status.attachError.errorCode", _code_errors),
    ("status.detachError.message", _message_errors),
    ("status.detachError.errorCode", _code_errors),
    ("spec.source.persistentVolumeName", _name_errors),
)
validate_attachment_update = update(validate_attachment, after=_changed_spec)
_SPEC = f"{_TYPES}.VolumeAttachmentSpec"

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
    printer=printer(
        NAME,
        column("Attacher", "spec.attacher", of=_SPEC, format_="name"),
        column("PV", "spec.source.persistentVolumeName", of=f"{_TYPES}.VolumeAttachmentSource"),
        column("Node", "spec.nodeName", of=_SPEC),
        column("Attached", "status.attached", "boolean", of=f"{_TYPES}.VolumeAttachmentStatus"),
        AGE,
    ),
    subresources=status_subresource(),
)
