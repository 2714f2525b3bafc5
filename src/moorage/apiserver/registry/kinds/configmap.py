"""ConfigMaps. Source: core validation `ValidateConfigMap`, Kubernetes 1.36."""

from __future__ import annotations

from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import update
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.apiserver.registry.validation.data import (
    MAX_DATA_BYTES,
    decoded_size,
    key_errors,
    unchanged_if_immutable,
)

_TYPE = "io.k8s.api.core.v1.ConfigMap"


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


def _keys(config_map: Obj) -> int:
    return len(config_map.get("data") or ()) + len(config_map.get("binaryData") or ())


CONFIG_MAP = Kind(
    name="ConfigMap",
    plural="configmaps",
    served=(Served(group="", version="v1", type=_TYPE),),
    short_names=("cm",),
    strategy=Strategy(
        validate=validate_config_map,
        validate_update=update(
            validate_config_map, before=unchanged_if_immutable("data", "binaryData")
        ),
    ),
    printer=printer(NAME, column("Data", _keys, documented_by=f"{_TYPE}.data"), AGE),
)
