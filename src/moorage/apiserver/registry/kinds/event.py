"""Events: one stored object, served by two API groups.

The stored form is core/v1's; events.k8s.io/v1 names the same fields differently. Columns show the
stored form in both groups. Source: core validation `ValidateEventCreate`, Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Any

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import CORE, NAME, age, name_of
from moorage.apiserver.registry.declare.rules import update
from moorage.apiserver.registry.kind import (
    Column,
    Kind,
    Obj,
    Printer,
    SelectableField,
    Served,
    Strategy,
)

_CLUSTER_SCOPED_NAMESPACES = ("", "default", "kube-system")
_TYPES = ("Normal", "Warning")
_NOTE_BYTES = 1024
# events.k8s.io/v1 field → core/v1 field; what is not here has the same name in both.
_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_NAMES = {core: new for new, core in _NAMES.items()}

FIELD_ALIASES = {
    **{
        f"regarding.{part}": f"involvedObject.{part}"
        for part in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion",
                     "fieldPath")
    },
    "reportingController": "reportingComponent",
}  # fmt: skip
"""Field labels of events.k8s.io/v1 → those of the stored form."""

_EVENT = f"{CORE}.Event"
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def validate_event(event: Obj) -> list[FieldError]:
    """Return the errors of a new Event."""
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
        FieldError.invalid("reportingComponent", reporter, detail)
        for detail in names.qualified_name_errors(reporter)
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


def to_core(obj: Obj) -> Obj:
    return {_NAMES.get(field, field): value for field, value in obj.items()}


def from_core(obj: Obj) -> Obj:
    return {_CORE_NAMES.get(field, field): value for field, value in obj.items()}


def _event_cells(event: Obj, now: float) -> list[Any]:
    first = age(event.get("firstTimestamp") or event.get("eventTime"), now)
    last = age(event["lastTimestamp"], now) if event.get("lastTimestamp") else first
    # Events of the newer API that happened once carry no count.
    count = event.get("count") or 1
    series = event.get("series")
    if series is not None:
        last, count = age(series.get("lastObservedTime"), now), series.get("count", 0)
    about = event.get("involvedObject", {})
    return [
        last,
        event.get("type", ""),
        event.get("reason", ""),
        _target(about),
        about.get("fieldPath", ""),
        _source(event),
        event.get("message", "").strip(),
        first,
        count,
        name_of(event),
    ]


def _target(about: Obj) -> str:
    kind = about.get("kind", "").lower()
    return f"{kind}/{about['name']}" if about.get("name") else kind


def _source(event: Obj) -> str:
    source = event.get("source", {})
    component = source.get("component") or event.get("reportingComponent", "")
    instance = source.get("host") or event.get("reportingInstance", "")
    return f"{component}, {instance}" if instance else component


_PRINTER = Printer(
    columns=(
        Column("Last Seen", documented_by=f"{_EVENT}.lastTimestamp"),
        Column("Type", documented_by=f"{_EVENT}.type"),
        Column("Reason", documented_by=f"{_EVENT}.reason"),
        Column("Object", documented_by=f"{_EVENT}.involvedObject"),
        Column("Subobject", documented_by=f"{CORE}.ObjectReference.fieldPath", priority=1),
        Column("Source", documented_by=f"{_EVENT}.source", priority=1),
        Column("Message", documented_by=f"{_EVENT}.message"),
        Column("First Seen", documented_by=f"{_EVENT}.firstTimestamp", priority=1),
        Column("Count", documented_by=f"{_EVENT}.count", priority=1),
        Column(NAME.name, format=NAME.format, documented_by=NAME.documented_by, priority=1),
    ),
    cells=_event_cells,
)

EVENT = Kind(
    name="Event",
    plural="events",
    served=(
        Served("", "v1", "io.k8s.api.core.v1.Event"),
        Served(
            "events.k8s.io",
            "v1",
            "io.k8s.api.events.v1.Event",
            to_storage=to_core,
            from_storage=from_core,
            field_aliases=FIELD_ALIASES,
        ),
    ),
    short_names=("ev",),
    strategy=Strategy(
        validate=validate_event,
        validate_update=update(validate_event),
        may_create_on_update=True,
    ),
    printer=_PRINTER,
    selectable=(
        *(
            SelectableField(f"involvedObject.{part}", ("involvedObject", part))
            for part in _INVOLVED
        ),
        SelectableField("reason", ("reason",)),
        SelectableField("reportingComponent", ("reportingComponent",)),
        # Writers of events.k8s.io/v1 name only the controller. Source: event ToSelectableFields.
        SelectableField("source", ("source", "component"), fallback=("reportingComponent",)),
        SelectableField("type", ("type",)),
    ),
)
