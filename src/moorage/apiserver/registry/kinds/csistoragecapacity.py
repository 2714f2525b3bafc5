"""CSIStorageCapacities. Source: storage validation of Kubernetes 1.37, KEP-1472."""

from __future__ import annotations

from typing import Any

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.api.node_labels import DEPRECATED
from moorage.apiserver.registry.columns.cells import NAME, name_of
from moorage.apiserver.registry.columns.volumes import UNSET
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served, Strategy
from moorage.apiserver.registry.validation.scheduling import label_selector_errors
from moorage.apiserver.registry.warnings import node_term_warnings

_TYPES = "io.k8s.api.storage.v1"
_TOPOLOGY = "nodeTopology"


def validate_capacity(capacity: Obj) -> list[FieldError]:
    """Return the errors of a new CSIStorageCapacity."""
    errors = label_selector_errors(capacity.get(_TOPOLOGY, {}), _TOPOLOGY)
    name = capacity.get("storageClassName", "")
    errors += [
        FieldError.invalid("storageClassName", name, detail)
        for detail in names.dns_subdomain_errors(name)
    ]
    size = capacity.get("capacity", "0")
    if quantity.parse(size).nano < 0:
        detail = "must be greater than or equal to 0"
        errors.append(FieldError.invalid("capacity", size, detail))
    return errors


def validate_capacity_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: it is about the same nodes and class."""
    errors = validate_capacity(new)
    for field in (_TOPOLOGY, "storageClassName"):
        if new.get(field) != old.get(field):
            errors.append(FieldError.invalid(field, new.get(field), "field is immutable"))
    return errors


def warn_capacity(capacity: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about deprecated node labels in the topology."""
    del old
    topology = capacity.get(_TOPOLOGY, {})
    return [
        *node_term_warnings(topology, _TOPOLOGY),
        *(
            f"{_TOPOLOGY}.matchLabels.{label}: {DEPRECATED[label]}"
            for label in topology.get("matchLabels", ())
            if label in DEPRECATED
        ),
    ]


def _cells(capacity: Obj, now: float) -> list[Any]:
    del now
    return [
        name_of(capacity),
        capacity.get("storageClassName", ""),
        capacity.get("capacity", UNSET),
    ]


_FIELDS = f"{_TYPES}.CSIStorageCapacity"
_PRINTER = Printer(
    columns=(
        NAME,
        Column("StorageClassName", documented_by=f"{_FIELDS}.storageClassName"),
        Column("Capacity", documented_by=f"{_FIELDS}.capacity"),
    ),
    cells=_cells,
)

CSI_STORAGE_CAPACITY = Kind(
    name="CSIStorageCapacity",
    plural="csistoragecapacities",
    served=(Served(group="storage.k8s.io", version="v1", type=f"{_TYPES}.CSIStorageCapacity"),),
    strategy=Strategy(
        validate=validate_capacity,
        validate_update=validate_capacity_update,
        warn=warn_capacity,
        needs_revision_on_update=True,
    ),
    printer=_PRINTER,
)
