"""ComponentStatuses: the health of the cluster's components, asked for and never kept.

Source: core/v1 `ComponentStatus`, deprecated since 1.19.
"""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.columns.cells import NAME, name_of
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served


def _cells(component: Obj, now: float) -> list[Any]:
    del now
    for condition in component.get("conditions", ()):
        if condition["type"] == "Healthy":
            status = "Healthy" if condition["status"] == "True" else "Unhealthy"
            texts = [condition.get("message", ""), condition.get("error", "")]
            return [name_of(component), status, *texts]
    return [name_of(component), "Unknown", "", ""]


COMPONENT_STATUS = Kind(
    name="ComponentStatus",
    plural="componentstatuses",
    served=(
        Served(
            group="",
            version="v1",
            type="io.k8s.api.core.v1.ComponentStatus",
            warning="v1 ComponentStatus is deprecated in v1.19+",
        ),
    ),
    is_namespaced=False,
    short_names=("cs",),
    verbs=("get", "list"),
    printer=Printer(
        columns=(
            NAME,
            Column("Status", description="Status of the component conditions"),
            Column("Message", description="Message of the component conditions"),
            Column("Error", description="Error of the component conditions"),
        ),
        cells=_cells,
    ),
    is_stored=False,
)
