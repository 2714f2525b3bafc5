"""CSINodes. Source: storage validation of Kubernetes 1.37."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.apiserver.registry.kind import (
    Column,
    Kind,
    Obj,
    PartRules,
    Printer,
    Served,
    Strategy,
    status_subresource,
)
from moorage.apiserver.registry.preparation import drop_status, keep_spec, keep_status
from moorage.apiserver.registry.validation.go_shapes import CSI_NODE_DRIVER, go_struct
from moorage.apiserver.registry.validation.volume_sources import csi_driver_name_errors

_TYPES = "io.k8s.api.storage.v1"
_NODE_ID_MAX = 256


def validate_csi_node(csi_node: Obj) -> list[FieldError]:
    """Return the errors of a new CSINode."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, driver in enumerate(csi_node.get("spec", {}).get("drivers", ())):
        errors += _driver_errors(driver, f"spec.drivers[{index}]", seen)
    return errors


def validate_csi_node_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: drivers come and go; only their limits change."""
    errors = validate_csi_node(new)
    drivers = new.get("spec", {}).get("drivers", [])
    before = {
        driver.get("name", ""): _fixed(driver) for driver in old.get("spec", {}).get("drivers", ())
    }
    for driver in drivers:
        fixed = _fixed(driver)
        if before.get(driver.get("name", ""), fixed) != fixed:
            shown = go_struct(fixed, CSI_NODE_DRIVER)
            errors.append(FieldError.invalid("spec.drivers", shown, "field is immutable"))
    return errors


def _fixed(driver: Obj) -> Obj:
    return {field: value for field, value in driver.items() if field != "allocatable"}


def _driver_errors(driver: Obj, path: str, seen: set[str]) -> Iterator[FieldError]:
    name, node_id = driver.get("name", ""), driver.get("nodeID", "")
    yield from csi_driver_name_errors(name, f"{path}.name")
    if not node_id:
        yield FieldError.required(f"{path}.nodeID")
    if len(node_id.encode()) > _NODE_ID_MAX:
        detail = f"must be {_NODE_ID_MAX} characters or less"
        yield FieldError.invalid(f"{path}.nodeID", node_id, detail)
    count = driver.get("allocatable", {}).get("count", 0)
    if count < 0:
        detail = "must be greater than or equal to 0"
        yield FieldError.invalid(f"{path}.allocatable.count", count, detail)
    if name in seen:
        yield FieldError.duplicate(f"{path}.name", name)
    seen.add(name)
    keys: set[str] = set()
    for key in driver.get("topologyKeys", ()):
        # Upstream names the driver here.
        if not key:
            yield FieldError.required(path)
        if key in keys:
            yield FieldError.duplicate(path, key)
        keys.add(key)
        for detail in names.qualified_name_errors(key):
            yield FieldError.invalid(path, key, detail)


def _cells(csi_node: Obj, now: float) -> list[Any]:
    drivers = csi_node.get("spec", {}).get("drivers", ())
    return [name_of(csi_node), len(drivers), age_of(csi_node, now)]


_DRIVERS = Column("Drivers", "integer", description="Number of CSI drivers that the node has")

CSI_NODE = Kind(
    name="CSINode",
    plural="csinodes",
    served=(Served(group="storage.k8s.io", version="v1", type=f"{_TYPES}.CSINode"),),
    is_namespaced=False,
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_csi_node,
        validate_update=validate_csi_node_update,
        parts={"status": PartRules(prepare=keep_spec)},
        returns_deleted=True,
        needs_revision_on_update=True,
    ),
    printer=Printer(columns=(NAME, _DRIVERS, AGE), cells=_cells),
    subresources=status_subresource(),
)
