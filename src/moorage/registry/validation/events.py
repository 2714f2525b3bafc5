"""Events. Source: core validation `ValidateEventCreate`."""

from __future__ import annotations

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.registry.kind import Obj

_CLUSTER_SCOPED_NAMESPACES = ("", "default", "kube-system")
_TYPES = ("Normal", "Warning")
_NOTE_BYTES = 1024


def validate_event(event: Obj) -> list[FieldError]:
    involved = event.get("involvedObject", {})
    namespace = event["metadata"].get("namespace", "")
    errors: list[FieldError] = []
    about = involved.get("namespace", "")
    is_misplaced = namespace not in _CLUSTER_SCOPED_NAMESPACES if not about else namespace != about
    if is_misplaced:
        errors.append(
            FieldError.invalid("involvedObject.namespace", about, "does not match event.namespace")
        )
    if namespace:
        errors += [
            FieldError.invalid("namespace", namespace, e) for e in names.dns_label_errors(namespace)
        ]
    # Events with a time of their own are in the new style, which is stricter.
    if "eventTime" in event:
        errors += _new_style_errors(event)
    return errors


def _new_style_errors(event: Obj) -> list[FieldError]:
    reporter = event.get("reportingComponent", "")
    errors = [] if reporter else [FieldError.required("reportingComponent")]
    errors += [
        FieldError.invalid("reportingComponent", reporter, each)
        for each in names.qualified_name_errors(reporter)
    ]
    errors += [
        FieldError.required(field)
        for field in ("reportingInstance", "action", "reason")
        if not event.get(field)
    ]
    if event.get("type") not in _TYPES:
        errors.append(FieldError.invalid("type", event.get("type", ""), "has invalid value: "))
    if len(event.get("message", "").encode()) > _NOTE_BYTES:
        errors.append(
            FieldError.invalid("message", "", f"can have at most {_NOTE_BYTES} characters")
        )
    return errors


def validate_event_update(new: Obj, old: Obj) -> list[FieldError]:
    del old
    return validate_event(new)
