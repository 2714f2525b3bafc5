"""Columns and cells that many kinds share.

A bookmark's row is printed from an object without anything but a revision, so every cell function
takes absent fields as zero values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorage.api.clock import parse_time
from moorage.apiserver.registry.kind import Column, Obj, Printer

UNKNOWN = "<unknown>"
INVALID = "<invalid>"
NONE = "<none>"
CORE = "io.k8s.api.core.v1"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_NEVER = "0001-01-01T00:00:00Z"

_SECONDS = {
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 24 * 3600,
    "y": 365 * 24 * 3600,
}

# Below each limit in seconds: the unit that is counted, and the one its remainder is printed in.
_FORMS = (
    (2 * _SECONDS["m"], "s", ""),
    (10 * _SECONDS["m"], "m", "s"),
    (3 * _SECONDS["h"], "m", ""),
    (8 * _SECONDS["h"], "h", "m"),
    (48 * _SECONDS["h"], "h", ""),
    (8 * _SECONDS["d"], "d", "h"),
    (2 * _SECONDS["y"], "d", ""),
    (8 * _SECONDS["y"], "y", "d"),
    (float("inf"), "y", ""),
)

# Clocks of two machines may differ by that much without the age being wrong.
_TOLERATED_S = -1


def duration_text(seconds: float) -> str:
    """Format a duration as `45s`, `3m12s`, `26h`, `5d3h` or `2y40d`.

    Returns `<invalid>` for more than a second below zero.
    """
    whole = int(seconds)
    if whole < _TOLERATED_S:
        return INVALID
    whole = max(whole, 0)
    unit, minor = next((unit, minor) for limit, unit, minor in _FORMS if whole < limit)
    count, remainder = divmod(whole, _SECONDS[unit])
    rest = remainder // _SECONDS[minor] if minor else 0
    return f"{count}{unit}{rest}{minor}" if rest else f"{count}{unit}"


def age(timestamp: str | None, now: float) -> str:
    """Format the time from an RFC 3339 timestamp to `now` (seconds since 1970).

    Returns `<unknown>` without a timestamp.
    """
    if not timestamp:
        return UNKNOWN
    return duration_text(now - parse_time(timestamp).timestamp())


NAME = Column("Name", format="name", documented_by=f"{_META}.name")
AGE = Column("Age", documented_by=f"{_META}.creationTimestamp")

CONTAINERS = Column(
    "Containers", description="Names of each container in the template.", priority=1
)

IMAGES = Column(
    "Images", description="Images referenced by each container in the template.", priority=1
)


def name_of(obj: Obj) -> str:
    return str(obj["metadata"].get("name", ""))


def age_of(obj: Obj, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def joined(values: Iterable[str]) -> str:
    """Join the values with commas; `<none>` without values."""
    return ",".join(values) or NONE


def label_text(labels: dict[str, str] | None) -> str:
    """Format labels as `a=1,b=2`; `<none>` without labels."""
    return joined(sorted(f"{key}={value}" for key, value in (labels or {}).items()))


def _created_at_cells(obj: Obj, now: float) -> list[Any]:
    del now
    return [name_of(obj), obj["metadata"].get("creationTimestamp") or _NEVER]


CREATED_AT = Printer(
    columns=(
        NAME,
        Column("Created At", "date", documented_by=f"{_META}.creationTimestamp"),
    ),
    cells=_created_at_cells,
)
"""Printer for kinds without their own; the client computes the age."""
