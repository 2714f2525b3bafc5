"""Events in their second home, events.k8s.io/v1, under other names.

Source: events.k8s.io/v1 `Event`; the stored form is core/v1's.
"""

from __future__ import annotations

from moorage.registry.kind import Obj

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


def to_core(obj: Obj) -> Obj:
    return {_NAMES.get(field, field): value for field, value in obj.items()}


def from_core(obj: Obj) -> Obj:
    return {_CORE_NAMES.get(field, field): value for field, value in obj.items()}
