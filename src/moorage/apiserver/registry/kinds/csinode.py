"""CSINodes. Source: storage validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import (
    IMMUTABLE,
    always,
    most_bytes,
    not_negative,
    required,
    unique,
    update,
    validator,
)
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    status_subresource,
)
from moorage.apiserver.registry.preparation import drop_status, keep_spec, keep_status
from moorage.apiserver.registry.validation.go_shapes import CSI_NODE_DRIVER, go_struct
from moorage.apiserver.registry.validation.volume_sources import csi_driver_name_errors


def _topology_errors(keys: list[str], path: str) -> Iterator[FieldError]:
    path = path.rpartition(".")[0]  # Upstream names the driver here.
    seen: set[str] = set()
    for key in keys:
        if not key:
            yield FieldError.required(path)
        if key in seen:
            yield FieldError.duplicate(path, key)
        seen.add(key)
        for detail in names.qualified_name_errors(key):
            yield FieldError.invalid(path, key, detail)


def _changed_drivers(new: Obj, old: Obj) -> Iterator[FieldError]:
    """Drivers come and go; only their limits change."""
    before = {
        driver.get("name", ""): _fixed(driver) for driver in old.get("spec", {}).get("drivers", ())
    }
    for driver in map(_fixed, new.get("spec", {}).get("drivers", ())):
        if before.get(driver.get("name", ""), driver) != driver:
            yield FieldError.invalid("spec.drivers", go_struct(driver, CSI_NODE_DRIVER), IMMUTABLE)


def _fixed(driver: Obj) -> Obj:
    return {field: value for field, value in driver.items() if field != "allocatable"}


validate_csi_node = validator(
    ("spec.drivers[*].name", always(csi_driver_name_errors)),
    ("spec.drivers[*].nodeID", required, most_bytes(256, "must be 256 characters or less")),
    ("spec.drivers[*].allocatable.count", not_negative),
    ("spec.drivers[*].name", unique),
    ("spec.drivers[*].topologyKeys", _topology_errors),
)

CSI_NODE = Kind(
    name="CSINode",
    plural="csinodes",
    served=(Served(group="storage.k8s.io", version="v1", type="io.k8s.api.storage.v1.CSINode"),),
    is_namespaced=False,
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_csi_node,
        validate_update=update(validate_csi_node, after=_changed_drivers),
        parts={"status": PartRules(prepare=keep_spec)},
        returns_deleted=True,
        needs_revision_on_update=True,
    ),
    printer=printer(
        NAME,
        column(
            "Drivers",
            "spec.drivers",
            "integer",
            show=len,
            description="Number of CSI drivers that the node has",
        ),
        AGE,
    ),
    subresources=status_subresource(),
)
