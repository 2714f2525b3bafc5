"""Events of objects. Source: core/v1 `Event`."""

from __future__ import annotations

from moorage.api.meta import Object, ObjectMeta, ObjectReference


class EventSource(Object, frozen=True):
    component: str = ""
    host: str = ""


class EventSeries(Object, frozen=True):
    count: int = 0
    last_observed_time: str | None = None


class Event(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    source: EventSource = EventSource()
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    count: int = 0
    type: str = ""
    event_time: str | None = None
    series: EventSeries | None = None
    action: str = ""
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
