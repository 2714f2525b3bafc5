"""Classes and attachments of storage. Source: storage validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.claims.classes import is_marked_default
from moorage.api.errors import FieldError
from moorage.api.nodes import DEPRECATED
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, marked_name, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import (
    IMMUTABLE,
    always,
    always_text,
    at_least,
    follows,
    immutable,
    one_of,
    present,
    required_as,
    unless_empty,
    update,
    validator,
    without_path,
)
from moorage.apiserver.registry.defaults import default_volume_source, round_amounts
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

_MOST_PARAMETERS = 512
_MOST_BYTES = 256 * 1024
_STORAGE_CLASS = "io.k8s.api.storage.v1.StorageClass"
_EXPRESSIONS = "matchLabelExpressions"
_ATTRIBUTES_CLASS = "io.k8s.api.storage.v1.VolumeAttributesClass"
_TYPES = "io.k8s.api.storage.v1"
_ONE_SOURCE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
_METADATA_MAX_BYTES = 256 * 1024
_MESSAGE_MAX_BYTES = 1024
_INLINE = "spec?.source?.inlineVolumeSpec?"
_SPEC = f"{_TYPES}.VolumeAttachmentSpec"


def provisioner_errors(provisioner: str, path: str) -> Iterator[FieldError]:
    """Validate the name of a provisioner or driver."""
    if not provisioner:
        yield FieldError.required(path)
        return
    for detail in names.qualified_name_errors(provisioner.lower()):
        yield FieldError.invalid(path, provisioner.lower(), detail)


def parameter_errors(parameters: dict[str, str], path: str) -> Iterator[FieldError]:
    """Validate the number and the size of parameters."""
    if len(parameters) > _MOST_PARAMETERS:
        yield FieldError.too_long(path, _MOST_PARAMETERS)
        return
    if "" in parameters:
        yield FieldError.invalid(path, "", "field can not be empty.")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items())
    if size > _MOST_BYTES:
        yield FieldError.too_long(path, _MOST_BYTES)


def _topology_errors(terms: list[Obj]) -> Iterator[FieldError]:
    seen: set[frozenset[tuple[str, frozenset[str]]]] = set()
    for index, term in enumerate(terms):
        path = f"allowedTopologies[{index}].{_EXPRESSIONS}"
        values_of: dict[str, frozenset[str]] = {}
        for number, expression in enumerate(term.get(_EXPRESSIONS, ())):
            at, key = f"{path}[{number}]", expression.get("key", "")
            yield from _expression_errors(expression, at)
            if key in values_of:
                yield FieldError.duplicate(f"{at}.key", key)
            values_of[key] = frozenset(expression.get("values", ()))
        requirement = frozenset(values_of.items())
        if requirement in seen:
            yield FieldError.duplicate(path, "")
        seen.add(requirement)


def _expression_errors(expression: Obj, path: str) -> Iterator[FieldError]:
    values, key = expression.get("values", []), expression.get("key", "")
    if not values:
        yield FieldError.required(f"{path}.values")
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            yield FieldError.duplicate(f"{path}.values[{index}]", value)
        seen.add(value)
    for detail in names.qualified_name_errors(key):
        yield FieldError.invalid(f"{path}.key", key, detail)


def warn_storage_class(storage_class: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about deprecated node labels in the topologies."""
    del old
    return [
        f"allowedTopologies[{index}].{_EXPRESSIONS}[{number}].key: {DEPRECATED[expression['key']]}"
        for index, term in enumerate(storage_class.get("allowedTopologies", ()))
        for number, expression in enumerate(term.get(_EXPRESSIONS, ()))
        if expression.get("key", "") in DEPRECATED
    ]


def _is_default(storage_class: Obj) -> bool:
    return is_marked_default(storage_class["metadata"].get("annotations", {}))


validate_storage_class = validator(
    ("provisioner", always(provisioner_errors)),
    ("parameters", parameter_errors),
    ("reclaimPolicy", unless_empty(one_of("Delete", "Retain"))),
    ("volumeBindingMode", present, one_of("Immediate", "WaitForFirstConsumer")),
    ("allowedTopologies", without_path(_topology_errors)),
)

STORAGE_CLASS = Kind(
    name="StorageClass",
    plural="storageclasses",
    served=(Served("storage.k8s.io", "v1", _STORAGE_CLASS),),
    is_namespaced=False,
    short_names=("sc",),
    strategy=Strategy(
        default=defaults(
            ("reclaimPolicy", "Delete"),
            ("volumeBindingMode", "Immediate"),
        ),
        validate=validate_storage_class,
        validate_update=update(
            validate_storage_class,
            after=immutable("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
        ),
        warn=warn_storage_class,
        returns_deleted=True,
    ),
    printer=printer(
        marked_name(_is_default),
        column("Provisioner", "provisioner", of=_STORAGE_CLASS),
        column("ReclaimPolicy", "reclaimPolicy", of=_STORAGE_CLASS, absent="Delete"),
        column("VolumeBindingMode", "volumeBindingMode", of=_STORAGE_CLASS, absent="Immediate"),
        column("AllowVolumeExpansion", "allowVolumeExpansion", of=_STORAGE_CLASS, absent=False),
        AGE,
    ),
)

validate_attributes_class = validator(
    ("driverName", always(provisioner_errors)),
    ("parameters", parameter_errors, required_as("must contain at least one key/value pair")),
)


def _changes(new: Obj, old: Obj) -> Iterator[FieldError]:
    for field in ("driverName", "parameters"):
        if new.get(field) != old.get(field):
            yield FieldError.forbidden(field, f"updates to {field} are forbidden.")


VOLUME_ATTRIBUTES_CLASS = Kind(
    name="VolumeAttributesClass",
    plural="volumeattributesclasses",
    served=(Served("storage.k8s.io", "v1", _ATTRIBUTES_CLASS),),
    is_namespaced=False,
    short_names=("vac",),
    strategy=Strategy(
        validate=validate_attributes_class,
        validate_update=update(validate_attributes_class, before=_changes),
        returns_deleted=True,
    ),
    printer=printer(NAME, column("DriverName", "driverName", of=_ATTRIBUTES_CLASS), AGE),
)

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

VOLUME_ATTACHMENT = Kind(
    name="VolumeAttachment",
    plural="volumeattachments",
    served=(Served("storage.k8s.io", "v1", f"{_TYPES}.VolumeAttachment"),),
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
