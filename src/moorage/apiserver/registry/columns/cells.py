"""Columns and cells that many kinds share.

A bookmark's row is printed from an object without anything but a revision, so every cell function
takes absent fields as zero values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorage.apiserver.registry.columns.ages import age
from moorage.apiserver.registry.kind import Column, Obj, Printer

NONE = "<none>"
CORE = "io.k8s.api.core.v1"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_NEVER = "0001-01-01T00:00:00Z"

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
