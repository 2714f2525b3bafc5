"""Events: one stored object, two API groups."""

from __future__ import annotations

from moorage.registry import columns, validation
from moorage.registry.conversion import events
from moorage.registry.kind import Kind, SelectableField, Served, Strategy

_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

EVENT = Kind(
    name="Event",
    plural="events",
    served=(
        Served(group="", version="v1", type="io.k8s.api.core.v1.Event"),
        Served(
            group="events.k8s.io",
            version="v1",
            type="io.k8s.api.events.v1.Event",
            to_storage=events.to_core,
            from_storage=events.from_core,
            field_aliases=events.FIELD_ALIASES,
        ),
    ),
    short_names=("ev",),
    strategy=Strategy(
        validate=validation.validate_event,
        validate_update=validation.validate_event_update,
        may_create_on_update=True,
    ),
    printer=columns.EVENTS,
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
