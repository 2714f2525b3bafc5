"""ConfigMaps. Source: core validation `ValidateConfigMap`, Kubernetes 1.36."""

from __future__ import annotations

from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import AGE, CORE, NAME, age_of, name_of
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served, Strategy
from moorage.apiserver.registry.validation.data import (
    MAX_DATA_BYTES,
    decoded_size,
    immutable_errors,
    key_errors,
)


def validate_config_map(config_map: Obj) -> list[FieldError]:
    """Return the errors of a new ConfigMap."""
    data, binary = config_map.get("data", {}), config_map.get("binaryData", {})
    errors: list[FieldError] = []
    for key in data:
        errors += key_errors(key, f"data[{key}]")
        if key in binary:
            errors.append(
                FieldError.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
            )
    for key in binary:
        errors += key_errors(key, f"binaryData[{key}]")
    size = sum(len(value.encode()) for value in data.values()) + decoded_size(binary.values())
    if size > MAX_DATA_BYTES:
        errors.append(FieldError.too_long("[]", MAX_DATA_BYTES))
    return errors


def validate_config_map_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a ConfigMap."""
    errors = immutable_errors(new, old, ("data", "binaryData"))
    return errors + validate_config_map(new)


def _config_map_cells(config_map: Obj, now: float) -> list[Any]:
    count = len(config_map.get("data") or ()) + len(config_map.get("binaryData") or ())
    return [name_of(config_map), count, age_of(config_map, now)]


_PRINTER = Printer(
    columns=(NAME, Column("Data", documented_by=f"{CORE}.ConfigMap.data"), AGE),
    cells=_config_map_cells,
)

CONFIG_MAP = Kind(
    name="ConfigMap",
    plural="configmaps",
    served=(Served(group="", version="v1", type="io.k8s.api.core.v1.ConfigMap"),),
    short_names=("cm",),
    strategy=Strategy(
        validate=validate_config_map,
        validate_update=validate_config_map_update,
    ),
    printer=_PRINTER,
)
