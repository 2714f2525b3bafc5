"""Events: what happened, to what, and how long ago.

Both API groups show the one stored object, in the core group's form.
"""

from __future__ import annotations

from typing import Any

from moorage.registry.columns.ages import age
from moorage.registry.columns.cells import CORE, NAME, name_of
from moorage.registry.kind import Column, Obj, Printer


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


_EVENT = f"{CORE}.Event"

EVENTS = Printer(
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
