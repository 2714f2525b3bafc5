"""ConfigMaps, Secrets and ServiceAccounts: how much they hold, never what."""

from __future__ import annotations

from typing import Any

from moorage.registry.columns.cells import AGE, CORE, NAME, age_of, name_of
from moorage.registry.kind import Column, Obj, Printer


def _config_map_cells(config_map: Obj, now: float) -> list[Any]:
    count = len(config_map.get("data") or ()) + len(config_map.get("binaryData") or ())
    return [name_of(config_map), count, age_of(config_map, now)]


def _secret_cells(secret: Obj, now: float) -> list[Any]:
    count = len(secret.get("data") or ())
    return [name_of(secret), secret.get("type", ""), count, age_of(secret, now)]


def _service_account_cells(account: Obj, now: float) -> list[Any]:
    return [name_of(account), age_of(account, now)]


CONFIG_MAPS = Printer(
    columns=(NAME, Column("Data", documented_by=f"{CORE}.ConfigMap.data"), AGE),
    cells=_config_map_cells,
)

SECRETS = Printer(
    columns=(
        NAME,
        Column("Type", documented_by=f"{CORE}.Secret.type"),
        Column("Data", documented_by=f"{CORE}.Secret.data"),
        AGE,
    ),
    cells=_secret_cells,
)

SERVICE_ACCOUNTS = Printer(columns=(NAME, AGE), cells=_service_account_cells)
